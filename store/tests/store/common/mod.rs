//! Helpers shared by the store's tests: records by number, and a model of the store.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use torc_record::{
    Ballot, Digest, DigestKey, Epoch, HybridTime, Key, KeyId, Locator, NamespaceId, NodeSlot,
    PageSum, Record, ReplicaBatch, ReplicaFacts, State,
};
use torc_ring::{Partition, Partitions, Token};
use torc_store::testing::{CrashFs, WaitingStore};
use torc_store::{
    PartitionSummary, RangeSum, Recovery, ScanLimits, Seq, Store, StoreError, StoreOptions,
    Unreadable,
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
    options.flush_log_bytes = u64::MAX;
    options.auto_compact = false;
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
        origin: None,
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
    store.get(stranger.locator())
}

/// Scrubs a partition; returns the lost places.
pub(crate) fn lost(store: &Store, partition: Partition) -> Vec<Unreadable> {
    let report = store.scrub(partition, Some(&CLUSTER), u64::MAX).unwrap();
    report.unreadable
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

/// Hands over changes and waits until they are durable.
pub(crate) fn apply(
    store: &Store,
    partition: Partition,
    batch: ReplicaBatch,
) -> Result<(), StoreError> {
    let (told, outcome) = std::sync::mpsc::channel();
    store.apply(partition, batch, move |done| told.send(done).unwrap())?;
    outcome.recv().unwrap()
}

/// Hands over changes of several partitions and waits for the report.
pub(crate) fn apply_many(
    store: &Store,
    changes: Vec<(Partition, ReplicaBatch)>,
) -> Vec<(usize, StoreError)> {
    let (told, outcome) = std::sync::mpsc::channel();
    store.apply_many(changes, move |applied| told.send(applied.failed).unwrap());
    let failed = outcome.recv().unwrap();
    assert!(outcome.recv().is_err(), "told once");
    failed
}

pub(crate) fn reserve_ceiling(store: &Store, time: HybridTime) -> Result<(), StoreError> {
    let (told, outcome) = std::sync::mpsc::channel();
    store.reserve_ceiling(time, move |done| told.send(done).unwrap())?;
    outcome.recv().unwrap()
}

/// The expected content of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) records: BTreeMap<Locator, (Seq, Record)>,
    pub(crate) last_seq: u64,
    pub(crate) meta: BTreeMap<String, Vec<u8>>,
    /// Facts and watermark.
    pub(crate) facts: BTreeMap<Partition, (ReplicaFacts, Ballot)>,
    pub(crate) ceiling: HybridTime,
}

impl Model {
    pub(crate) fn write(&mut self, record: Record) {
        self.last_seq += 1;
        let seq = Seq(self.last_seq);
        let at = Locator::of(&record);
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
        self.facts.entry(partition).or_default().1 = Ballot::default();
    }

    /// Applies changes of a partition. Collected records are gone for good: nothing at or below a
    /// watermark is ever written again, see [`Model::is_writable`].
    pub(crate) fn apply(&mut self, partition: Partition, batch: &ReplicaBatch) {
        if batch.wipe {
            self.drop_partition(partition);
        }
        for record in &batch.records {
            self.write(record.clone());
        }
        if let Some(watermark) = batch.purge {
            self.last_seq += 1;
            let held = &mut self.facts.entry(partition).or_default().1;
            *held = watermark.max(*held);
            let watermark = *held;
            self.records.retain(|_, (_, record)| {
                let is_collected = record.state.is_collected(record.ballot, watermark);
                partition_of(record) != partition || !is_collected
            });
        }
        if let Some(meta) = batch.meta {
            self.last_seq += 1;
            self.facts.entry(partition).or_default().0 = meta;
        }
    }

    pub(crate) fn watermark(&self, partition: Partition) -> Ballot {
        self.facts
            .get(&partition)
            .map_or(Ballot::default(), |facts| facts.1)
    }

    pub(crate) fn is_writable(&self, record: &Record) -> bool {
        record.ballot > self.watermark(partition_of(record))
    }

    fn facts_differ(&self, store: &Store) -> Option<String> {
        let differs = partitions().iter().find_map(|partition| {
            let expected = self.facts.get(&partition).copied().unwrap_or_default();
            let found = (store.partition_meta(partition), store.watermark(partition));
            (found != expected)
                .then(|| format!("facts of {partition}: {found:?}, not {expected:?}"))
        });
        let ceiling = store.node_ceiling();
        differs.or_else(|| (ceiling != self.ceiling).then(|| format!("ceiling {ceiling:?}")))
    }

