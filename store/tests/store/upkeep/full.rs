//! A full memtable refuses writes until it is flushed.

use super::{open_with, write};
use crate::common::{block_on, get, open, put};
use torc_store::StoreError;
use torc_store::testing::{CrashFs, Survives, WaitingStore};

#[test]
fn writes_that_a_full_memtable_refuses_succeed_after_flushes() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.memtable_limit_bytes = 20_000);
    block_on(async {
        let writers = (0..8).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for step in 0..40 {
                    let record = put(writer * 40 + step, 10, vec![7; 1000]);
                    store.write(record).await.unwrap();
                    assert!(store.stats().memtable_bytes <= 22_500);
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
    let stats = store.stats();
    assert_eq!(stats.records, 320);
    assert!(stats.flushes > 10, "{} flushes", stats.flushes);
    drop(store);
    let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.records, 320);
}

#[test]
fn a_record_longer_than_the_whole_memtable_is_taken_when_it_is_empty() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.memtable_limit_bytes = 1000);
    for key in 0..5 {
        block_on(store.write(put(key, 1, vec![1; 5000]))).unwrap();
    }
    assert_eq!(store.stats().records, 5);
}

#[test]
fn when_flushes_fail_a_full_memtable_refuses_writes_and_recovers() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| {
        options.memtable_limit_bytes = 20_000;
        options.log_segment_bytes = 1 << 20;
    });
    write(&store, 0, 1).unwrap();
    let taken_up = fs.used_bytes();
    fs.set_capacity(Some(taken_up));
    let mut key = 1;
    let refused = loop {
        match write(&store, key, 10) {
            Ok(()) => key += 1,
            Err(refused) => break refused,
        }
    };
    let is_it = matches!(
        refused,
        StoreError::NoRoom {
            limit_bytes: 20_000
        }
    );
    assert!(is_it, "{refused}");
    assert!(refused.is_retryable() && !refused.outcome_unknown());
    let stats = store.stats();
    assert!(!store.room());
    assert!(stats.memtable_bytes <= 22_500 && stats.memtable_bytes > 21_500);
    assert!(stats.flush_failures > 0 && stats.memtable_refusals == 1);
    for key in 0..key {
        assert!(get(&store, key).unwrap().is_some(), "reads go on");
    }
    fs.set_capacity(None);
    write(&store, key, 10).unwrap_or_else(|error| panic!("there is space again: {error}"));
    let records = store.stats().records;
    drop(store);
    let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.records, records);
}
