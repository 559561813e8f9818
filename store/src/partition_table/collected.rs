//! The facts of partitions, and the records that a collection hides.
//!
//! Reads ignore a version at or below the watermark that a collection drops. It stays stored while
//! it may hide an older version of its key. Flushes and compactions leave it out only once no other
//! slice may hold the key, and once the log contains no entry that was already superseded when it
//! was applied: a replay without the hiding version would bring that entry back.
//!
//! So a summary is the sum of all newest versions minus the hidden ones among them. Writes, flushes
//! and compactions update both sums. A higher watermark invalidates the second sum; the next
//! request for the summary counts it exactly ([`PartitionTable::summary`]). That reads nothing if
//! no slice has a tombstone or an expiring value, and all slices of the partition otherwise.

use std::sync::Arc;

use torc_record::{Ballot, Digest, Epoch, HybridTime, NodeSlot, ReplicaFacts};
use torc_ring::Partition;

use super::{Damaged, MergedSlices, PartitionTable, Shard, newest_readable};
use crate::packed::Packed;
use crate::partition::Facts;
use crate::segment::Slice;
use crate::{PartitionSummary, Seq};

impl Shard {
    /// Notes the ballot of a record, stored or not.
    pub(super) fn note_ballot(&mut self, ballot: Ballot) {
        self.facts.highest = self.facts.highest.max(ballot);
    }

    /// Adds a newest version to the sums.
    pub(super) fn note_come(&mut self, packed: &Packed) {
        self.summary.add(packed);
        if packed.is_collected(self.facts.watermark) {
            self.hidden.add(packed);
        }
    }

    /// Subtracts a former newest version from the sums.
    pub(super) fn note_gone(&mut self, packed: &Packed) {
        self.summary.remove(packed);
        if packed.is_collected(self.facts.watermark) {
            self.hidden.remove(packed);
        }
    }

    /// Recounts the sums; `sealed` is the sum of the slices.
    pub(super) fn recount(&mut self, slices: &[Arc<Slice>], sealed: PartitionSummary) {
        let mut summary = sealed;
        for slot in self.memtable.after(None) {
            if let Some(beneath) = newest_readable(slices, &slot.packed.position()) {
                summary.remove(&beneath);
            }
            summary.add(&slot.packed);
        }
        self.sealed = sealed;
        self.summary = summary;
        self.is_uncounted = self.facts.watermark > Ballot::default();
    }

    /// The sum of visible records; `None` if the hidden ones must be counted first.
    pub(super) fn visible(&self) -> Option<PartitionSummary> {
        (!self.is_uncounted).then(|| {
            let mut visible = self.summary;
            visible.take_away(&self.hidden);
            visible
        })
    }
}

impl PartitionTable {
    pub(crate) fn facts(&self, partition: Partition) -> Facts {
        let shard = self.shard(partition);
        shard.map_or_else(Facts::default, |shard| shard.read().facts)
    }

    /// The ballot up to which collected records may be left out of slices, if the log keeps the
    /// entries after `through`: zero while the log contains an entry that must stay superseded.
    pub(crate) fn droppable(&self, partition: Partition, through: Seq) -> Ballot {
        let shard = self.shard(partition).map(|shard| shard.read());
        let shard = shard.filter(|shard| shard.stale_at <= through);
        shard.map_or(Ballot::default(), |shard| shard.facts.watermark)
    }

    /// The facts of all partitions that have any.
    pub(crate) fn all_facts(&self) -> Vec<(Partition, Facts)> {
        let places = self.partitions.iter();
        let facts = places.map(|(partition, place)| (partition, place.shard.read().facts));
        facts
            .filter(|(_, facts)| *facts != Facts::default())
            .collect()
    }

    pub(crate) fn set_meta(&self, partition: Partition, meta: ReplicaFacts) {
        if let Some(shard) = self.shard(partition) {
            shard.write().facts.meta = meta;
        }
    }

