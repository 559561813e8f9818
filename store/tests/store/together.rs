//! Changes of many partitions handed over in one call.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::io::ErrorKind;
use std::sync::{Arc, mpsc};

use crate::common::{
    DIR, apply, apply_many, block_on, get, open, options, partition_of, partitions, put,
};
use torc_record::{Epoch, Record, ReplicaBatch, ReplicaFacts};
use torc_ring::Partition;
use torc_store::testing::{Call, CrashFs, Survives};
use torc_store::{Applied, Seq, Store, StoreError, StoreHealth};

type Changes = Vec<(Partition, ReplicaBatch)>;

fn change(record: Record) -> (Partition, ReplicaBatch) {
    let home = partition_of(&record);
    let batch = ReplicaBatch {
        records: vec![record],
        ..ReplicaBatch::default()
    };
    (home, batch)
}

fn epoch(partition: Partition, number: u64) -> (Partition, ReplicaBatch) {
    let meta = ReplicaFacts {
        epoch: Epoch(number),
        ..ReplicaFacts::default()
    };
    let batch = ReplicaBatch {
        meta: Some(meta),
        ..ReplicaBatch::default()
    };
    (partition, batch)
}

/// The first keys from `from` on, one per partition, in partition order.
fn keys(from: u64) -> Vec<u64> {
    let home = |key: &u64| partition_of(&put(*key, 0, b""));
    let of = |partition| {
        (from..from + 1000)
            .find(|key| home(key) == partition)
            .unwrap()
    };
    partitions().iter().map(of).collect()
}

fn places(failed: &[(usize, StoreError)]) -> Vec<usize> {
    failed.iter().map(|(place, _)| *place).collect()
}

#[test]
fn changes_of_all_partitions_take_one_sync_and_keep_their_order() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let before = store.stats();
    let mut changes = Changes::new();
    for time in 1..20 {
        changes.extend(keys(0).iter().map(|key| change(put(*key, time, b"v"))));
        changes.extend(partitions().iter().map(|home| epoch(home, time)));
    }
    let entries = changes.len() as u64;
    assert_eq!(places(&apply_many(&store, changes)), []);
    let after = store.stats();
    assert_eq!(after.fsyncs - before.fsyncs, 1);
    assert_eq!(after.batches - before.batches, 1);
    assert_eq!(store.last_seq(), Seq(entries));
    drop(store);
    let (store, _) = open(&fs.image(Survives::Nothing)).unwrap();
    for key in keys(0) {
        assert_eq!(get(&store, key).unwrap(), Some(put(key, 19, b"v")));
    }
    for home in partitions().iter() {
        assert_eq!(store.partition_meta(home).epoch, Epoch(19), "the last one");
    }
}

#[test]
fn what_gathers_during_a_sync_is_the_next_batch_whole() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let (go_on, told) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    fs.before(Call::Sync, "log-", 0, move || {
        begun.send(()).unwrap();
        let _ = told.recv();
    });
    let (report, reports) = mpsc::channel();
    let hand_over = |key| {
        let report = report.clone();
        let done = move |applied: Applied| {
            let is_synced = applied.sync.is_some();
            report
                .send((key, applied.failed.is_empty() && is_synced))
                .unwrap();
        };
        store.apply_many(vec![change(put(key, 1, vec![1; 20]))], done);
    };
    let before = store.stats().fsyncs;
    hand_over(0);
    has_begun.recv().unwrap();
    (1..100).for_each(hand_over);
    go_on.send(()).unwrap();
    let told: Vec<_> = reports.iter().take(100).collect();
    let expected: Vec<_> = (0..100).map(|key| (key, true)).collect();
    assert_eq!(told, expected);
    assert_eq!(store.stats().fsyncs - before, 2);
}

#[test]
fn a_change_that_is_refused_takes_none_with_it_but_those_behind_it_in_its_partition() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let keys = keys(0);
    let home = |at: usize| partition_of(&put(keys[at], 0, b""));
    let long = (1..6).map(|time| put(keys[1], time, vec![0; 1 << 20]));
    let long = ReplicaBatch {
        records: long.collect(),
        ..ReplicaBatch::default()
    };
    let (_, stray) = change(put(keys[3], 1, b"v"));
    let changes = vec![
        change(put(keys[0], 1, b"v")),
        (home(1), long),
        (home(2), stray),
        (Partition(u32::MAX), ReplicaBatch::default()),
        change(put(keys[3], 1, b"v")),
        epoch(home(1), 1),
        change(put(keys[0], 2, b"v")),
    ];
    let failed = apply_many(&store, changes);
    assert_eq!(places(&failed), [1, 2, 3, 5]);
    assert!(matches!(failed[0].1, StoreError::BatchTooLong { .. }));
    assert!(matches!(failed[1].1, StoreError::StrayRecord { .. }));
    assert!(matches!(failed[2].1, StoreError::UnknownPartition { .. }));
    assert!(matches!(failed[3].1, StoreError::AfterFailure { .. }));
    assert_eq!(get(&store, keys[0]).unwrap(), Some(put(keys[0], 2, b"v")));
    assert_eq!(get(&store, keys[3]).unwrap(), Some(put(keys[3], 1, b"v")));
    assert_eq!(store.last_seq(), Seq(3));

    let behind = apply(&store, home(2), epoch(home(2), 1).1).unwrap_err();
    assert!(
        matches!(behind, StoreError::AfterFailure { .. }),
        "{behind}"
    );
    store.resume(home(2)).unwrap();
    apply(&store, home(2), epoch(home(2), 1).1).unwrap();
    assert_eq!(store.health(), StoreHealth::Ok);
}

