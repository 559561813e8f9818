//! Stores of every format that was ever released must stay readable.
//!
//! `tests/fixtures/v1` and `v2` were written by `remake` below, each at its format, and are
//! never written again once a release has it (`v2` was remade before the first one): `cargo test -p torc-store --test fixtures -- --ignored` makes the one
//! of a new format, after `FORMAT` here was raised.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{DIR, Model, block_on, options, partition_of, put, tombstone};
use torc_record::{Ballot, Epoch, HybridTime, Record};
use torc_ring::Partition;
use torc_store::testing::{CrashFs, Survives};
use torc_store::{PartitionBatch, PartitionMeta, Recovery, Store};

const FORMAT: u32 = 2;

fn fixture(format: u32) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(format!("v{format}"))
}

/// What is in the checkpoint or the slices, what is dropped after it, and what follows in the log.
fn history() -> (Vec<Record>, Record, Vec<Record>) {
    let before = (0..5)
        .map(|key| put(key, 10 + key, format!("value {key}")))
        .collect();
    let after = vec![
        tombstone(1, 20),
        put(2, 3, b"too old"),
        put(7, 21, b""),
        put(3, 5, b"after the drop"),
    ];
    (before, put(3, 0, b""), after)
}

/// What format 1 cannot say: facts before the seal and behind it.
fn facts(number: u64) -> (Partition, PartitionMeta) {
    let ballot = put(1, number, b"").ballot;
    let meta = PartitionMeta {
        epoch: Epoch(number),
        since: Epoch(number - 1),
        ceiling: HybridTime(number * 10),
        collected: ballot,
        collecting: ballot,
    };
    (Partition(number as u32), meta)
}

fn expected(format: u32) -> Model {
    let (before, dropped, after) = history();
    let mut model = Model::default();
    if format > 1 {
        // A ceiling and facts, of which the last count; later a purge and facts.
        model.last_seq += 3;
        model.ceiling = HybridTime(70);
        for number in [1, 2] {
            let (partition, meta) = facts(number);
            model.facts.insert(partition, (meta, Ballot::default()));
        }
    }
    model.meta.insert("node".to_owned(), b"fixture".to_vec());
    for record in before {
        model.write(record);
    }
    model.drop_partition(partition_of(&dropped));
    for record in after {
        model.write(record);
    }
    if format > 1 {
        let (partition, meta) = facts(2);
        let (purge, meta) = (Some(meta.collected), Some(meta));
        let batch = PartitionBatch {
            purge,
            meta,
            ..PartitionBatch::default()
        };
        model.apply(partition, &batch);
    }
    model
}

fn load(format: u32) -> CrashFs {
    let fs = CrashFs::new();
    for entry in std::fs::read_dir(fixture(format)).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        fs.put_file(&Path::new(DIR).join(path.file_name().unwrap()), &bytes);
    }
    fs
}

fn open(fs: &CrashFs) -> (Store, Recovery) {
    Store::open_with(options(DIR), Arc::new(fs.clone())).unwrap()
}

fn files(fs: &CrashFs, prefix: &str) -> usize {
    let files = fs.files().into_iter();
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(prefix)
    };
    files.filter(named).count()
}

fn check(store: &Store, recovery: &Recovery, format: u32, place: &str) {
    expected(format).check(store, place);
    let entries = if format > 1 { 7 } else { 5 };
    assert_eq!(recovery.log_entries_replayed, entries);
    assert_eq!(recovery.torn_bytes_cut, 0);
    assert_eq!(recovery.highest_time.0, 21);
    let summary = store.summary(partition_of(&put(7, 0, b"")));
    assert_eq!(
        summary.fingerprint, FINGERPRINT,
        "nodes of different releases compare their partitions"
    );
}