    /// Notes that records may be lost that each partition had in its epoch, up to this time.
    pub(crate) fn note_lost(&self, time: HybridTime) {
        for (_, place) in self.partitions.iter() {
            let mut shard = place.shard.write();
            let epoch = shard.facts.meta.epoch;
            if epoch > Epoch(0) {
                let slot = NodeSlot(u16::MAX);
                shard.note_ballot(Ballot { epoch, time, slot });
            }
        }
    }

    /// Notes the highest ballot of records that are about to be put in force.
    pub(crate) fn note_ballot(&self, partition: Partition, ballot: Ballot) {
        if let Some(shard) = self.shard(partition) {
            shard.write().note_ballot(ballot);
        }
    }

    /// Whether a partition has, or may have, a tombstone or an expiring value: one in a slice may
    /// be superseded.
    pub(crate) fn may_be_collected(&self, partition: Partition) -> bool {
        let Some(shard) = self.shard(partition).map(|shard| shard.read()) else {
            return false;
        };
        let mut slots = shard.memtable.after(None);
        slots.any(|slot| slot.packed.borrowed().is_collectable())
            || shard.slices.iter().any(|slice| slice.may_be_collected())
    }

    /// Raises the watermark of a partition.
    pub(crate) fn purge(&self, partition: Partition, watermark: Ballot) {
        if let Some(shard) = self.shard(partition) {
            let mut shard = shard.write();
            if watermark > shard.facts.watermark {
                shard.facts.watermark = watermark;
                shard.is_uncounted = true;
            }
        }
    }

    /// As [`summary`](Self::summary); `None` if hidden records must be counted first.
    pub(crate) fn kept_summary(&self, partition: Partition) -> Option<PartitionSummary> {
        self.shard(partition)?.read().visible()
    }

    /// The summary of a partition, without collected records.
    pub(crate) fn summary(&self, partition: Partition) -> PartitionSummary {
        let Some(lock) = self.shard(partition) else {
            return PartitionSummary::default();
        };
        loop {
            let shard = lock.read();
            if let Some(visible) = shard.visible() {
                return visible;
            }
            let (slices, watermark) = (Arc::clone(&shard.slices), shard.facts.watermark);
            drop(shard);
            let (beneath, digests) = hidden_in(&slices, watermark);
            let mut shard = lock.write();
            if !Arc::ptr_eq(&slices, &shard.slices) || shard.facts.watermark != watermark {
                continue;
            }
            let mut hidden = beneath;
            for slot in shard.memtable.after(None) {
                // Collected or not, this version replaces the one beneath it in the sums.
                let is_beneath = digests.binary_search(&slot.packed.digest()).is_ok();
                let sealed = is_beneath
                    .then(|| newest_readable(&slices, &slot.packed.position()))
                    .flatten();
                if let Some(sealed) = sealed.filter(|sealed| sealed.is_collected(watermark)) {
                    hidden.remove(&sealed);
                }
                if slot.packed.is_collected(watermark) {
                    hidden.add(&slot.packed);
                }
            }
            shard.hidden = hidden;
            shard.is_uncounted = false;
        }
    }
}

/// The sum of the slices' newest versions that a collection hides, and their digests in order.
/// Ignores unreadable records.
fn hidden_in(slices: &[Arc<Slice>], watermark: Ballot) -> (PartitionSummary, Vec<Digest>) {
    let (mut hidden, mut digests) = (PartitionSummary::default(), Vec::new());
    if !slices.iter().any(|slice| slice.may_be_collected()) {
        return (hidden, digests);
    }
    let Ok(mut records) = MergedSlices::after(slices.iter(), None, Damaged::LeaveOut) else {
        return (hidden, digests);
    };
    while let Ok(Some(packed)) = records.next() {
        if packed.is_collected(watermark) {
            hidden.add(&packed);
            digests.push(packed.digest());
        }
    }
    (hidden, digests)
}
