//! A disk that keeps what was synced, and of the rest any prefix.

use std::collections::{BTreeMap, VecDeque};

use torc_record::{HybridTime, Record};
use torc_replication::{
    Batch, Entry, KeyId, Locator, Lookup, Meta, Scanned, Seq, Storage, is_collected,
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
    entries: BTreeMap<KeyId, Entry>,
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
                if batch.wipe {
                    self.entries.clear();
                }
                for record in &batch.records {
                    let entry = Entry::Found(record.clone());
                    self.entries.insert(KeyId::of(record), entry);
                }
                if let Some(collected) = batch.purge {
                    self.entries.retain(|_, entry| match entry {
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

    pub(crate) fn keys(&self) -> Vec<KeyId> {
        self.entries.keys().copied().collect()
    }

    pub(crate) fn is_readable(&self) -> bool {
        let readable = |entry: &Entry| matches!(entry, Entry::Found(_));
        self.entries.values().all(readable)
    }

    /// A bit of this record flips.
    pub(crate) fn corrupt(&mut self, key: KeyId) {
        if let Some(entry) = self.entries.get_mut(&key)
            && let Entry::Found(record) = entry
        {
            *entry = Entry::Unreadable(Locator::of(record));
        }
    }

    /// What would be left if everything up to `collected` were collected.
    pub(crate) fn records(&self, collected: torc_record::Ballot) -> Vec<&Record> {
        let kept = |record: &&Record| !is_collected(record.ballot, &record.state, collected);
        let found = self.entries.values().filter_map(|entry| match entry {
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
            Some(Entry::Found(record)) => Lookup::Found(record.clone()),
            Some(Entry::Unreadable(_)) => Lookup::Unreadable,
        }
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.entries.range((from, Bound::Unbounded));
        let entries = range.take(limit).map(|(_, entry)| entry.clone());
        Scanned::of(entries.collect(), limit)
    }
}
