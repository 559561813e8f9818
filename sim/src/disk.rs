//! A disk that keeps what was synced, and of the rest any prefix.

use std::collections::{BTreeMap, VecDeque};

use torc_record::{HybridTime, Record};
use torc_replication::{
    Batch, Entry, KeyId, Locator, LogPosition, Lookup, Meta, Scanned, Seq, Storage, is_collected,
};

/// What is on its way to the disk.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Batch(Seq, Batch),
    Clock(HybridTime),
}

/// One node's disk, for one partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    /// With the position in the log at which they were stored.
    entries: BTreeMap<KeyId, (LogPosition, Entry)>,
    log: u64,
    pub(crate) meta: Meta,
    pub(crate) clock: HybridTime,
    queue: VecDeque<Write>,
}

impl Disk {
    pub(crate) fn enqueue(&mut self, write: Write) {
        self.queue.push_back(write);
    }

    /// The oldest write is synced.
    pub(crate) fn sync_one(&mut self) -> Option<Write> {
        let write = self.queue.pop_front()?;
        self.apply(&write);
        Some(write)
    }

    /// Power is lost: the first `kept` writes on their way made it, the others did not,
    /// nor any part of them (the store's checksums cut a torn tail).
    pub(crate) fn crash(&mut self, kept: usize) {
        for write in self.queue.drain(..).take(kept).collect::<Vec<_>>() {
            self.apply(&write);
        }
    }

    pub(crate) fn on_its_way(&self) -> usize {
        self.queue.len()
    }

    fn apply(&mut self, write: &Write) {
        match write {
            Write::Clock(ceiling) => self.clock = self.clock.max(*ceiling),
            Write::Batch(_, batch) => {
                self.log += 1;
                let at = LogPosition(self.log);
                if batch.wipe {
                    self.entries.clear();
                }
                for record in &batch.records {
                    let entry = Entry::Found(record.clone());
                    self.entries.insert(KeyId::of(record), (at, entry));
                }
                if let Some(collected) = batch.purge {
                    self.entries.retain(|_, (_, entry)| match entry {
                        Entry::Found(r) => !is_collected(r.ballot, &r.state, collected),
                        Entry::Unreadable(_) => true,
                    });
                }
                if let Some(meta) = batch.meta {
                    self.meta = meta;
                }
            }
        }
    }

    /// What was stored up to a moment before now, as slices hold it; none if a part of it
    /// cannot be read.
    pub(crate) fn slices(&self, back: u64) -> Option<(Vec<Record>, LogPosition)> {
        let through = LogPosition(self.log.saturating_sub(back));
        let sealed = self.entries.values().filter(|(at, _)| *at <= through);
        let records = sealed.map(|(_, entry)| match entry {
            Entry::Found(record) => Some(record.clone()),
            Entry::Unreadable(_) => None,
        });
        Some((records.collect::<Option<_>>()?, through))
    }

    /// Slices of another disk come into force here, at once and durably.
    pub(crate) fn receive(&mut self, slices: Vec<Record>) {
        self.log += 1;
        let at = LogPosition(self.log);
        for record in slices {
            let held = self.entries.get(&KeyId::of(&record));
            let is_newer = match held {
                Some((_, Entry::Found(held))) => record.supersedes(held),
                Some((_, Entry::Unreadable(_))) => false,
                None => true,
            };
            if is_newer {
                let id = KeyId::of(&record);
                self.entries.insert(id, (at, Entry::Found(record)));
            }
        }
    }

    pub(crate) fn keys(&self) -> Vec<KeyId> {
        self.entries.keys().copied().collect()
    }

    pub(crate) fn is_readable(&self) -> bool {
        let readable = |(_, entry): &(_, Entry)| matches!(entry, Entry::Found(_));
        self.entries.values().all(readable)
    }

    /// A bit of this record flips.
    pub(crate) fn corrupt(&mut self, key: KeyId) {
        if let Some((_, entry)) = self.entries.get_mut(&key)
            && let Entry::Found(record) = entry
        {
            *entry = Entry::Unreadable(Locator::of(record));
        }
    }

    /// What would be left if everything up to `collected` were collected.
    pub(crate) fn records(&self, collected: torc_record::Ballot) -> Vec<&Record> {
        let kept = |record: &&Record| !is_collected(record.ballot, &record.state, collected);
        let found = self.entries.values().filter_map(|(_, entry)| match entry {
            Entry::Found(record) => Some(record),
            Entry::Unreadable(_) => None,
        });
        found.filter(kept).collect()
    }
}

impl Storage for Disk {
    fn get(&self, at: &Locator) -> Lookup {
        match self.entries.get(&at.id()) {
            None => Lookup::Absent,
            Some((_, Entry::Found(record))) => Lookup::Found(record.clone()),
            Some((_, Entry::Unreadable(_))) => Lookup::Unreadable,
        }
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.entries.range((from, Bound::Unbounded));
        let entries = range.take(limit).map(|(_, (_, entry))| entry.clone());
        Scanned::of(entries.collect(), limit)
    }

    fn tail(&self, since: LogPosition, after: Option<KeyId>, limit: usize) -> Scanned {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.entries.range((from, Bound::Unbounded));
        let later = range.filter(|(_, (at, _))| *at > since);
        let entries = later.take(limit).map(|(_, (_, entry))| entry.clone());
        Scanned::of(entries.collect(), limit)
    }
}
