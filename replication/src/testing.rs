//! A disk in memory, and a check that another one behaves like it.
//!
//! Compiled for tests, and with the feature `testing`.

use std::collections::BTreeMap;

use torc_record::{
    Ballot, Digest, DigestKey, Epoch, HybridTime, Key, NamespaceId, NodeSlot, PageSum, Record,
    ReplicaBatch, ReplicaFacts, State, StoredVersion, StoredVersions,
};

use crate::compare::{self, Range};
use crate::{Entry, KeyId, Locator, LogPosition, Lookup, Recovered, Scanned, Storage};

/// The latest times of the ballots that were stored, by epoch.
#[derive(Debug, Default, Clone)]
pub struct Latest(BTreeMap<Epoch, HybridTime>);

impl Latest {
    /// Notes a ballot.
    pub fn note(&mut self, ballot: Ballot) {
        let time = self.0.entry(ballot.epoch).or_default();
        *time = ballot.time.max(*time);
    }

    /// The latest time in an epoch.
    #[must_use]
    pub fn in_epoch(&self, epoch: Epoch) -> HybridTime {
        self.0.get(&epoch).copied().unwrap_or_default()
    }

    /// The latest time in any epoch.
    #[must_use]
    pub fn of_all(&self) -> HybridTime {
        self.0.values().max().copied().unwrap_or_default()
    }
}

/// What the contract of [`ReplicaBatch`] and [`Storage`] says, in the simplest form: every batch is
/// durable at once.
#[derive(Debug, Default, Clone)]
pub struct Model {
    /// The entries, with the log position of each.
    entries: BTreeMap<(KeyId, Key), (LogPosition, Entry)>,
    log: u64,
    /// The replica's facts.
    pub meta: ReplicaFacts,
    /// The versions that it tells after a start.
    pub stored: StoredVersions,
    /// Of all ballots ever stored.
    pub latest: Latest,
    /// Whether no key is at hand.
    pub is_far: bool,
}

fn name(at: &Locator) -> (KeyId, Key) {
    (at.id(), at.key.clone())
}

impl Model {
    /// Applies a batch.
    pub fn apply(&mut self, batch: ReplicaBatch) {
        self.log += 1;
        if batch.wipe {
            self.entries.clear();
        }
        for record in batch.records {
            self.stored.note(StoredVersion::from(&record));
            self.insert(record);
        }
        if let Some(collected) = batch.purge {
            self.entries.retain(|_, (_, entry)| match entry {
                Entry::Found(it) => !it.state.is_collected(it.ballot, collected),
                Entry::Unreadable(_) => true,
            });
        }
        self.meta = batch.meta.unwrap_or(self.meta);
    }

    fn insert(&mut self, record: Record) {
        self.latest.note(record.ballot);
        let name = name(&Locator::of(&record));
        let entry = (LogPosition(self.log), Entry::Found(record));
        self.entries.insert(name, entry);
    }

    /// Makes it forget which versions were stored, as a store does when it has flushed them.
    pub fn flush(&mut self) {
        self.stored = StoredVersions::after(self.latest.of_all());
    }

    /// What a replica that starts learns from it.
    #[must_use]
    pub fn recovered(&self) -> Recovered<'_> {
        Recovered {
            facts: self.meta,
            highest: self.latest.in_epoch(self.meta.epoch),
            stored: &self.stored,
        }
    }

    /// All entries in ring order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().map(|(_, entry)| entry)
    }

    /// Makes the key's record fail its checksum from now on.
    pub fn rot(&mut self, at: &Locator) {
        let entry = (LogPosition(self.log), Entry::Unreadable(at.clone()));
        self.entries.insert(name(at), entry);
    }

    /// All records, as if they were in slices, and the log position after them.
    #[must_use]
    pub fn slices(&self) -> (Vec<Record>, LogPosition) {
        let records = self.entries().filter_map(|entry| match entry {
            Entry::Found(record) => Some(record.clone()),
            Entry::Unreadable(_) => None,
        });
        (records.collect(), LogPosition(self.log))
    }

    /// Puts slices of another disk in force.
    pub fn ingest(&mut self, slices: Vec<Record>) {
        self.log += 1;
        for record in slices {
            let held = self.entries.get(&name(&Locator::of(&record)));
            if !matches!(held, Some((_, Entry::Found(held))) if !record.supersedes(held)) {
                self.insert(record);
            }
        }
        self.flush();
    }
}

impl Storage for Model {
    fn get(&self, at: &Locator) -> Lookup {
        match self.entries.get(&name(at)) {
            None => Lookup::Absent,
            Some((_, Entry::Found(record))) => Lookup::Found(record.clone()),
            Some((_, Entry::Unreadable(_))) => Lookup::Unreadable,
        }
    }

