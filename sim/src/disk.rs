//! A disk that keeps synced batches, and any prefix of the others.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use torc_record::{
    Ballot, Digest, Epoch, HybridTime, NamespaceId, Record, ReplicaBatch, ReplicaFacts,
    StoredVersion, StoredVersions,
};
use torc_replication::{
    Entry, KeyId, Locator, LogPosition, Lookup, Mutation, Mutations, Scanned, Seq, Storage,
};

/// A write on its way to the disk.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Batch(Seq, ReplicaBatch),
    Clock(HybridTime),
}

/// Slices end at most this many log positions before the end of the log.
pub(crate) const MAX_BACK: u64 = 24;

/// After how many batches the log is flushed.
const FLUSH_EVERY: u64 = 8;

/// The key of records that are stored under the digest of another key.
pub(crate) const FOREIGN: &[u8] = b"foreign";

/// A version that was replaced or collected: slices that end in between still have it.
#[derive(Debug, Clone)]
struct Former {
    since: LogPosition,
    until: LogPosition,
    /// It was collected, and no compaction has dropped it yet.
    lingers: bool,
    record: Record,
}

/// One node's disk, for one partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    /// In the order of digest, namespace and key, with the log position of each.
    entries: Vec<(LogPosition, Entry)>,
    former: Vec<Former>,
    log: u64,
    /// Where slices were put in force.
    received: Vec<LogPosition>,
    pub(crate) meta: ReplicaFacts,
    /// The versions that it tells after a start.
    pub(crate) stored: StoredVersions,
    /// The latest time, by epoch, of the ballots ever stored.
    pub(crate) latest: BTreeMap<Epoch, HybridTime>,
    pub(crate) clock: HybridTime,
    queue: VecDeque<Write>,
    /// Breaks the contract of scans: a page may end between two keys with the same digest.
    pub(crate) splits_digests: bool,
    /// Whether no key is at hand in the present step.
    pub(crate) is_far: bool,
    /// Whether replicas keep their part of the contract: no rule is broken.
    pub(crate) is_checked: bool,
}

type Name<'a> = (Digest, NamespaceId, &'a [u8]);

fn name(entry: &Entry) -> Name<'_> {
    match entry {
        Entry::Found(record) => name_of(record),
        Entry::Unreadable(at) => name_at(at),
    }
}

fn name_of(record: &Record) -> Name<'_> {
    (record.digest, record.namespace, record.key.as_bytes())
}

fn name_at(at: &Locator) -> Name<'_> {
    (at.digest, at.namespace, at.key.as_bytes())
}

impl Disk {
    pub(crate) fn enqueue(&mut self, write: Write) {
        self.queue.push_back(write);
    }

    /// Syncs the oldest write.
    pub(crate) fn sync_one(&mut self) -> Option<Write> {
        let mut write = self.queue.pop_front()?;
        self.apply(&mut write);
        Some(write)
    }

    /// Loses power: the first `kept` pending writes are stored completely, the others not at all
    /// (the store's checksums cut a torn tail).
    pub(crate) fn crash(&mut self, kept: usize) {
        for mut write in std::mem::take(&mut self.queue).into_iter().take(kept) {
            self.apply(&mut write);
        }
    }

    /// Loses the batches on their way; returns whether there were any.
    pub(crate) fn lose_batches(&mut self) -> bool {
        let all = self.queue.len();
        self.queue.retain(|write| matches!(write, Write::Clock(_)));
        self.queue.len() < all
    }

    pub(crate) fn on_its_way(&self) -> usize {
        self.queue.len()
    }

    /// Applies a write, and moves its records out of it.
    fn apply(&mut self, write: &mut Write) {
        match write {
            Write::Clock(ceiling) => self.clock = self.clock.max(*ceiling),
            Write::Batch(_, batch) => {
                self.log += 1;
                if batch.wipe {
                    self.entries.clear();
                    self.former.clear();
                }
                for record in std::mem::take(&mut batch.records) {
                    self.stored.note(StoredVersion::from(&record));
                    self.note(record.ballot);
                    if self.keeps(&record) {
                        self.insert(Entry::Found(record));
                    }
                }
                if let Some(collected) = batch.purge {
                    self.purge(collected);
                }
                if let Some(meta) = batch.meta {
                    self.meta = meta;
                }
                if self.log.is_multiple_of(FLUSH_EVERY) {
                    self.flush();
                }
                let oldest = LogPosition(self.log.saturating_sub(MAX_BACK));
                self.former.retain(|former| former.until > oldest);
            }
        }
    }

    /// Puts the log's records in slices, which do not tell what else was stored.
    fn flush(&mut self) {
        let latest = self.latest.values().max().copied();
        self.stored = StoredVersions::after(latest.unwrap_or_default());
    }

