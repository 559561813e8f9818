//! The store compared with a plain map, under random operations, restarts and crashes.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use crate::common::{Model, block_on, fingerprint, get, open, partitions, put, tombstone};
use proptest::prelude::*;
use torc_record::Record;
use torc_ring::Partition;
use torc_store::Store;
use torc_store::testing::{CrashFs, Survives, WaitingStore};

#[derive(Debug, Clone)]
enum Op {
    Write(Record),
    Batch(Vec<Record>),
    Drop(u32),
    Flush,
    Compact,
    Meta(Vec<u8>),
    /// The process is stopped properly.
    Restart,
    /// The machine loses power.
    Crash,
    /// The process is killed.
    Kill,
}

fn any_record() -> impl Strategy<Value = Record> {
    let value = proptest::collection::vec(any::<u8>(), 0..120);
    (0_u64..30, 0_u64..50, proptest::option::weighted(0.8, value)).prop_map(|(key, time, value)| {
        match value {
            Some(value) => put(key, time, value),
            None => tombstone(key, time),
        }
    })
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => any_record().prop_map(Op::Write),
        4 => proptest::collection::vec(any_record(), 0..12).prop_map(Op::Batch),
        2 => (0..partitions().count()).prop_map(Op::Drop),
        3 => Just(Op::Flush),
        1 => Just(Op::Compact),
        1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Op::Meta),
        1 => Just(Op::Restart),
        1 => Just(Op::Crash),
        1 => Just(Op::Kill),
    ]
}

/// Runs one operation; all are acknowledged before a crash.
fn step(op: &Op, store: Store, fs: &mut CrashFs, model: &mut Model) -> Store {
    let survives = match op {
        Op::Write(record) => {
            block_on(store.write(record.clone())).unwrap();
            model.write(record.clone());
            return store;
        }
        Op::Batch(records) => {
            block_on(store.write_batch(records.clone())).unwrap();
            records.iter().cloned().for_each(|one| model.write(one));
            return store;
        }
        Op::Drop(partition) => {
            let partition = Partition(*partition);
            let before = store.summary(partition);
            let report = block_on(store.drop_partition(partition)).unwrap();
            assert_eq!(report.records, before.records);
            model.drop_partition(partition);
            return store;
        }
        Op::Flush => {
            block_on(store.flush()).unwrap();
            assert_eq!(store.stats().memtable_bytes, 0, "all of it is sealed");
            return store;
        }
        Op::Compact => {
            block_on(store.compact()).unwrap();
            let sliced = store.stats().sliced;
            assert!(sliced.most_slices <= 1, "{sliced:?}");
            return store;
        }
        Op::Meta(value) => {
            store.meta_set("node", value).unwrap();
            model.meta.insert("node".to_owned(), value.clone());
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
        Op::Kill => {
            fs.crash();
            Survives::Everything
        }
    };
    *fs = fs.image(survives);
    open(fs).unwrap().0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn the_store_is_a_map_that_outlives_restarts_and_crashes(
        ops in proptest::collection::vec(any_op(), 1..100),
    ) {
        let mut fs = CrashFs::new();
        let mut model = Model::default();
        let mut store = open(&fs).unwrap().0;
        for op in &ops {
            store = step(op, store, &mut fs, &mut model);
        }
        model.check(&store, "at the end");
        for key in 0..30 {
            let held = model.records.values().find(|(_, one)| one.key == put(key, 0, b"").key);
            prop_assert_eq!(get(&store, key).unwrap(), held.map(|(_, one)| one.clone()));
        }
    }

    #[test]
    fn the_order_of_writes_does_not_matter(
        mut records in proptest::collection::vec(any_record(), 1..60),
    ) {
        // Equal ballots are the same write, so they never have two values.
        records.sort_by_key(|one| (one.key.clone(), one.ballot));
        records.dedup_by_key(|one| (one.key.clone(), one.ballot));
        let one = open(&CrashFs::new()).unwrap().0;
        let other = open(&CrashFs::new()).unwrap().0;
        block_on(async {
            one.write_batch(records.clone()).await.unwrap();
            for record in records.iter().rev() {
                other.write(record.clone()).await.unwrap();
            }
        });
        prop_assert_eq!(fingerprint(&one), fingerprint(&other));
        for partition in partitions().iter() {
            prop_assert_eq!(one.summary(partition), other.summary(partition));
        }
    }
}
