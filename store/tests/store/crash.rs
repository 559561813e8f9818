//! A crash at every write and sync point of a workload.
//!
//! The workload appends, rotates, flushes, compacts, drops partitions and sets metadata, one
//! operation after another. It runs once for every call that it makes to the disk, crashing there,
//! and the disk then keeps nothing, all or some of the unsynced data. The content after the crash
//! must be exactly that before or after the operation in progress: every acknowledged write, and
//! nothing that was never issued. Then the store continues, crashes again, and must still have
//! everything.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "tests count small numbers"
)]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use crate::common::{
    Model, apply_many, block_on, fingerprint, open, partition_of, partitions, put, reserve_ceiling,
    tombstone,
};
use proptest::prelude::*;
use torc_record::{Epoch, HybridTime, Record, ReplicaBatch, ReplicaFacts};
use torc_ring::Partition;
use torc_store::testing::{Call, CrashFs, Survives, WaitingStore};
use torc_store::{LogTail, Store, StoreError};

/// Approximate number of calls that opening makes.
const RECOVERY_CALLS: u64 = 13;

#[derive(Debug, Clone)]
enum Step {
    Write(Record),
    Batch(Vec<Record>),
    Drop(Partition),
    Flush,
    Compact,
    Meta(&'static str, Vec<u8>),
    Apply(Vec<(Partition, ReplicaBatch)>),
    Ceiling(u64),
    Reopen,
}

impl Step {
    fn apply(&self, model: &mut Model) {
        match self {
            Self::Write(record) => model.write(record.clone()),
            Self::Batch(records) => records.iter().cloned().for_each(|one| model.write(one)),
            Self::Drop(partition) => model.drop_partition(*partition),
            Self::Meta(name, value) => {
                model.meta.insert((*name).to_owned(), value.clone());
            }
            Self::Apply(changes) => {
                for (partition, batch) in changes {
                    model.apply(*partition, batch);
                }
            }
            Self::Ceiling(time) => {
                model.last_seq += 1;
                model.ceiling = model.ceiling.max(HybridTime(*time));
            }
            Self::Flush | Self::Compact | Self::Reopen => {}
        }
    }