    fn note(&mut self, ballot: Ballot) {
        let latest = self.latest.entry(ballot.epoch).or_default();
        *latest = ballot.time.max(*latest);
    }

    /// The latest time of the ballots of an epoch ever stored.
    pub(crate) fn highest_in(&self, epoch: Epoch) -> HybridTime {
        self.latest.get(&epoch).copied().unwrap_or_default()
    }

    fn find(&self, wanted: Name<'_>) -> Result<usize, usize> {
        self.entries
            .binary_search_by(|(_, entry)| name(entry).cmp(&wanted))
    }

    /// Whether a batch's record replaces the present version of its key. It does not if slices brought
    /// a later one while the batch was on its way.
    ///
    /// Panics if the record is below another version: replicas never make such a batch.
    fn keeps(&self, record: &Record) -> bool {
        let held = self.find(name_of(record)).map(|index| &self.entries[index]);
        let Ok((since, Entry::Found(held))) = held else {
            return true;
        };
        if record.ballot >= held.ballot {
            return true;
        }
        if self.received.contains(since) {
            return false;
        }
        assert!(
            !self.is_checked,
            "a batch has {record:?}, which is below {held:?}"
        );
        true
    }

    fn insert(&mut self, entry: Entry) {
        let at = LogPosition(self.log);
        match self.find(name(&entry)) {
            Ok(index) => {
                let (since, former) = std::mem::replace(&mut self.entries[index], (at, entry));
                self.keep_former(since, former, false);
            }
            Err(index) => self.entries.insert(index, (at, entry)),
        }
    }

    fn purge(&mut self, collected: Ballot) {
        let is_dropped = |(_, entry): &mut (_, Entry)| matches!(entry, Entry::Found(r) if r.state.is_collected(r.ballot, collected));
        let dropped: Vec<_> = self.entries.extract_if(.., is_dropped).collect();
        // A compaction drops them sooner or later: here half of them at once.
        let lingers = self.log.is_multiple_of(2);
        for (since, entry) in dropped {
            self.keep_former(since, entry, lingers);
        }
    }

    fn keep_former(&mut self, since: LogPosition, entry: Entry, lingers: bool) {
        let until = LogPosition(self.log);
        if let Entry::Found(record) = entry {
            self.former.push(Former {
                since,
                until,
                lingers,
                record,
            });
        }
    }

    /// The content of slices that end at an earlier log position, but after every record that a
    /// collection drops or has begun to drop; `None` if part of it is unreadable.
    pub(crate) fn slices(
        &self,
        back: u64,
        mutations: Mutations,
    ) -> Option<(Vec<Record>, LogPosition)> {
        let mut through = LogPosition(self.log.saturating_sub(back.min(MAX_BACK)));
        let former = self.former.iter().map(|it| (it.since, &it.record));
        let current = self
            .entries
            .iter()
            .filter_map(|(since, entry)| match entry {
                Entry::Found(record) => Some((*since, record)),
                Entry::Unreadable(_) => None,
            });
        for (since, record) in former.chain(current) {
            if record
                .state
                .is_collected(record.ballot, self.meta.collecting)
                && !mutations.has(Mutation::SlicesLackTombstones)
            {
                through = through.max(since);
            }
        }
        let sealed = self.entries.iter().filter(|(at, _)| *at <= through);
        let sealed = sealed.map(|(_, entry)| match entry {
            Entry::Found(record) => Some(record.clone()),
            Entry::Unreadable(_) => None,
        });
        let former = self.former.iter();
        let former = former.filter(|it| it.since <= through && it.until > through);
        let former = former.map(|it| Some(it.record.clone()));
        Some((sealed.chain(former).collect::<Option<_>>()?, through))
    }

    /// Puts slices of another disk in force, at once and durably.
    pub(crate) fn receive(&mut self, slices: Vec<Record>) {
        self.log += 1;
        self.received.push(LogPosition(self.log));
        for record in slices {
            self.note(record.ballot);
            let held = self.find(name_of(&record)).ok();
            let is_newer = match held.map(|index| &self.entries[index].1) {
                Some(Entry::Found(held)) => record.supersedes(held),
                Some(Entry::Unreadable(_)) => false,
                None => true,
            };
            if is_newer {
                self.insert(Entry::Found(record));
            }
        }
        self.flush();
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_readable(&self) -> bool {
        let readable = |(_, entry): &(_, Entry)| matches!(entry, Entry::Found(_));
        self.entries.iter().all(readable)
    }

    /// Flips a bit of this record.
    pub(crate) fn corrupt(&mut self, index: usize) {
        // A foreign record is never repaired.
        if let Some((_, entry)) = self.entries.get_mut(index)
            && let Entry::Found(record) = entry
            && record.key.as_bytes() != FOREIGN
        {
            *entry = Entry::Unreadable(Locator::of(record));
        }
    }

    /// The records of clients' keys that would remain after a collection up to `collected`.
    pub(crate) fn records(&self, collected: Ballot) -> impl Iterator<Item = &Record> {
        let found = self.entries.iter().filter_map(|(_, entry)| match entry {
            Entry::Found(record) if record.key.as_bytes() != FOREIGN => Some(record),
            Entry::Found(_) | Entry::Unreadable(_) => None,
        });
        found.filter(move |record| !record.state.is_collected(record.ballot, collected))
    }

    /// The page that begins with these entries, in ring order.
    fn page<'a>(&self, all: impl Iterator<Item = &'a Entry>, limit: usize) -> Scanned {
        let mut entries: Vec<Entry> = Vec::new();
        for entry in all {
            let more = entries.last().is_some_and(|last| last.id() == entry.id());
            if entries.len() >= limit && (self.splits_digests || !more) {
                break;
            }
            entries.push(entry.clone());
        }
        Scanned::of(entries, limit)
    }

