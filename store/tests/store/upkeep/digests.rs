//! Keys that share a digest, which only a caller with a wrong digest can cause: they affect nothing
//! else, and none is lost.

use std::ops::RangeInclusive;

use super::open_with;
use crate::common::{
    Model, block_on, check_summaries, open, partition_of, partitions, put, tombstone,
};
use torc_record::{Digest, Key, Locator, Record};
use torc_store::testing::{CrashFs, Survives, WaitingStore};
use torc_store::{CompactionReport, ScanLimits, Store};

/// Five more keys under the digest of key 1.
fn foreign(key: u64, time: u64, value: &str) -> Record {
    let mut record = put(100 + key, time, value);
    record.digest = put(1, 0, b"").digest;
    record
}

fn write(store: &Store, model: &mut Model, record: Record) {
    model.write(record.clone());
    block_on(store.write(record)).unwrap();
}

/// Flushes rounds of records: some in each partition, and several with one digest in that of key 1.
fn fill(store: &Store, model: &mut Model, rounds: RangeInclusive<u64>) {
    for round in rounds {
        for key in 0..40 {
            write(store, model, put(key, round, format!("{key} of {round}")));
        }
        // Each round has different keys of the digest.
        for key in (0..5).filter(|key| (key + round) % 3 > 0) {
            write(store, model, foreign(key, round, "foreign"));
        }
        let report = block_on(store.flush()).unwrap();
        assert!(report.slices > 8, "a further slice for the shared digest");
        assert_eq!(store.stats().memtable_bytes, 0, "all partitions are sealed");
    }
}

fn compact(store: &Store) -> CompactionReport {
    block_on(store.compact()).unwrap()
}

#[test]
fn keys_that_share_a_digest_are_flushed_and_compacted_and_none_is_lost() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let mut model = Model::default();
    fill(&store, &mut model, 1..=5);
    model.check(&store, "sealed");
    assert!(store.stats().sliced.shared_digests > 0);
    assert!(compact(&store).slices_written > 8);
    model.check(&store, "compacted");
    let again = compact(&store);
    assert_eq!((again.slices_read, again.slices_written), (0, 0), "it ends");
    let stats = store.stats().sliced;
    assert_eq!(
        (stats.slices, stats.most_slices, stats.shared_digests),
        (8 + 5, 6, 5),
        "one slice a partition, and one for each further key"
    );
    drop(store);
    let (store, _) = open(&fs.image(Survives::Nothing)).unwrap();
    model.check(&store, "opened again");
    assert_eq!(compact(&store).slices_read, 0, "also after a restart");
    check_summaries(&store, "opened again");
    fill(&store, &mut model, 6..=7);
    compact(&store);
    model.check(&store, "compacted again");
    assert_eq!(store.stats().sliced.shared_digests, 5);
}

#[test]
fn an_idle_node_compacts_them_once() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.most_slices = 2);
    let mut model = Model::default();
    fill(&store, &mut model, 1..=3);
    block_on(store.close()).unwrap();
    let store = open_with(&fs, |options| {
        options.most_slices = 2;
        options.auto_compact = true;
        options.compact_when_idle = std::time::Duration::ZERO;
    });
    while store.stats().sliced.slices > 8 + 5 {
        std::thread::yield_now();
    }
    let compactions = store.stats().compactions;
    // A flush makes the thread check again.
    write(&store, &mut model, tombstone(1, 9));
    block_on(store.flush()).unwrap();
    model.check(&store, "compacted by itself");
    // If the thread has not compacted what was flushed, this does.
    assert!(compact(&store).slices_written <= 1);
    assert_eq!(compact(&store).slices_read, 0, "nothing is left to compact");
    assert!(
        store.stats().compactions <= compactions + 2,
        "it does not compact for ever"
    );
}

#[test]
fn no_page_ends_between_two_keys_of_a_digest() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let mut model = Model::default();
    fill(&store, &mut model, 1..=2);
    // Some of them are in the memtable.
    for key in [0, 3] {
        write(&store, &mut model, foreign(key, 9, "newer"));
    }
    let home = partition_of(&put(1, 0, b""));
    assert!(partitions().contains(home));
    let expected = model.records.values().map(|(_, record)| record);
    let expected: Vec<_> = expected.filter(|one| partition_of(one) == home).collect();
    let shared = |digest: Digest| expected.iter().filter(|one| one.digest == digest).count();
    assert_eq!(shared(put(1, 0, b"").digest), 6);
    for records in 1..expected.len() {
        let limits = ScanLimits {
            records,
            bytes: usize::MAX,
        };
        let (mut found, mut after) = (Vec::new(), None::<Locator>);
        loop {
            let page = store.scan(home, after.as_ref(), limits).unwrap();
            found.extend(page.records);
            // After every key of the digest, as callers ask that do not know the key.
            after = page.next.map(|next| Locator {
                key: Key::new(vec![u8::MAX; 1024]).unwrap(),
                ..next
            });
            if page.done {
                break;
            }
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{records}");
    }
}