    fn run(&self, store: Store, fs: &CrashFs) -> Result<Store, StoreError> {
        block_on(async {
            match self {
                Self::Write(record) => store.write(record.clone()).await?,
                Self::Batch(records) => store.write_batch(records.clone()).await?,
                Self::Drop(partition) => {
                    store.drop_partition(*partition).await?;
                }
                Self::Flush => {
                    store.flush().await?;
                }
                Self::Compact => {
                    store.compact().await?;
                }
                Self::Meta(name, value) => store.meta_set(name, value)?,
                Self::Apply(changes) => {
                    let failed = apply_many(&store, changes.clone());
                    failed.into_iter().try_for_each(|(_, error)| Err(error))?;
                }
                Self::Ceiling(time) => reserve_ceiling(&store, HybridTime(*time))?,
                Self::Reopen => {
                    store.close().await?;
                    return Ok(open(fs)?.0);
                }
            }
            Ok(store)
        })
    }
}

fn workload() -> Vec<Step> {
    let moved = put(3, 1, b"x");
    let partition = partition_of(&moved);
    let mut steps = vec![Step::Meta("node", b"one".to_vec())];
    steps.extend((0..12).map(|key| Step::Write(put(key, 10 + key, vec![1; 300]))));
    steps.push(Step::Batch(
        (8..16).map(|key| put(key, 30, vec![2; 90])).collect(),
    ));
    steps.push(Step::Flush);
    steps.push(Step::Write(tombstone(1, 40)));
    // Copied away, dropped, and copied back with the same ballots.
    steps.push(Step::Write(put(3, 41, b"moves")));
    steps.push(Step::Drop(partition));
    steps.push(Step::Write(put(3, 41, b"moves")));
    steps.push(Step::Write(put(3, 20, b"too old")));
    steps.push(Step::Meta("node", b"two".to_vec()));
    steps.push(Step::Flush);
    steps.push(Step::Compact);
    steps.push(Step::Drop(partition));
    steps.push(Step::Write(put(3, 5, b"older than what was dropped")));
    steps.push(Step::Reopen);
    steps.extend((0..6).map(|key| Step::Write(put(key, 50 + key, vec![3; 900]))));
    steps.push(Step::Batch(vec![
        tombstone(2, 60),
        put(2, 59, b"late"),
        put(40, 60, b""),
    ]));
    steps.push(Step::Flush);
    steps.push(Step::Reopen);
    steps.push(Step::Compact);
    steps.push(Step::Write(put(41, 70, b"last")));
    steps
}

/// The operations of a replica of one partition: it adopts, accepts, collects, and is discarded.
fn replicated(home: Partition) -> Vec<Step> {
    let keys: Vec<u64> = (200..400)
        .filter(|key| partition_of(&put(*key, 0, b"")) == home)
        .take(6)
        .collect();
    let meta = |number| ReplicaFacts {
        epoch: Epoch(number),
        ceiling: HybridTime(number * 100),
        ..ReplicaFacts::default()
    };
    let batch = |wipe, records: Vec<Record>, purge: Option<u64>, epoch| {
        let purge = purge.map(|time| put(0, time, b"").ballot);
        let meta = Some(meta(epoch));
        let batch = ReplicaBatch {
            wipe,
            records,
            purge,
            meta,
        };
        Step::Apply(vec![(home, batch)])
    };
    // Changes of all partitions in one call: after a crash, all or none are there.
    let together = |time| {
        let of = |partition| {
            let keys = (0..400).map(|key| put(key, time, vec![6; 90]));
            let records = keys.filter(|one| partition_of(one) == partition).take(3);
            let batch = ReplicaBatch {
                records: records.collect(),
                meta: Some(meta(time)),
                ..ReplicaBatch::default()
            };
            (partition, batch)
        };
        let again = of(home);
        Step::Apply(partitions().iter().map(of).chain([again]).collect())
    };
    let values = keys.iter().map(|key| put(*key, 80, vec![5; 200]));
    let gone = keys[..3].iter().map(|key| tombstone(*key, 90));
    vec![
        Step::Ceiling(500),
        batch(true, values.collect(), None, 2),
        Step::Flush,
        batch(false, gone.collect(), None, 3),
        batch(false, vec![tombstone(keys[4], 91)], Some(90), 3),
        Step::Flush,
        batch(false, vec![], Some(95), 4),
        Step::Compact,
        together(95),
        Step::Ceiling(400),
        Step::Reopen,
        batch(false, vec![put(keys[0], 99, b"again")], None, 4),
        Step::Flush,
        Step::Compact,
        batch(true, vec![], None, 5),
        batch(
            false,
            vec![put(keys[1], 80, b"anew"), tombstone(keys[2], 81)],
            Some(81),
            6,
        ),
        together(96),
        Step::Flush,
    ]
}

/// The result of a run: the operations that certainly happened, and those that may have.
struct Outcome {
    before: Model,
    after: Model,
    crashed: bool,
}

fn run(fs: &CrashFs, steps: &[Step]) -> Outcome {
    let mut model = Model::default();
    let Ok((mut store, _)) = open(fs) else {
        return Outcome {
            before: model.clone(),
            after: model,
            crashed: true,
        };
    };
    for step in steps {
        let before = model.clone();
        step.apply(&mut model);
        match step.run(store, fs) {
            Ok(running) => store = running,
            Err(_) => {
                return Outcome {
                    before,
                    after: model,
                    crashed: true,
                };
            }
        }
    }
    // A crash during the removal of an old file fails no operation.
    let crashed = fs.crashed();
    if !crashed {
        model.check(&store, "without a crash");
    }
    drop(store);
    Outcome {
        before: model.clone(),
        after: model,
        crashed,
    }
}

/// Opens what a crash left and checks it; continues, crashes again, and checks that.
fn check_after_crash(fs: &CrashFs, outcome: &Outcome, place: &str) {
    let (mut store, recovery) = open(fs).unwrap_or_else(|error| panic!("{place}: {error}"));
    let tail = recovery.log_tail;
    assert!(
        !matches!(tail, LogTail::Damaged { .. }),
        "{place}: {tail:?}"
    );
    let mut model = outcome.after.clone();
    if model.difference(&store).is_some() {
        model = outcome.before.clone();
        model.check(&store, place);
    }
    for key in 90..94 {
        let step = Step::Write(put(key, 100, vec![4; 200]));
        step.apply(&mut model);
        store = step
            .run(store, fs)
            .unwrap_or_else(|error| panic!("{place}: {error}"));
    }
    let before = fingerprint(&store);
    fs.crash();
    drop(store);
    let place = format!("{place}, and once more later");
    let (store, _) =
        open(&fs.image(Survives::Nothing)).unwrap_or_else(|error| panic!("{place}: {error}"));
    model.check(&store, &place);
    assert_eq!(fingerprint(&store), before, "{place}");
}

fn any_record() -> impl Strategy<Value = Record> {
    let len = prop_oneof![0_usize..200, 800_usize..2000];
    (0_u64..12, 1_u64..60, proptest::option::weighted(0.8, len)).prop_map(|(key, time, len)| {
        len.map_or_else(|| tombstone(key, time), |len| put(key, time, vec![0; len]))
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => any_record().prop_map(Step::Write),
        3 => proptest::collection::vec(any_record(), 1..8).prop_map(Step::Batch),
        2 => (0_u32..8).prop_map(|partition| Step::Drop(Partition(partition))),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => any::<u8>().prop_map(|byte| Step::Meta("node", vec![byte; 9])),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn nor_does_a_crash_anywhere_in_any_workload(
        steps in proptest::collection::vec(any_step(), 1..25),
        share in 0.0..1.0,
        seed: u64,
    ) {
        let whole = CrashFs::new();
        run(&whole, &steps);
        let call = 1 + (whole.calls() as f64 * share) as u64;
        let fs = CrashFs::new();
        fs.crash_at(call);
        let outcome = run(&fs, &steps);
        for survives in [Survives::Nothing, Survives::Everything, Survives::Some(seed)] {
            let image = fs.image(survives);
            let place = format!("crash at call {call}, {survives:?} survives");
            if outcome.crashed {
                check_after_crash(&image, &outcome, &place);
            }
        }
    }
}

#[test]
fn a_crash_at_any_call_loses_nothing_acknowledged_and_invents_nothing() {
    crash_everywhere(&workload(), 150);
}

#[test]
fn nor_does_it_tear_a_batch_of_a_replica_or_bring_back_what_was_collected() {
    let home = partition_of(&put(3, 1, b""));
    crash_everywhere(&replicated(home), 80);
}

/// The store stops, and another process finds data in the cache that the disk does not have.
#[test]
fn nor_does_a_sync_that_fails_anywhere_followed_by_a_crash() {
    let home = partition_of(&put(3, 1, b""));
    for steps in [workload(), replicated(home)] {
        for after in 0.. {
            let fs = CrashFs::new();
            let disk = fs.clone();
            fs.before(Call::Sync, "", after, move || {
                disk.fail_next(Call::Sync, "", std::io::ErrorKind::Other);
            });
            let outcome = run(&fs, &steps);
            if !fs.is_used_up() {
                assert!(after > 40, "a workload of {after} syncs is too short");
                break;
            }
            let place = format!("sync {after} failed");
            check_after_crash(&fs.image(Survives::Everything), &outcome, &place);
        }
    }
}

fn crash_everywhere(steps: &[Step], least_calls: u64) {
    let fs = CrashFs::new();
    let whole = run(&fs, steps);
    assert!(!whole.crashed);
    let calls = fs.calls();
    assert!(
        calls > least_calls,
        "a workload of {calls} calls is too short"
    );
    for call in 1..=calls {
        let fs = CrashFs::new();
        fs.crash_at(call);
        let outcome = run(&fs, steps);
        assert!(fs.crashed());
        for survives in [
            Survives::Nothing,
            Survives::Everything,
            Survives::Some(call),
            Survives::Some(!call),
        ] {
            let place = format!("crash at call {call}, {survives:?} survives");
            check_after_crash(&fs.image(survives), &outcome, &place);
            // Also with a crash during the recovery from the crash.
            let recovering = fs.image(survives);
            recovering.crash_at(1 + call % RECOVERY_CALLS);
            drop(open(&recovering));
            for survives in [Survives::Everything, Survives::Some(call)] {
                let place = format!("{place}, then a crash on opening, {survives:?} survives");
                check_after_crash(&recovering.image(survives), &outcome, &place);
            }
        }
    }
}