    fn is_at_hand(&self, _at: &Locator) -> bool {
        !self.is_far
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        self.tail(LogPosition(0), after, limit)
    }

    fn tail(&self, since: LogPosition, after: Option<KeyId>, limit: usize) -> Scanned {
        let stored = self.entries.values().filter(|(at, _)| *at > since);
        let later = stored.filter(|(_, entry)| after.is_none_or(|after| entry.id() > after));
        let entries = later.take(limit).map(|(_, entry)| entry.clone());
        Scanned::of(entries.collect(), limit)
    }
}

/// A disk under [`check`].
pub trait TestDisk {
    /// The disk as replicas read it.
    fn storage(&self) -> impl Storage;
    /// Applies a batch; returns once it is durable.
    fn apply(&mut self, batch: ReplicaBatch);
    /// The replica's facts.
    fn facts(&self) -> ReplicaFacts;
    /// At least the time of every ballot of an epoch that was stored.
    fn highest_in(&self, epoch: Epoch) -> HybridTime;
    /// The position after all that is stored.
    fn position(&self) -> LogPosition;
    /// What it knows after a start of the versions that were stored, if it was just started.
    fn stored(&self) -> StoredVersions;
    /// Upkeep that changes nothing that replicas see, such as a flush or a restart.
    fn upkeep(&mut self, round: u64) {
        let _ = round;
    }
}

const KEYS: u64 = 24;

fn at(number: u64) -> Locator {
    let name = format!("key-{number}");
    let namespace = NamespaceId::DEFAULT;
    Locator {
        namespace,
        digest: Digest::of(&DigestKey([7; 32]), namespace, name.as_bytes()),
        key: Key::new(name).unwrap_or_else(|error| panic!("{error}")),
    }
}

const fn ballot(time: u64) -> Ballot {
    Ballot {
        epoch: Epoch(1),
        time: HybridTime::from_unix_ms(time),
        slot: NodeSlot(1),
    }
}

/// `SplitMix64`: the numbers of a seed are the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn record(&mut self, time: u64) -> Record {
        let Locator {
            namespace,
            digest,
            key,
        } = at(self.below(KEYS));
        let state = match self.below(3) {
            0 => State::Tombstone,
            kind => State::Value {
                value: vec![7; 40].into(),
                expires_at_ms: (kind == 1).then(|| time + self.below(20)),
            },
        };
        let ballot = ballot(time);
        let origin = None;
        Record {
            namespace,
            digest,
            key,
            ballot,
            origin,
            state,
        }
    }

    /// A batch within the contract; `time` is that of the last ballot.
    fn batch(&mut self, time: &mut u64) -> ReplicaBatch {
        let wipe = self.below(16) == 0;
        if wipe {
            // Ballots below an earlier watermark: a wipe forgets it.
            *time = 0;
        }
        let records = (0..self.below(4)).map(|_| {
            *time += 1;
            self.record(*time)
        });
        let records = records.collect();
        let purge = (self.below(4) == 0).then(|| ballot(self.below(*time + 1)));
        let meta = (self.below(2) == 0).then(|| ReplicaFacts {
            epoch: Epoch(1),
            since: Epoch(1),
            ceiling: HybridTime::from_unix_ms(*time),
            collected: purge.unwrap_or_default(),
            collecting: ballot(self.below(*time + 1)),
        });
        ReplicaBatch {
            wipe,
            records,
            purge,
            meta,
        }
    }
}

/// Applies random batches to a disk and to the [`Model`], with upkeep in between, and compares what
/// replicas read.
///
/// # Panics
/// If they differ.
pub fn check(disk: &mut impl TestDisk, seed: u64) {
    let mut random = Random(seed);
    let mut model = Model::default();
    let mut time = 0;
    let mut marks = vec![(LogPosition(0), LogPosition(0))];
    let mut ever_stored = Vec::new();
    for round in 0..120 {
        let batch = random.batch(&mut time);
        if batch.wipe {
            // A tail is of one life of the partition.
            marks.truncate(1);
        }
        ever_stored.extend(batch.records.iter().map(StoredVersion::from));
        model.apply(batch.clone());
        disk.apply(batch);
        if random.below(4) == 0 {
            disk.upkeep(random.below(3));
        }
        if random.below(4) == 0 {
            marks.push((LogPosition(model.log), disk.position()));
        }
        let context = format!("seed {seed}, round {round}");
        assert_eq!(disk.facts(), model.meta, "{context}");
        check_stored(&disk.stored(), &ever_stored, &context);
        for epoch in model.latest.0.keys().copied() {
            let latest = model.latest.in_epoch(epoch);
            assert!(disk.highest_in(epoch) >= latest, "{context}, {epoch}");
        }
        let limit = 1 + usize::try_from(random.below(8)).unwrap_or_default();
        compare_all(&disk.storage(), &model, limit, &context);
        let mark = marks[usize::try_from(random.below(marks.len() as u64)).unwrap_or_default()];
        compare_tail(&disk.storage(), &model, mark, &context);
    }
}

