//! The disk of one node: it applies batches in order, and only applied batches survive a crash.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use torc_record::{Digest, HybridTime, NamespaceId, Record};
use torc_replication::{
    Batch, Entry, KeyId, Locator, LogPosition, Lookup, Meta, Scanned, Seq, Storage, is_collected,
};

type Name = (Digest, NamespaceId, Bytes);

#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// The entries, with the log position of each.
    entries: BTreeMap<Name, (LogPosition, Entry)>,
    log: u64,
    pub(crate) meta: Meta,
    /// The reservation of the node's coordinator.
    pub(crate) ceiling: HybridTime,
    pub(crate) queue: VecDeque<(Seq, Batch)>,
}

fn name(at: &Locator) -> Name {
    (at.digest, at.namespace, at.key.clone().into_bytes())
}

impl Disk {
    /// Applies the oldest batch of the queue.
    pub(crate) fn sync_one(&mut self) -> Option<Seq> {
        let (seq, batch) = self.queue.pop_front()?;
        self.log += 1;
        if batch.wipe {
            self.entries.clear();
        }
        for record in batch.records {
            self.insert(record);
        }
        if let Some(collected) = batch.purge {
            self.entries.retain(|_, (_, entry)| match entry {
                Entry::Found(it) => !is_collected(it.ballot, &it.state, collected),
                Entry::Unreadable(_) => true,
            });
        }
        self.meta = batch.meta.unwrap_or(self.meta);
        Some(seq)
    }

    fn insert(&mut self, record: Record) {
        let name = name(&Locator::of(&record));
        let entry = (LogPosition(self.log), Entry::Found(record));
        self.entries.insert(name, entry);
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().map(|(_, entry)| entry)
    }

    pub(crate) fn rot(&mut self, at: &Locator) {
        let entry = (LogPosition(self.log), Entry::Unreadable(at.clone()));
        self.entries.insert(name(at), entry);
    }

    /// All records, as if they were in slices, and the log position after them.
    pub(crate) fn slices(&self) -> (Vec<Record>, LogPosition) {
        let records = self.entries().filter_map(|entry| match entry {
            Entry::Found(record) => Some(record.clone()),
            Entry::Unreadable(_) => None,
        });
        (records.collect(), LogPosition(self.log))
    }

    /// Puts slices of another disk in force.
    pub(crate) fn ingest(&mut self, slices: Vec<Record>) {
        self.log += 1;
        for record in slices {
            let held = self.entries.get(&name(&Locator::of(&record)));
            if !matches!(held, Some((_, Entry::Found(held))) if !record.supersedes(held)) {
                self.insert(record);
            }
        }
    }
}

impl Storage for Disk {
    fn get(&self, at: &Locator) -> Lookup {
        match self.entries.get(&name(at)) {
            None => Lookup::Absent,
            Some((_, Entry::Found(record))) => Lookup::Found(record.clone()),
            Some((_, Entry::Unreadable(_))) => Lookup::Unreadable,
        }
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
