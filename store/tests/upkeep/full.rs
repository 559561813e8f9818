//! A full memtable makes writes wait for flushes.

use crate::common::{block_on, get, open, put, tombstone};
use crate::{open_with, write};
use torc_store::StoreError;
use torc_store::testing::{Call, CrashFs, Survives};

#[test]
fn writes_wait_for_flushes_when_the_memtable_is_full_and_all_succeed() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.memtable_limit_bytes = 20_000);
    block_on(async {
        let writers = (0..8).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for step in 0..40 {
                    let record = put(writer * 40 + step, 10, vec![7; 1000]);
                    store.write(record).await.unwrap();
                    assert!(store.stats().memtable_bytes <= 20_000);
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
    let stats = store.stats();
    assert_eq!((stats.records, stats.memtable_refusals), (320, 0));
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
fn when_flushes_fail_a_full_memtable_refuses_values_takes_deletes_and_recovers() {
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
        StoreError::MemtableFull {
            limit_bytes: 20_000
        }
    );
    assert!(is_it, "{refused}");
    assert!(refused.is_retryable() && !refused.outcome_unknown());
    let stats = store.stats();
    assert!(stats.memtable_bytes <= 20_000 && stats.memtable_bytes > 19_000);
    assert!(stats.flush_failures > 0 && stats.memtable_refusals == 1);
    let mut stranger = 1_000_000;
    while block_on(store.write(tombstone(stranger, 1))).is_ok() {
        stranger += 1;
    }
    assert!(stranger > 1_000_010, "deletes have an eighth more");
    assert!(store.stats().memtable_bytes <= 22_500);
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

#[test]
fn a_writer_that_waits_for_a_flush_is_told_that_the_store_is_closed() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.memtable_limit_bytes = 2000);
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    fs.before(Call::Create, "segment-", 0, move || told.recv().unwrap());
    block_on(async {
        let mut writers = Vec::new();
        for key in 0..40 {
            let store = store.clone();
            let record = put(key, 1, vec![1; 100]);
            writers.push(tokio::spawn(async move { store.write(record).await }));
        }
        while store.stats().flush_waits == 0 {
            tokio::task::yield_now().await;
        }
        let closing = tokio::spawn(store.clone().close());
        tokio::task::yield_now().await;
        go_on.send(()).unwrap();
        closing.await.unwrap().unwrap();
        let mut closed = 0;
        for writer in writers {
            match writer.await.unwrap() {
                Ok(()) => {}
                Err(StoreError::Closed) => closed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(closed > 0, "somebody waited");
    });
}
