//! Batches of replicas compared with a plain map, under flushes, compactions, restarts and crashes.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests count small numbers"
)]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::sync::{Arc, mpsc};

use crate::common::{
    DIR, Model, apply, apply_many, block_on, get, open, options, partition_of, partitions, put,
    record, reserve_ceiling, tombstone,
};
use proptest::prelude::*;
use torc_record::{
    Ballot, Digest, Epoch, HybridTime, KeyId, Record, ReplicaBatch, ReplicaFacts, State,
};
use torc_ring::Partition;
use torc_store::testing::{Call, CrashFs, Survives, WaitingStore};
use torc_store::{Store, StoreError, StoreHealth};

#[derive(Debug, Clone)]
enum Op {
    Apply(Vec<(u32, ReplicaBatch)>),
    Ceiling(u64),
    Flush,
    Compact,
    /// Counts hidden records now, so that the count is kept up to date from here on.
    Look,
    Restart,
    Crash,
}

fn time(unix_ms: u64, counter: u64) -> u64 {
    HybridTime::from_unix_ms(unix_ms).0 + counter
}

fn any_record() -> impl Strategy<Value = Record> {
    (0_u64..24, 0_u64..6, 0_u64..4, 0..4).prop_map(|(key, ms, counter, kind)| {
        let state = match kind {
            0 => State::Tombstone,
            kind => State::Value {
                value: vec![kind as u8; key as usize].into(),
                expires_at_ms: (kind == 1).then_some(ms + counter),
            },
        };
        record(key, time(ms, counter), state)
    })
}

fn ballot(time: u64) -> Ballot {
    tombstone(0, time).ballot
}

fn any_batch() -> impl Strategy<Value = ReplicaBatch> {
    let meta = (1_u64..9, 0_u64..9).prop_map(|(epoch, time)| ReplicaFacts {
        epoch: Epoch(epoch),
        since: Epoch(epoch / 2),
        ceiling: HybridTime(time),
        collected: ballot(time),
        collecting: ballot(time + 1),
    });
    (
        proptest::bool::weighted(0.05),
        proptest::collection::vec(any_record(), 0..10),
        proptest::option::weighted(0.2, (0_u64..7).prop_map(|ms| ballot(time(ms, 0)))),
        proptest::option::weighted(0.5, meta),
    )
        .prop_map(|(wipe, records, purge, meta)| ReplicaBatch {
            wipe,
            records,
            purge,
            meta,
        })
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => proptest::collection::vec((0..partitions().count(), any_batch()), 1..4)
            .prop_map(Op::Apply),
        1 => (0_u64..99).prop_map(Op::Ceiling),
        4 => Just(Op::Flush),
        2 => Just(Op::Compact),
        2 => Just(Op::Look),
        1 => Just(Op::Restart),
        1 => Just(Op::Crash),
    ]
}

