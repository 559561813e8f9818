//! Stores of every format that was ever released must stay readable.
//!
//! `tests/fixtures/v1` was written by `remake` below, at format 1, and is never written
//! again: `cargo test -p torc-store --test fixtures -- --ignored` makes the one of a new
//! format, after `FORMAT` here was raised.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{DIR, Model, block_on, options, partition_of, put, tombstone};
use torc_record::Record;
use torc_store::testing::CrashFs;
use torc_store::{PartitionSummary, Store};

const FORMAT: u32 = 1;

fn fixture(format: u32) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(format!("v{format}"))
}

/// What is in the checkpoint, what is dropped after it, and what follows in the log.
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

fn expected() -> Model {
    let (before, dropped, after) = history();
    let mut model = Model::default();
    model.meta.insert("node".to_owned(), b"fixture".to_vec());
    for record in before {
        model.write(record);
    }
    model.drop_partition(partition_of(&dropped));
    for record in after {
        model.write(record);
    }
    model
}

#[test]
fn a_store_of_format_1_is_read_as_it_was_written() {
    let fs = CrashFs::new();
    for entry in std::fs::read_dir(fixture(1)).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        fs.put_file(&Path::new(DIR).join(path.file_name().unwrap()), &bytes);
    }
    let (store, recovery) = Store::open_with(options(DIR), Arc::new(fs)).unwrap();
    expected().check(&store, "format 1");
    assert_eq!(recovery.checkpoint_records, 5);
    assert_eq!(recovery.log_entries_replayed, 5);
    assert_eq!(recovery.torn_bytes_cut, 0);
    assert_eq!(recovery.highest_time.0, 21);
    let summary = store.summary(partition_of(&put(7, 0, b"")));
    let PartitionSummary { fingerprint, .. } = summary;
    assert_eq!(
        fingerprint, FINGERPRINT,
        "nodes of different releases compare their partitions"
    );
}

/// Remade from FORMAT.md with the Python package `blake3`: the sum over `key-0` and `key-7`.
const FINGERPRINT: u128 = 198_042_831_722_611_903_163_561_863_742_942_611_516;

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
        store.checkpoint().await.unwrap();
        store.drop_partition(partition_of(&dropped)).await.unwrap();
        for record in after {
            store.write(record).await.unwrap();
        }
        store.close().await.unwrap();
    });
    std::fs::remove_file(dir.join("LOCK")).unwrap();
}
