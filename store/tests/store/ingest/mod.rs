//! Slices copied from one store to another, byte for byte.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

mod copied;
mod faults;
mod meanwhile;
mod refused;
mod together;

use std::path::PathBuf;

use crate::common::{CLUSTER, apply, block_on, open, partition_of, put, scan_all, tombstone};
use bytes::Bytes;
use torc_record::{Ballot, Record, ReplicaBatch};
use torc_ring::Partition;
use torc_store::testing::{CrashFs, WaitingStore};
use torc_store::{Ingest, SealedPartition, SealedSlice, Seq, SliceInfo, Store, StoreError};

const HOME: Partition = Partition(5);

/// Keys of one partition.
fn keys_of(partition: Partition) -> impl Iterator<Item = u64> {
    (0..).filter(move |key| partition_of(&tombstone(*key, 0)) == partition)
}

fn infos(sealed: &SealedPartition) -> Vec<SliceInfo> {
    let infos = sealed.slices.iter().map(SealedSlice::info);
    infos.map(Result::unwrap).collect()
}

fn bytes_of(sealed: &SealedPartition) -> Vec<u8> {
    let mut bytes = Vec::new();
    for slice in &sealed.slices {
        let mut at = 0;
        loop {
            // An odd length, so that chunks cross every border.
            let chunk = slice.read(at, 333).unwrap();
            if chunk.is_empty() {
                break;
            }
            at += chunk.len() as u64;
            bytes.extend_from_slice(&chunk);
        }
    }
    bytes
}

/// Everything up to publishing.
fn prepare(to: &Store, home: Partition, sealed: &SealedPartition) -> Result<Ingest, StoreError> {
    let mut ingest = to.ingest(home, &infos(sealed))?;
    for chunk in bytes_of(sealed).chunks(250) {
        ingest.write(Bytes::copy_from_slice(chunk))?;
    }
    ingest.verify(Some(&CLUSTER))?;
    Ok(ingest)
}

fn copy_sealed(from: &Store, to: &Store, home: Partition) -> Result<Seq, StoreError> {
    let sealed = from.sealed(home)?;
    block_on(prepare(to, home, &sealed)?.publish())
}

/// Copies slices, then later records.
fn copy(from: &Store, to: &Store, home: Partition) -> Result<(), StoreError> {
    let sealed = from.sealed(home)?;
    block_on(prepare(to, home, &sealed)?.publish())?;
    let tail = scan_all(from, home, sealed.through);
    block_on(to.write_batch(tail))
}

fn segments(fs: &CrashFs) -> Vec<PathBuf> {
    let mut files = fs.files();
    files.retain(|path| path.to_string_lossy().contains("segment-"));
    files
}

fn write_all(store: &Store, records: impl IntoIterator<Item = Record>) {
    for record in records {
        block_on(store.write(record)).unwrap();
    }
}

/// The watermark of a collection up to this time.
fn upto(time: u64) -> Ballot {
    tombstone(0, time).ballot
}

fn purge(store: &Store, watermark: Ballot) {
    let batch = ReplicaBatch {
        purge: Some(watermark),
        ..ReplicaBatch::default()
    };
    apply(store, HOME, batch).unwrap();
}

/// A store with three slices of the partition, and newer records in its memtable.
fn sender() -> (CrashFs, Store) {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let keys: Vec<u64> = keys_of(HOME).take(12).collect();
    for round in 1..4 {
        for key in keys.iter().filter(|key| **key % round == 0) {
            let record = match key % 5 {
                0 => tombstone(*key, round * 10),
                _ => put(*key, round * 10, format!("{key} in round {round}")),
            };
            block_on(store.write(record)).unwrap();
        }
        block_on(store.flush()).unwrap();
    }
    write_all(&store, keys[..4].iter().map(|key| put(*key, 40, b"on top")));
    (fs, store)
}