#[test]
fn a_store_of_format_1_is_read_as_it_was_written() {
    let (store, recovery) = open(&load(1));
    check(&store, &recovery, 1, "format 1");
    assert_eq!(
        (recovery.checkpoint_records, recovery.sealed_records),
        (5, 0)
    );
}

#[test]
fn the_first_seal_of_a_store_of_format_1_makes_slices_of_its_checkpoint() {
    let fs = load(1);
    let (store, _) = open(&fs);
    assert_eq!(files(&fs, "checkpoint-"), 1);
    // Until then the checkpoint counts: after a crash it is read again.
    let (again, recovery) = open(&fs.image(Survives::Everything));
    check(&again, &recovery, 1, "opened twice");
    block_on(store.seal()).unwrap();
    assert_eq!((files(&fs, "checkpoint-"), files(&fs, "segment-")), (0, 1));
    expected(1).check(&store, "sealed");
    drop(store);
    let (store, recovery) = open(&fs.image(Survives::Nothing));
    expected(1).check(&store, "sealed, after a crash");
    let records = expected(1).records.len() as u64;
    assert_eq!(
        (recovery.checkpoint_records, recovery.sealed_records),
        (0, records)
    );
    assert_eq!(recovery.highest_time.0, 21);
}

#[test]
fn a_damaged_checkpoint_of_format_1_is_refused() {
    let fs = load(1);
    let path = Path::new(DIR).join("checkpoint-00000000000000000002");
    let good = fs.file(&path).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs.put_file(&path, &bad);
        let opened = Store::open_with(options(DIR), Arc::new(fs.clone()));
        assert!(opened.is_err(), "bit {bit}");
    }
}

#[test]
fn a_store_of_format_2_is_read_as_it_was_written() {
    let fs = load(2);
    let (store, recovery) = open(&fs);
    check(&store, &recovery, 2, "format 2");
    assert_eq!(
        (recovery.checkpoint_records, recovery.sealed_records),
        (0, 5)
    );
    assert_eq!(files(&fs, "segment-"), 1);
    block_on(store.seal()).unwrap();
    block_on(store.fold()).unwrap();
    expected(2).check(&store, "sealed and folded");
}

/// Remade from FORMAT.md in Python, of the records as they lie in the fixture of format 2: the
/// sum over `key-0` and `key-7`.
const FINGERPRINT: u128 = 195_377_194_433_670_989_114_693_460_213_609_808_044;

#[test]
#[ignore = "writes the fixture of a new format"]
fn remake() {
    let dir = fixture(FORMAT);
    assert!(
        !dir.exists(),
        "{} exists: it is never written again",
        dir.display()
    );
    let (store, _) = Store::open(options(&dir)).unwrap();
    let (before, dropped, after) = history();
    block_on(async {
        store.meta_set("node", b"fixture").unwrap();
        store.write_batch(before).await.unwrap();
        let (told, outcome) = std::sync::mpsc::channel();
        let again = told.clone();
        store
            .reserve_ceiling(HybridTime(70), move |done| again.send(done).unwrap())
            .unwrap();
        for number in [3, 1] {
            let (partition, meta) = (facts(1).0, facts(number).1);
            let batch = PartitionBatch {
                meta: Some(meta),
                ..PartitionBatch::default()
            };
            let told = told.clone();
            store
                .apply(partition, batch, move |done| told.send(done).unwrap())
                .unwrap();
        }
        store.seal().await.unwrap();
        store.drop_partition(partition_of(&dropped)).await.unwrap();
        for record in after {
            store.write(record).await.unwrap();
        }
        let (partition, meta) = facts(2);
        let batch = PartitionBatch {
            purge: Some(meta.collected),
            meta: Some(meta),
            ..PartitionBatch::default()
        };
        store
            .apply(partition, batch, move |done| told.send(done).unwrap())
            .unwrap();
        store.close().await.unwrap();
        for done in outcome {
            done.unwrap();
        }
    });
    std::fs::remove_file(dir.join("LOCK")).unwrap();
}