fn step(op: &Op, store: Store, fs: &mut CrashFs, model: &mut Model) -> Store {
    let survives = match op {
        Op::Apply(changes) => {
            let changes = changes.iter().map(|(at, batch)| {
                // Two partitions get all records, so that they have something to collect.
                let partition = partition_of(&put(u64::from(*at) % 2, 0, b""));
                let mut batch = batch.clone();
                if batch.wipe {
                    model.facts.entry(partition).or_default().1 = Ballot::default();
                }
                batch
                    .records
                    .retain(|one| partition_of(one) == partition && model.is_writable(one));
                model.apply(partition, &batch);
                (partition, batch)
            });
            let failed = apply_many(&store, changes.collect());
            assert!(failed.is_empty(), "{failed:?}");
            return store;
        }
        Op::Ceiling(time) => {
            model.last_seq += 1;
            model.ceiling = model.ceiling.max(HybridTime(*time));
            reserve_ceiling(&store, HybridTime(*time)).unwrap();
            return store;
        }
        Op::Flush => {
            block_on(store.flush()).unwrap();
            assert_eq!(store.stats().memtable_bytes, 0, "all is sealed, or dropped");
            return store;
        }
        Op::Compact => {
            block_on(store.compact()).unwrap();
            return store;
        }
        Op::Look => {
            model.check(&store, "in between");
            return store;
        }
        Op::Restart => {
            block_on(store.close()).unwrap();
            Survives::Everything
        }
        Op::Crash => {
            fs.crash();
            Survives::Nothing
        }
    };
    *fs = fs.image(survives);
    open(fs).unwrap().0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn batches_purges_and_facts_outlive_flushes_compactions_restarts_and_crashes(
        ops in proptest::collection::vec(any_op(), 1..80),
    ) {
        let mut fs = CrashFs::new();
        let mut model = Model::default();
        let mut store = open(&fs).unwrap().0;
        for op in &ops {
            store = step(op, store, &mut fs, &mut model);
        }
        model.check(&store, "at the end");
        for key in 0..24 {
            let held = model.records.values().find(|(_, one)| one.key == put(key, 0, b"").key);
            prop_assert_eq!(get(&store, key).unwrap(), held.map(|(_, one)| one.clone()));
        }
        block_on(store.flush()).unwrap();
        block_on(store.compact()).unwrap();
        model.check(&store, "compacted at the end");
        // One slice per partition and an empty memtable: nothing can be hidden any more.
        let keys = store.stats().sliced.keys;
        prop_assert_eq!(keys, model.records.len() as u64, "what was collected is gone from the disk");
    }
}

fn home() -> Partition {
    partition_of(&put(1, 0, b""))
}

fn batch(records: Vec<Record>) -> ReplicaBatch {
    ReplicaBatch {
        records,
        ..ReplicaBatch::default()
    }
}

#[test]
fn a_tombstone_that_hides_an_older_value_is_dropped_only_with_it() {
    let (store, _) = open(&CrashFs::new()).unwrap();
    apply(&store, home(), batch(vec![put(1, 10, b"old")])).unwrap();
    block_on(store.flush()).unwrap();
    let purge = ReplicaBatch {
        records: vec![tombstone(1, 20)],
        purge: Some(ballot(30)),
        ..ReplicaBatch::default()
    };
    apply(&store, home(), purge).unwrap();
    for place in ["in the memtable", "sealed", "compacted"] {
        assert_eq!(get(&store, 1).unwrap(), None, "{place}");
        assert_eq!(store.summary(home()).records, 0, "{place}");
        match place {
            "in the memtable" => drop(block_on(store.flush()).unwrap()),
            _ => drop(block_on(store.compact()).unwrap()),
        }
        let left = if place == "in the memtable" { 2 } else { 0 };
        assert_eq!(store.stats().sliced.keys, left, "{place}");
    }
}

#[test]
fn what_was_collected_before_a_flush_is_not_flushed() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let all = ReplicaBatch {
        records: vec![tombstone(1, 20)],
        purge: Some(ballot(20)),
        ..ReplicaBatch::default()
    };
    apply(&store, home(), all).unwrap();
    assert_eq!(block_on(store.flush()).unwrap().records, 0);
    assert_eq!(store.stats().memtable_bytes, 0);
    drop(store);
    let (store, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.log_entries_replayed, 0, "the log was cut");
    assert_eq!(
        store.watermark(home()),
        ballot(20),
        "and the manifest knows"
    );
    assert_eq!(store.summary(home()).records, 0);
}