    /// Compares the sums of the whole partition and of the part up to the middle record.
    fn sums_differ(store: &Store, partition: Partition, all: &[&Record]) -> Option<String> {
        let middle = all
            .get(all.len() / 2)
            .map_or(Digest([9; 16]), |one| one.digest);
        [Digest([255; 16]), middle]
            .into_iter()
            .find_map(|high| {
                let here = all.iter().filter(|one| one.digest <= high);
                let mut expected = RangeSum::default();
                for record in here {
                    expected.count += 1;
                    expected.sum = expected.sum.wrapping_add(fingerprint_of(record));
                }
                let found = store.range_sum(partition, Digest([0; 16]), high).unwrap();
                (found != expected)
                    .then(|| format!("sum of {partition}: {found:?}, not {expected:?}"))
            })
            .or_else(|| Self::page_sums_differ(store, partition, all))
            .or_else(|| Self::filtered_pages_differ(store, partition, all))
    }

    /// Compares pages of the values with even lengths, and the sums of all records of these pages.
    fn filtered_pages_differ(
        store: &Store,
        partition: Partition,
        all: &[&Record],
    ) -> Option<String> {
        let is_kept = |value: &[u8]| value.len().is_multiple_of(2);
        let limits = ScanLimits {
            records: 3,
            bytes: usize::MAX,
        };
        let (mut kept, mut left_out, mut after) = (Vec::new(), BTreeSet::new(), None);
        loop {
            let mut keep = |value: &[u8]| is_kept(value);
            let page = store.scan_filtered(partition, after.as_ref(), limits, &mut keep);
            // Two keys have the same digest.
            let page = page.unwrap()?;
            let next = page.page.next.as_ref();
            let until = next.map(Locator::id);
            let sum = store.page_sum(partition, after.as_ref(), until, usize::MAX);
            let told = (page.sum.count, page.sum.sum);
            if sum.is_some_and(|sum| (sum.count, sum.sum) != told) {
                return Some(format!("filtered {partition}: {told:?}, not {sum:?}"));
            }
            kept.extend(page.page.records);
            left_out.extend(page.left_out);
            after = page.page.next;
            if after.is_none() {
                break;
            }
        }
        let (expected, others): (Vec<&Record>, Vec<&Record>) = all
            .iter()
            .partition(|one| matches!(&one.state, State::Value { value, .. } if is_kept(value)));
        let epochs: BTreeSet<_> = others.iter().map(|one| one.ballot.epoch).collect();
        let fits = kept.iter().eq(expected.iter().copied()) && left_out == epochs;
        (!fits).then(|| format!("filtered {partition}: {kept:?}, not {expected:?}"))
    }

    /// Compares the sums of all records, of those up to the middle one, and of those after it.
    fn page_sums_differ(store: &Store, partition: Partition, all: &[&Record]) -> Option<String> {
        let middle = all.get(all.len() / 2).map(|one| Locator::of(one));
        let until = middle.as_ref().map(Locator::id);
        let pages = [(None, None), (None, until), (middle.as_ref(), None)];
        pages.into_iter().find_map(|(after, until)| {
            let within = |one: &&&Record| {
                after.is_none_or(|after| Locator::of(one) > *after)
                    && until.is_none_or(|until| KeyId::of(one) <= until)
            };
            let mut expected = PageSum::default();
            let here: Vec<_> = all.iter().filter(within).collect();
            let has_twins = !here
                .iter()
                .all(|one| expected.add(KeyId::of(one), one.ballot));
            let sums = |most: usize| {
                let found = store.page_sum(partition, after, until, most);
                found.map(|found| (found.count, found.sum))
            };
            let found = (sums(here.len()), here.len().checked_sub(1).and_then(sums));
            let expected = (Some((expected.count, expected.sum)), None);
            // The kept sum does not distinguish keys.
            let is_kept = after.is_none() && until.is_none();
            let fits = found == expected || (has_twins && (is_kept || found.0.is_none()));
            (!fits).then(|| format!("page sum of {partition}: {found:?}, not {expected:?}"))
        })
    }

    /// Reads everything back in every way, and compares.
    ///
    /// # Panics
    /// If the store has any other content.
    pub(crate) fn check(&self, store: &Store, place: &str) {
        if let Some(difference) = self.difference(store) {
            panic!("{place}: {difference}");
        }
    }