    /// Collected records whose keys have no record since.
    fn lingering(&self) -> impl Iterator<Item = (LogPosition, Entry)> + '_ {
        let last = self.former.iter().filter(|former| {
            let name = name_of(&former.record);
            let later = |it: &&Former| name_of(&it.record) == name && it.until > former.until;
            former.lingers && !self.former.iter().any(|it| later(&it))
        });
        let gone = last.filter(|former| self.find(name_of(&former.record)).is_err());
        gone.map(|former| (former.since, Entry::Found(former.record.clone())))
    }
}

impl Storage for Disk {
    fn get(&self, at: &Locator) -> Lookup {
        match self.find(name_at(at)) {
            Err(_) => Lookup::Absent,
            Ok(index) => match &self.entries[index].1 {
                Entry::Found(record) => Lookup::Found(record.clone()),
                Entry::Unreadable(_) => Lookup::Unreadable,
            },
        }
    }

    fn is_at_hand(&self, _at: &Locator) -> bool {
        !self.is_far
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        let all = self.entries.iter().map(|(_, entry)| entry);
        self.page(all.skip_while(|entry| after >= Some(entry.id())), limit)
    }

    fn tail(&self, since: LogPosition, after: Option<KeyId>, limit: usize) -> Scanned {
        if since == LogPosition(0) {
            return self.scan(after, limit);
        }
        let held = self.entries.iter().cloned().chain(self.lingering());
        let mut later: Vec<_> = held
            .filter(|(at, entry)| *at > since && after < Some(entry.id()))
            .map(|(_, entry)| entry)
            .collect();
        later.sort_by(|a, b| name(a).cmp(&name(b)));
        self.page(later.iter(), limit)
    }

    fn is_foreign(&self, at: &Locator) -> bool {
        at.key.as_bytes() == FOREIGN
    }
}

/// A disk that changes while it is read: some pages are old, the rest new.
pub(crate) struct Torn<'a> {
    pub(crate) before: &'a Disk,
    pub(crate) now: &'a Disk,
    pub(crate) pages_of_before: Cell<u32>,
}

impl Torn<'_> {
    fn turn(&self) -> &Disk {
        let left = self.pages_of_before.get();
        self.pages_of_before.set(left.saturating_sub(1));
        if left > 0 { self.before } else { self.now }
    }
}

impl Storage for Torn<'_> {
    fn get(&self, at: &Locator) -> Lookup {
        self.turn().get(at)
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        self.turn().scan(after, limit)
    }

    fn tail(&self, since: LogPosition, after: Option<KeyId>, limit: usize) -> Scanned {
        self.turn().tail(since, after, limit)
    }

    fn is_foreign(&self, at: &Locator) -> bool {
        self.now.is_foreign(at)
    }
}

#[cfg(test)]
mod tests {
    use torc_record::{ReplicaBatch, ReplicaFacts};
    use torc_replication::testing::{TestDisk, check};

    use super::*;

    impl TestDisk for Disk {
        fn storage(&self) -> impl Storage {
            self.clone()
        }

        fn apply(&mut self, batch: ReplicaBatch) {
            self.enqueue(Write::Batch(Seq(0), batch));
            self.sync_one();
        }

        fn facts(&self) -> ReplicaFacts {
            self.meta
        }

        fn highest_in(&self, epoch: Epoch) -> HybridTime {
            Self::highest_in(self, epoch)
        }

        fn position(&self) -> LogPosition {
            LogPosition(self.log)
        }

        fn stored(&self) -> StoredVersions {
            self.stored.clone()
        }
    }

    #[test]
    fn the_simulated_disk_keeps_the_contract() {
        for seed in 0..20 {
            let mut disk = Disk {
                is_checked: true,
                ..Disk::default()
            };
            check(&mut disk, seed);
        }
    }
}