#[test]
fn the_highest_ballot_is_that_of_a_partition_and_an_epoch_and_outlives_its_record() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let mut others = (2..).map(|key| put(key, 900, b"elsewhere"));
    let elsewhere = others.find(|it| partition_of(it) != home()).unwrap();
    let there = partition_of(&elsewhere);
    apply(&store, there, batch(vec![elsewhere])).unwrap();
    apply(&store, home(), batch(vec![put(1, 100, b"here")])).unwrap();
    apply(&store, home(), batch(vec![put(1, 50, b"late")])).unwrap();
    let check = |store: &Store| {
        let highest = |epoch| store.highest_in(home(), Epoch(epoch)).0;
        assert_eq!((highest(1), highest(2)), (100, 0));
        assert!(highest(0) >= 100, "it may have had any of those");
    };
    check(&store);
    let wipe = ReplicaBatch {
        wipe: true,
        ..ReplicaBatch::default()
    };
    apply(&store, home(), wipe).unwrap();
    let (replayed, _) = open(&fs.image(Survives::Nothing)).unwrap();
    check(&replayed);
    block_on(store.flush()).unwrap();
    let (flushed, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.log_entries_replayed, 0, "the manifest knows");
    check(&flushed);
}

#[test]
fn batches_are_acknowledged_in_order_and_only_when_durable() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let (told, outcome) = mpsc::channel();
    for number in 0..200_u64 {
        let told = told.clone();
        let meta = ReplicaFacts {
            epoch: Epoch(number),
            ..ReplicaFacts::default()
        };
        let batch = ReplicaBatch {
            records: vec![put(1, number, b"v")],
            meta: Some(meta),
            ..ReplicaBatch::default()
        };
        let done = move |done: Result<(), StoreError>| told.send(done.map(|()| number)).unwrap();
        store.apply(home(), batch, done).unwrap();
    }
    drop(told);
    let order: Vec<u64> = outcome.iter().map(Result::unwrap).collect();
    assert_eq!(order, (0..200).collect::<Vec<_>>());
    let image = fs.image(Survives::Nothing);
    let (store, _) = open(&image).unwrap();
    assert_eq!(store.partition_meta(home()).epoch, Epoch(199));
    assert_eq!(get(&store, 1).unwrap(), Some(put(1, 199, b"v")));
}

#[test]
fn after_a_failed_batch_none_of_its_partition_is_taken_until_that_was_seen() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    apply(&store, home(), batch(vec![put(1, 1, b"first")])).unwrap();
    fs.fail_next(Call::Preallocate, "log-", std::io::ErrorKind::StorageFull);
    let failed = apply(&store, home(), batch(vec![put(1, 2, vec![0; 9000])])).unwrap_err();
    assert!(
        matches!(failed, StoreError::OutOfSpace | StoreError::Io { .. }),
        "{failed}"
    );
    let refused = apply(&store, home(), batch(vec![put(1, 3, b"behind it")])).unwrap_err();
    assert!(
        matches!(refused, StoreError::AfterFailure { .. }),
        "{refused}"
    );
    let other = Partition((home().0 + 1) % partitions().count());
    apply(&store, other, batch(vec![])).unwrap();
    store.resume(home()).unwrap();
    apply(&store, home(), batch(vec![put(1, 4, b"anew")])).unwrap();
    assert_eq!(get(&store, 1).unwrap(), Some(put(1, 4, b"anew")));
    assert_eq!(store.health(), StoreHealth::Ok);
}

#[test]
fn without_room_records_are_refused_and_facts_are_not() {
    let mut options = options(DIR);
    options.memtable_limit_bytes = 64 << 10;
    let fs = CrashFs::new();
    let (store, _) = Store::open_with(options, Arc::new(fs.clone())).unwrap();
    // Flushes fail, so records stay in memory.
    for _ in 0..10_000 {
        fs.fail_next(
            Call::Create,
            "segment-",
            std::io::ErrorKind::PermissionDenied,
        );
    }
    let mut number = 0;
    while store.room() {
        number += 1;
        apply(&store, home(), batch(vec![put(1, number, vec![1; 1000])])).unwrap();
        let key = 1000 + number;
        let one = put(key, 1, vec![1; 1000]);
        apply(&store, partition_of(&one), batch(vec![one])).unwrap();
    }
    let one = put(1, number + 1, vec![1; 1000]);
    apply(&store, home(), batch(vec![one])).unwrap();
    let many = vec![put(1, number + 2, vec![1; 20_000])];
    let refused = apply(&store, home(), batch(many)).unwrap_err();
    assert!(matches!(refused, StoreError::NoRoom { .. }), "{refused}");
    store.resume(home()).unwrap();
    let facts = ReplicaBatch {
        wipe: true,
        purge: Some(ballot(1)),
        meta: Some(ReplicaFacts::default()),
        ..ReplicaBatch::default()
    };
    apply(&store, home(), facts).unwrap();
}