#[test]
fn a_batch_that_finds_no_space_fails_whole_and_breaks_its_partitions_only() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let keys = keys(0);
    let changes = |time, len| {
        let three = keys[..3].iter();
        three
            .map(|key| change(put(*key, time, vec![0; len])))
            .collect::<Changes>()
    };
    fs.fail_next(Call::Preallocate, "log-", ErrorKind::StorageFull);
    let failed = apply_many(&store, changes(1, 9000));
    assert_eq!(places(&failed), [0, 1, 2]);
    assert!(matches!(failed[0].1, StoreError::OutOfSpace));
    let mut next = changes(2, 10);
    next.push(change(put(keys[3], 2, b"v")));
    assert_eq!(places(&apply_many(&store, next)), [0, 1, 2]);
    for key in &keys[..3] {
        store.resume(partition_of(&put(*key, 0, b""))).unwrap();
    }
    assert_eq!(places(&apply_many(&store, changes(3, 10))), []);
}

#[test]
fn more_than_a_batch_of_the_log_is_cut_into_several_and_told_once() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let key = |number: u64| keys(0)[number as usize % 8];
    let changes = |time| {
        (0..12)
            .map(|number| change(put(key(number), time + number, vec![0; 1 << 20])))
            .collect::<Changes>()
    };
    let before = store.stats().batches;
    assert_eq!(places(&apply_many(&store, changes(1))), []);
    assert_eq!(
        store.stats().batches - before,
        4,
        "three of a mebibyte each"
    );

    // Each batch begins a segment here: the second one of the call finds no space.
    let disk = fs.clone();
    fs.before(Call::Create, "log-", 1, move || {
        disk.fail_next(Call::Preallocate, "log-", ErrorKind::StorageFull);
    });
    let failed = apply_many(&store, changes(100));
    assert!(fs.is_used_up());
    // Of the last four changes, one belongs to a partition that was not in the second batch.
    assert_eq!(places(&failed), [3, 4, 5, 11]);
    assert!(matches!(failed[2].1, StoreError::OutOfSpace));
    assert!(matches!(failed[3].1, StoreError::AfterFailure { .. }));
    drop(store);
    let (store, _) = open(&fs.image(Survives::Nothing)).unwrap();
    let time = |number| get(&store, key(number)).unwrap().unwrap().ballot.time.0;
    let times: Vec<u64> = (0..8).map(time).collect();
    assert_eq!(times, [108, 109, 110, 12, 5, 6, 106, 107]);
}

#[test]
fn without_room_changes_with_records_are_refused_one_by_one() {
    let mut options = options(DIR);
    options.memtable_limit_bytes = 8 << 10;
    let fs = CrashFs::new();
    let (store, _) = Store::open_with(options, Arc::new(fs.clone())).unwrap();
    for _ in 0..1000 {
        // Writes stay in memory.
        fs.fail_next(Call::Create, "segment-", ErrorKind::PermissionDenied);
    }
    let keys = keys(0);
    let changes = vec![
        change(put(keys[0], 1, vec![0; 4000])),
        change(put(keys[1], 1, vec![0; 9000])),
        change(put(keys[2], 1, vec![0; 4000])),
        epoch(partition_of(&put(keys[3], 0, b"")), 1),
    ];
    let failed = apply_many(&store, changes);
    assert_eq!(places(&failed), [1]);
    assert!(matches!(failed[0].1, StoreError::NoRoom { .. }));
}

#[test]
fn a_call_is_told_of_even_if_it_is_empty_or_the_store_is_gone() {
    let (store, _) = open(&CrashFs::new()).unwrap();
    assert_eq!(places(&apply_many(&store, Changes::new())), []);
    block_on(store.clone().close()).unwrap();
    let failed = apply_many(&store, vec![epoch(Partition(1), 1), epoch(Partition(2), 1)]);
    assert_eq!(places(&failed), [0, 1]);
    assert!(matches!(failed[0].1, StoreError::Closed));
}

#[test]
fn a_failed_sync_fails_all_that_was_handed_over() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    fs.fail_next(Call::Sync, "log-", ErrorKind::Other);
    let changes = keys(0).into_iter().map(|key| change(put(key, 1, b"v")));
    let failed = apply_many(&store, changes.collect());
    assert_eq!(places(&failed), (0..8).collect::<Vec<_>>());
    assert!(failed.iter().all(|(_, error)| error.outcome_unknown()));
}
