//! When flushes and compactions run automatically.

use std::io::ErrorKind;
use std::time::Duration;

use super::{open_with, write};
use crate::common::{apply, block_on, get, open, partition_of, put, tombstone};
use torc_record::ReplicaBatch;
use torc_ring::Partition;
use torc_store::Store;
use torc_store::testing::{Call, CrashFs, WaitingStore};

#[test]
fn flushes_happen_by_themselves_when_enough_log_has_gathered() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.flush_log_bytes = 20_000);
    let mut key = 0;
    while store.stats().flushes < 3 {
        key += 1;
        write(&store, key % 10, key).unwrap();
    }
    assert!(key > 100, "a flush every 20 kB, not {key} writes for three");
    block_on(store.close()).unwrap();
    let (_, recovery) = open(&fs).unwrap();
    assert_eq!(recovery.records, 10);
}

#[test]
fn flushes_happen_by_themselves_when_the_memtable_is_half_full_and_not_more_often() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.memtable_limit_bytes = 100_000);
    let mut key = 0;
    while store.stats().flushes < 3 {
        key += 1;
        write(&store, key, 10).unwrap();
    }
    // About 210 bytes per record of the memtable: 50,000 bytes are 235 of them.
    assert!(key > 600, "three halves of the memtable, not {key} records");
    let refused = store.stats().memtable_refusals;
    assert_eq!(refused, 0, "the other half was enough");
}

#[test]
fn compactions_happen_by_themselves_and_bound_the_slices_of_a_partition() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| {
        options.auto_compact = true;
        options.most_slices = 3;
    });
    for time in 1..20 {
        for key in 0..10 {
            write(&store, key, time).unwrap();
        }
        block_on(store.flush()).unwrap();
        while store.stats().sliced.most_slices > 3 {
            std::thread::yield_now();
        }
    }
    assert!(store.stats().compactions > 0);
    for key in 0..10 {
        assert_eq!(get(&store, key).unwrap().unwrap().ballot.time.0, 19);
    }
}

fn count(store: &Store, partition: Partition) -> usize {
    store.sealed(partition).unwrap().slices.len()
}

#[test]
fn a_partition_that_is_held_is_not_compacted() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| {
        options.auto_compact = true;
        options.most_slices = 2;
    });
    let (held, other) = (put(1, 1, b""), put(2, 1, b""));
    let (home, elsewhere) = (partition_of(&held), partition_of(&other));
    assert_ne!(home, elsewhere);
    let hold = store.hold(home);
    let also = store.hold(home);
    for time in 1..8 {
        write(&store, 1, time).unwrap();
        write(&store, 2, time).unwrap();
        block_on(store.flush()).unwrap();
    }
    let count = |partition| count(&store, partition);
    while count(elsewhere) > 2 {
        std::thread::yield_now();
    }
    block_on(store.compact()).unwrap();
    assert_eq!(count(elsewhere), 1);
    drop(hold);
    assert_eq!(count(home), 7, "the second hold still counts");
    drop(also);
    write(&store, 2, 9).unwrap();
    block_on(store.flush()).unwrap();
    while count(home) > 2 {
        std::thread::yield_now();
    }
}

#[test]
fn a_slice_that_was_only_copied_is_still_searched_for_collected_records() {
    let fs = CrashFs::new();
    let (kept, dropped) = (tombstone(1, 2), put(2, 1, vec![7; 10_000]));
    let home = partition_of(&kept);
    let (store, _) = open(&fs).unwrap();
    block_on(store.write_batch(vec![kept.clone(), dropped.clone()])).unwrap();
    block_on(store.flush()).unwrap();
    let batch = ReplicaBatch {
        purge: Some(kept.ballot),
        ..ReplicaBatch::default()
    };
    apply(&store, home, batch).unwrap();
    // Most of the segment is free then.
    block_on(store.drop_partition(partition_of(&dropped))).unwrap();
    block_on(store.close()).unwrap();
    let store = open_with(&fs, |options| options.auto_compact = true);
    block_on(store.flush()).unwrap();
    while store.stats().compactions == 0 {
        std::thread::yield_now();
    }
    assert_eq!(count(&store, home), 1, "it was copied");
    block_on(store.compact()).unwrap();
    assert_eq!(count(&store, home), 0);
}

/// Leaves two slices in each of these partitions.
fn two_slices(fs: &CrashFs) -> [Partition; 2] {
    let (store, _) = open(fs).unwrap();
    for time in 1..3 {
        write(&store, 1, time).unwrap();
        write(&store, 2, time).unwrap();
        block_on(store.flush()).unwrap();
    }
    block_on(store.close()).unwrap();
    [1, 2].map(|key| partition_of(&put(key, 1, b"")))
}

fn open_idle(fs: &CrashFs) -> Store {
    open_with(fs, |options| {
        options.auto_compact = true;
        options.compact_when_idle = Duration::ZERO;
    })
}

#[test]
fn a_compaction_at_rest_that_failed_is_tried_again_without_a_write() {
    let fs = CrashFs::new();
    let [home, _] = two_slices(&fs);
    fs.fail_next(Call::Write, "segment-", ErrorKind::StorageFull);
    let store = open_idle(&fs);
    while count(&store, home) > 1 {
        std::thread::yield_now();
    }
    assert_eq!(store.stats().compaction_failures, 1);
}

#[test]
fn a_partition_that_was_held_is_compacted_at_rest_without_a_write() {
    let fs = CrashFs::new();
    let [held, other] = two_slices(&fs);
    let store = open_idle(&fs);
    let hold = store.hold(held);
    // Counted when the round ends.
    while store.stats().compactions == 0 {
        std::thread::yield_now();
    }
    assert_eq!(count(&store, other), 1);
    drop(hold);
    while count(&store, held) > 1 {
        std::thread::yield_now();
    }
}
