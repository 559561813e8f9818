//! Copies a partition during writes: pages, then tails, without missing anything.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "tests count small numbers"
)]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use crate::common::{block_on, open, partition_of, put, tombstone};
use proptest::prelude::*;
use torc_record::{Locator, Record};
use torc_ring::Partition;
use torc_store::testing::{CrashFs, WaitingStore};
use torc_store::{ScanLimits, Seq, Store};

const HOME: Partition = Partition(5);

/// Records of a single partition, so that there are many pages.
fn any_record() -> impl Strategy<Value = Record> {
    let key = (0_u64..400).prop_filter("of this partition", |key| {
        partition_of(&tombstone(*key, 0)) == HOME
    });
    (key, 1_u64..60, any::<bool>()).prop_map(|(key, time, is_value)| {
        if is_value {
            put(key, time, format!("{key} at {time}"))
        } else {
            tombstone(key, time)
        }
    })
}

/// Equal ballots are the same write: values depend on key and time, kinds on the first such record.
fn distinct(records: Vec<Record>) -> Vec<Record> {
    let mut seen = std::collections::BTreeSet::new();
    let is_new = |one: &Record| seen.insert((one.key.clone(), one.ballot));
    records.into_iter().filter(is_new).collect()
}

/// Copies records with numbers above `since`; writes continue between the pages.
fn copy(from: &Store, to: &Store, since: Seq, writes: &mut impl Iterator<Item = Record>) {
    let limits = ScanLimits {
        records: 4,
        bytes: 1000,
    };
    let mut after: Option<Locator> = None;
    loop {
        let page = from
            .scan_since(HOME, since, after.as_ref(), limits)
            .unwrap();
        block_on(async {
            to.write_batch(page.records).await.unwrap();
            for record in writes.take(3) {
                from.write(record).await.unwrap();
            }
        });
        if page.done {
            return;
        }
        after = page.next;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn pages_and_tails_copy_everything_while_writes_go_on(
        records in proptest::collection::vec(any_record(), 1..150),
        split in 0.0..1.0,
    ) {
        let records = distinct(records);
        let split = (records.len() as f64 * split) as usize;
        let from = open(&CrashFs::new()).unwrap().0;
        let to = open(&CrashFs::new()).unwrap().0;
        block_on(from.write_batch(records[..split].to_vec())).unwrap();

        let mut writes = records[split..].iter().cloned();
        let mut copied_to = Seq(0);
        loop {
            let next = from.last_seq();
            copy(&from, &to, copied_to, &mut writes);
            copied_to = next;
            if next == from.last_seq() {
                break;
            }
        }
        prop_assert_eq!(writes.next(), None, "all writes happened meanwhile");
        prop_assert_eq!(from.summary(HOME), to.summary(HOME));
    }
}
