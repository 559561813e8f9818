//! What the tests of the store share: records by number, and a model of the store.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use torc_record::{
    Ballot, Digest, DigestKey, Epoch, HybridTime, Key, NamespaceId, NodeSlot, Record, State,
};
use torc_ring::{Partition, Partitions, Token};
use torc_store::testing::CrashFs;
use torc_store::{
    Cursor, PartitionSummary, Recovery, ScanLimits, Seq, Store, StoreError, StoreOptions,
};

pub(crate) const DIR: &str = "/data";
pub(crate) const CLUSTER: DigestKey = DigestKey([7; 32]);

pub(crate) fn partitions() -> Partitions {
    Partitions::new(8).unwrap()
}

/// Small segments, so that a short workload rotates.
pub(crate) fn options(dir: impl AsRef<Path>) -> StoreOptions {
    let mut options = StoreOptions::new(dir.as_ref());
    options.partitions = partitions();
    options.log_segment_bytes = 4096;
    options.checkpoint_log_bytes = u64::MAX;
    options
}

pub(crate) fn open(fs: &CrashFs) -> Result<(Store, Recovery), StoreError> {
    Store::open_with(options(DIR), Arc::new(fs.clone()))
}

pub(crate) fn record(key: u64, time: u64, state: State) -> Record {
    let bytes = format!("key-{key}").into_bytes();
    Record {
        namespace: NamespaceId::DEFAULT,
        digest: Digest::of(&CLUSTER, NamespaceId::DEFAULT, &bytes),
        key: Key::new(bytes).unwrap(),
        ballot: Ballot {
            epoch: Epoch(1),
            time: HybridTime(time),
            slot: NodeSlot(0),
        },
        state,
    }
}

pub(crate) fn put(key: u64, time: u64, value: impl Into<Vec<u8>>) -> Record {
    let state = State::Value {
        value: value.into().into(),
        expires_at_ms: time.is_multiple_of(3).then_some(time * 1000),
    };
    record(key, time, state)
}

pub(crate) fn tombstone(key: u64, time: u64) -> Record {
    record(key, time, State::Tombstone)
}

pub(crate) fn partition_of(record: &Record) -> Partition {
    partitions().of(Token::of(&record.digest))
}

pub(crate) fn get(store: &Store, key: u64) -> Result<Option<Record>, StoreError> {
    let stranger = tombstone(key, 0);
    store.get(
        stranger.namespace,
        &stranger.digest,
        stranger.key.as_bytes(),
    )
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

/// What a store should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) records: BTreeMap<Cursor, (Seq, Record)>,
    pub(crate) last_seq: u64,
    pub(crate) meta: BTreeMap<String, Vec<u8>>,
}

impl Model {
    pub(crate) fn write(&mut self, record: Record) {
        self.last_seq += 1;
        let seq = Seq(self.last_seq);
        let at = Cursor::of(&record);
        match self.records.get(&at) {
            Some((_, held)) if !record.supersedes(held) => {}
            _ => {
                self.records.insert(at, (seq, record));
            }
        }
    }

    pub(crate) fn drop_partition(&mut self, partition: Partition) {
        self.last_seq += 1;
        self.records
            .retain(|_, (_, record)| partition_of(record) != partition);
    }

    /// Reads everything back in every way there is and compares.
    ///
    /// # Panics
    /// If the store holds anything else.
    pub(crate) fn check(&self, store: &Store, place: &str) {
        if let Some(difference) = self.difference(store) {
            panic!("{place}: {difference}");
        }
    }

    /// How the store differs from this, if it does.
    pub(crate) fn difference(&self, store: &Store) -> Option<String> {
        let expect = |what: String, found: &dyn Debug, expected: &dyn Debug| {
            let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
            (found != expected).then(|| format!("{what}: found {found}, expected {expected}"))
        };
        let numbers = expect(
            "last_seq".to_owned(),
            &store.last_seq(),
            &Seq(self.last_seq),
        );
        let meta = self.meta.iter().find_map(|(name, value)| {
            let found = store.meta_get(name).unwrap();
            expect(format!("meta {name}"), &found.as_ref(), &Some(value))
        });
        let gets = self.records.values().find_map(|(_, record)| {
            let found = store.get(record.namespace, &record.digest, record.key.as_bytes());
            expect("get".to_owned(), &found.unwrap().as_ref(), &Some(record))
        });
        let scans = partitions().iter().find_map(|partition| {
            let (all, tail, summary) = self.partition(store, partition);
            expect(
                format!("scan of {partition}"),
                &scan_all(store, partition, Seq(0)),
                &all,
            )
            .or_else(|| {
                let found = scan_all(store, partition, self.middle());
                expect(format!("tail of {partition}"), &found, &tail)
            })
            .or_else(|| {
                expect(
                    format!("summary of {partition}"),
                    &store.summary(partition),
                    &summary,
                )
            })
        });
        numbers.or(meta).or(gets).or(scans)
    }

    fn middle(&self) -> Seq {
        Seq(self.last_seq / 2)
    }

    fn partition(
        &self,
        store: &Store,
        partition: Partition,
    ) -> (Vec<&Record>, Vec<&Record>, PartitionSummary) {
        let here = self.records.values();
        let here: Vec<_> = here
            .filter(|(_, record)| partition_of(record) == partition)
            .collect();
        let tail = here.iter().filter(|(seq, _)| *seq > self.middle());
        let tail = tail.map(|(_, record)| record).collect();
        let all: Vec<_> = here.iter().map(|(_, record)| record).collect();
        let tombstones = all.iter().filter(|one| one.state == State::Tombstone);
        let summary = PartitionSummary {
            records: all.len() as u64,
            tombstones: tombstones.count() as u64,
            payload_bytes: all.iter().map(|one| one.payload_len() as u64).sum(),
            fingerprint: store.summary(partition).fingerprint,
        };
        (all, tail, summary)
    }
}

/// All records of a partition after a number, by small pages.
pub(crate) fn scan_all(store: &Store, partition: Partition, since: Seq) -> Vec<Record> {
    let limits = ScanLimits {
        records: 3,
        bytes: 300,
    };
    let mut found = Vec::new();
    let mut after: Option<Cursor> = None;
    loop {
        let page = store
            .scan_since(partition, since, after.as_ref(), limits)
            .unwrap();
        assert!(page.records.len() <= limits.records);
        assert_eq!(page.done, page.next.is_none());
        found.extend(page.records);
        after = page.next;
        if page.done {
            return found;
        }
    }
}

/// The sum of all fingerprints: what two stores are compared by.
pub(crate) fn fingerprint(store: &Store) -> u128 {
    partitions().iter().fold(0, |sum, partition| {
        sum.wrapping_add(store.summary(partition).fingerprint)
    })
}
