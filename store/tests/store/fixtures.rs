//! A store written earlier in the present format, which must stay readable.
//!
//! `tests/fixtures/v5` was written by `remake` below. When the format changes, raise `FORMAT`
//! here, remove the old fixture, and run
//! `cargo test -p torc-store --test store fixtures -- --ignored`.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{DIR, Model, block_on, options, partition_of, put, tombstone};
use torc_record::{Ballot, Epoch, HybridTime, Record, ReplicaBatch, ReplicaFacts};
use torc_ring::Partition;
use torc_store::testing::{CrashFs, WaitingStore};
use torc_store::{LogTail, Recovery, Store};

const FORMAT: u32 = 5;

fn fixture() -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(format!("v{FORMAT}"))
}

/// The records in the slices, the one dropped after them, and those that follow in the log.
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

/// Facts before and after the flush.
fn facts(number: u64) -> (Partition, ReplicaFacts) {
    let ballot = put(1, number, b"").ballot;
    let meta = ReplicaFacts {
        epoch: Epoch(number),
        since: Epoch(number - 1),
        ceiling: HybridTime(number * 10),
        collected: ballot,
        collecting: ballot,
    };
    (Partition(number as u32), meta)
}

fn expected() -> Model {
    let (before, dropped, after) = history();
    let mut model = Model::default();
    // A ceiling and facts, the last of which count; later a purge and facts.
    model.last_seq += 3;
    model.ceiling = HybridTime(70);
    for number in [1, 2] {
        let (partition, meta) = facts(number);
        model.facts.insert(partition, (meta, Ballot::default()));
    }
    model.meta.insert("node".to_owned(), b"fixture".to_vec());
    for record in before {
        model.write(record);
    }
    model.drop_partition(partition_of(&dropped));
    for record in after {
        model.write(record);
    }
    let (partition, meta) = facts(2);
    let (purge, meta) = (Some(meta.collected), Some(meta));
    let batch = ReplicaBatch {
        purge,
        meta,
        ..ReplicaBatch::default()
    };
    model.apply(partition, &batch);
    model
}

fn load() -> CrashFs {
    let fs = CrashFs::new();
    for entry in std::fs::read_dir(fixture()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        fs.put_file(&Path::new(DIR).join(path.file_name().unwrap()), &bytes);
    }
    fs
}

fn open(fs: &CrashFs) -> (Store, Recovery) {
    Store::open_with(options(DIR), Arc::new(fs.clone())).unwrap()
}

fn segments(fs: &CrashFs) -> usize {
    let files = fs.files().into_iter();
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("segment-")
    };
    files.filter(is_segment).count()
}

#[test]
fn a_store_is_read_as_it_was_written() {
    let fs = load();
    let (store, recovery) = open(&fs);
    expected().check(&store, "as it was written");
    assert_eq!(
        (recovery.sealed_records, recovery.log_entries_replayed),
        (5, 7)
    );
    assert_eq!(recovery.log_tail, LogTail::Whole);
    assert_eq!(recovery.highest_time.0, 21);
    let summary = store.summary(partition_of(&put(7, 0, b"")));
    assert_eq!(
        summary.fingerprint, FINGERPRINT,
        "nodes of different releases compare their partitions"
    );
    assert_eq!(segments(&fs), 1);
    block_on(store.flush()).unwrap();
    block_on(store.compact()).unwrap();
    expected().check(&store, "sealed and compacted");
}

/// Computed in Python from FORMAT.md and the records in the fixture: the sum over `key-0` and
/// `key-7`.
const FINGERPRINT: u128 = 195_377_194_433_670_989_114_693_460_213_609_808_044;

#[test]
#[ignore = "writes the fixture of a new format"]
fn remake() {
    let dir = fixture();
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
            let batch = ReplicaBatch {
                meta: Some(meta),
                ..ReplicaBatch::default()
            };
            let told = told.clone();
            store
                .apply(partition, batch, move |done| told.send(done).unwrap())
                .unwrap();
        }
        store.flush().await.unwrap();
        store.drop_partition(partition_of(&dropped)).await.unwrap();
        for record in after {
            store.write(record).await.unwrap();
        }
        let (partition, meta) = facts(2);
        let batch = ReplicaBatch {
            purge: Some(meta.collected),
            meta: Some(meta),
            ..ReplicaBatch::default()
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