    /// How the store differs from this model, if it does.
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
            let found = store.get(record.locator());
            expect("get".to_owned(), &found.unwrap().as_ref(), &Some(record))
        });
        let strangers = (0..8)
            .map(|key| tombstone(1_000_000 + key, 0))
            .find_map(|one| {
                let found = store.get(one.locator());
                expect(
                    "get of a stranger".to_owned(),
                    &found.unwrap(),
                    &None::<&Record>,
                )
            });
        let scans = partitions().iter().find_map(|partition| {
            let (all, tail, summary) = self.partition(partition);
            let sums = Self::sums_differ(store, partition, &all);
            sums.or_else(|| {
                expect(
                    format!("scan of {partition}"),
                    &scan_all(store, partition, Seq(0)),
                    &all,
                )
            })
            .or_else(|| {
                // Slices flushed since then may come as a whole, but nothing else.
                let watermark = self.watermark(partition);
                let mut found = scan_all(store, partition, self.middle());
                found.retain(|one| !one.state.is_collected(one.ballot, watermark));
                let is_known = |one: &&Record| tail.contains(one) || all.contains(one);
                let known: Vec<_> = found.iter().filter(is_known).collect();
                let missing = tail.iter().find(|one| !found.contains(one));
                expect(format!("tail of {partition}"), &found, &known)
                    .or_else(|| expect(format!("tail of {partition}"), &missing, &None::<&Record>))
            })
            .or_else(|| {
                let reads: Vec<_> = all.iter().map(|one| one.locator()).collect();
                let found: Vec<_> = store
                    .get_batch(&reads)
                    .into_iter()
                    .map(Result::unwrap)
                    .collect();
                let expected: Vec<_> = all.iter().map(|one| Some(*one)).collect();
                expect(format!("batch of {partition}"), &found, &expected)
            })
            .or_else(|| {
                expect(
                    format!("summary of {partition}"),
                    &store.summary(partition),
                    &summary,
                )
            })
        });
        let facts = self.facts_differ(store);
        numbers.or(facts).or(meta).or(gets).or(strangers).or(scans)
    }

    fn middle(&self) -> Seq {
        Seq(self.last_seq / 2)
    }

    fn partition(&self, partition: Partition) -> (Vec<&Record>, Vec<&Record>, PartitionSummary) {
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
            fingerprint: all
                .iter()
                .fold(0, |sum, one| sum.wrapping_add(fingerprint_of(one))),
        };
        (all, tail, summary)
    }
}

/// A record's contribution to a fingerprint, implemented a second time from FORMAT.md.
pub(crate) fn fingerprint_of(record: &Record) -> u128 {
    let mix = |word: u64| {
        let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    let half = |digest: &[u8]| u64::from_be_bytes(*digest.first_chunk().unwrap());
    let words = [
        half(&record.digest.0[..8]),
        half(&record.digest.0[8..]),
        record.ballot.epoch.0,
        record.ballot.time.0,
        u64::from(record.namespace.0) << 16 | u64::from(record.ballot.slot.0),
    ];
    let [high, low] = [0x9e37_79b9_7f4a_7c15_u64, 0xd1b5_4a32_d192_ed03].map(|seed| {
        let mut state = seed;
        for word in words {
            state = mix(state ^ mix(word.wrapping_add(seed)));
        }
        u128::from(state)
    });
    high << 64 | low
}

/// All records of a partition after a number, read in small pages.
pub(crate) fn scan_all(store: &Store, partition: Partition, since: Seq) -> Vec<Record> {
    let limits = ScanLimits {
        records: 3,
        bytes: 300,
    };
    let mut found = Vec::new();
    let mut after: Option<Locator> = None;
    loop {
        let page = match since {
            Seq(0) => store.scan(partition, after.as_ref(), limits).unwrap(),
            since => store
                .scan_since(partition, since, after.as_ref(), limits)
                .unwrap(),
        };
        let is_shared = matches!(&page.records[..], [.., a, b] if a.digest == b.digest);
        assert!(is_shared || page.records.len() <= limits.records);
        assert_eq!(page.done, page.next.is_none());
        found.extend(page.records);
        after = page.next;
        if page.done {
            return found;
        }
    }
}

/// The sum of all fingerprints, for comparing two stores.
pub(crate) fn fingerprint(store: &Store) -> u128 {
    partitions().iter().fold(0, |sum, partition| {
        sum.wrapping_add(store.summary(partition).fingerprint)
    })
}

/// Compares the store's summary of each partition with the result of a scan.
///
/// # Panics
/// If they differ.
pub(crate) fn check_summaries(store: &Store, place: &str) {
    for partition in partitions().iter() {
        let mut counted = PartitionSummary::default();
        for record in scan_all(store, partition, Seq(0)) {
            counted.records += 1;
            counted.tombstones += u64::from(record.state == State::Tombstone);
            counted.payload_bytes += record.payload_len() as u64;
            counted.fingerprint = counted.fingerprint.wrapping_add(fingerprint_of(&record));
        }
        assert_eq!(store.summary(partition), counted, "{place}: {partition}");
    }
}

/// Tests that open a store for every flipped bit flip only one in this many, which is coprime to 8,
/// so that all bit positions occur; `TORC_FLIP_STEP=1` flips all.
pub(crate) fn flip_step() -> usize {
    let step = std::env::var("TORC_FLIP_STEP");
    step.map_or(5, |step| step.parse().unwrap())
}