/// A disk tells nothing that is not so, and leaves out nothing that it does not say it forgot.
fn check_stored(known: &StoredVersions, ever_stored: &[StoredVersion], context: &str) {
    for stored in ever_stored {
        let is_told = stored.version.time <= known.forgotten || known.last.contains(stored);
        assert!(
            is_told,
            "{context}: {stored:?} is neither told nor forgotten"
        );
    }
    for told in &known.last {
        assert!(
            ever_stored.contains(told),
            "{context}: {told:?} was never stored"
        );
    }
}

fn all(page: impl Fn(Option<KeyId>) -> Scanned) -> Vec<Entry> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let scanned = page(after);
        after = scanned.next();
        found.extend(scanned.entries);
        if after.is_none() {
            return found;
        }
    }
}

/// What replicas compare. The last key of a page that was added up is not kept with a sum that was not
/// read.
fn said(sum: Option<PageSum>) -> Option<(u64, u128)> {
    sum.map(|sum| (sum.count, sum.sum))
}

fn compare_all(disk: &impl Storage, model: &Model, limit: usize, context: &str) {
    for number in 0..KEYS {
        let at = at(number);
        assert_eq!(disk.get(&at), model.get(&at), "{context}: get");
        if disk.is_at_hand(&at) {
            assert_eq!(disk.get(&at), model.get(&at), "{context}: get at hand");
        }
    }
    let scanned = all(|after| disk.scan(after, limit));
    let expected: Vec<_> = model.entries().cloned().collect();
    assert_eq!(scanned, expected, "{context}: scan");
    let ids: Vec<_> = expected.iter().map(Entry::id).collect();
    for (after, last) in [
        (None, None),
        (ids.first(), ids.last()),
        (None, ids.get(limit)),
    ] {
        for most in [3, u64::MAX] {
            let (after, last) = (after.copied(), last.copied());
            assert_eq!(
                said(disk.sum_between(after, last, most)),
                said(model.sum_between(after, last, most)),
                "{context}: sum between {after:?} and {last:?}"
            );
        }
    }
    let whole = said(model.sum_between(None, None, u64::MAX));
    let kept = said(disk.kept_sum());
    assert!(kept.is_none() || kept == whole, "{context}: kept sum");
    for range in Range::ALL.split().chain([Range::ALL]) {
        let sum = compare::sum_of(range, disk);
        assert_eq!(sum, compare::sum_of(range, model), "{context}: range sum");
    }
}

/// A tail has all that was stored since, and beside it only what a collection hides or what was
/// stored before.
fn compare_tail(
    disk: &impl Storage,
    model: &Model,
    (since, here): (LogPosition, LogPosition),
    context: &str,
) {
    let found = all(|after| disk.tail(here, after, 5));
    for entry in all(|after| model.tail(since, after, 5)) {
        assert!(
            found.contains(&entry),
            "{context}: {entry:?} is missing in the tail"
        );
    }
    for entry in &found {
        let Entry::Found(record) = entry else {
            panic!("{context}: nothing is unreadable");
        };
        let is_current = model.get(&Locator::of(record)) == Lookup::Found(record.clone());
        let may_be_collected = record.expires_at_ms().is_some() || record.state == State::Tombstone;
        assert!(
            is_current || may_be_collected,
            "{context}: {record:?} was replaced"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TestDisk for Model {
        fn storage(&self) -> impl Storage {
            self.clone()
        }

        fn apply(&mut self, batch: ReplicaBatch) {
            Self::apply(self, batch);
        }

        fn facts(&self) -> ReplicaFacts {
            self.meta
        }

        fn highest_in(&self, epoch: Epoch) -> HybridTime {
            self.latest.in_epoch(epoch)
        }

        fn position(&self) -> LogPosition {
            LogPosition(self.log)
        }

        fn stored(&self) -> StoredVersions {
            self.stored.clone()
        }

        fn upkeep(&mut self, round: u64) {
            if round == 0 {
                self.flush();
            }
        }
    }

    #[test]
    fn the_model_passes_its_own_check() {
        for seed in 0..20 {
            check(&mut Model::default(), seed);
        }
    }
}