#[test]
fn what_is_too_long_or_of_another_partition_is_refused() {
    let (store, _) = open(&CrashFs::new()).unwrap();
    let long = (0..5).map(|time| put(1, time, vec![0; 1 << 20])).collect();
    let refused = apply(&store, home(), batch(long)).unwrap_err();
    assert!(
        matches!(refused, StoreError::BatchTooLong { .. }),
        "{refused}"
    );
    let stray = (0..100)
        .map(|key| put(key, 1, b""))
        .find(|one| partition_of(one) != home());
    store.resume(home()).unwrap();
    let refused = apply(&store, home(), batch(vec![stray.unwrap()])).unwrap_err();
    assert!(
        matches!(refused, StoreError::StrayRecord { .. }),
        "{refused}"
    );
    assert_eq!(store.last_seq().0, 0, "nothing was changed");
    store.resume(home()).unwrap();
    apply(&store, home(), ReplicaBatch::default()).unwrap();
    assert_eq!(store.last_seq().0, 0, "an empty batch is no entry");
    block_on(store.clone().close()).unwrap();
    let refused = apply(&store, home(), ReplicaBatch::default()).unwrap_err();
    assert!(matches!(refused, StoreError::Closed), "{refused}");
}

#[test]
fn the_sum_of_a_range_is_that_of_its_parts() {
    let (store, _) = open(&CrashFs::new()).unwrap();
    for key in 0..60 {
        block_on(store.write(put(key, key, b"v"))).unwrap();
        if key == 40 {
            block_on(store.flush()).unwrap();
        }
    }
    let (first, last) = (Digest([0; 16]), Digest([255; 16]));
    let whole = store.range_sum(home(), first, last).unwrap();
    assert_eq!(whole.sum, store.summary(home()).fingerprint);
    let of_home = (0..60)
        .map(|key| put(key, 0, b""))
        .filter(|one| partition_of(one) == home());
    for border in of_home.map(|one| one.digest) {
        let mut next = border;
        next.0[15] = next.0[15].wrapping_add(1);
        let low = store.range_sum(home(), first, border).unwrap();
        let high = store.range_sum(home(), next, last).unwrap();
        assert_eq!(low.count + high.count, whole.count);
        assert_eq!(low.sum.wrapping_add(high.sum), whole.sum);
    }
}

#[test]
fn a_page_sum_has_what_the_memtable_holds_behind_collected_records() {
    let mut keys: Vec<u64> = (0..200)
        .filter(|key| partition_of(&put(*key, 0, b"")) == home())
        .collect();
    keys.sort_by_key(|key| put(*key, 0, b"").digest);
    let [first, second, third, last] = keys[..4] else {
        panic!("too few keys: {keys:?}");
    };
    let (store, _) = open(&CrashFs::new()).unwrap();
    apply(&store, home(), batch(vec![tombstone(last, 1)])).unwrap();
    block_on(store.flush()).unwrap();
    let purge = ReplicaBatch {
        records: vec![
            tombstone(first, 2),
            tombstone(second, 3),
            put(third, 4, b"v"),
        ],
        purge: Some(ballot(10)),
        ..ReplicaBatch::default()
    };
    apply(&store, home(), purge).unwrap();
    let held = put(third, 4, b"v");
    let until = Some(KeyId::of(&held));
    let sum = store.page_sum(home(), None, until, 1).unwrap();
    assert_eq!(sum.count, 1);
    assert_eq!(
        store.page_sum(home(), None, until, 0),
        None,
        "more than there may be"
    );
}
