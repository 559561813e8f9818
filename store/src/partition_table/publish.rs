//! Publication of slices.
//!
//! All of these are called with the manifest's lock held, after the manifest with the
//! slices is durable. So changes of a partition's slices are serial, except for drops,
//! which can happen at any time and win.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use torc_record::Ballot;
use torc_ring::Partition;

use super::{PartitionTable, Shard, Slices, cost, newest_sealed};
use crate::packed::Packed;
use crate::partition::Facts;
use crate::segment::Slice;
use crate::{PartitionSummary, Seq, StoreError};

/// The result of compacting slices.
#[derive(Debug)]
pub(crate) struct Compacted<'a> {
    pub(crate) partition: Partition,
    pub(crate) inputs: &'a [Arc<Slice>],
    /// One slice per layer.
    pub(crate) outputs: &'a [Arc<Slice>],
    /// Newest versions that were collected and are in no slice any more.
    pub(crate) dropped: &'a [Packed],
    /// The new sum of all slices of the partition.
    pub(crate) sealed: PartitionSummary,
    /// Unreadable records were left out, so their sum is unknown.
    pub(crate) is_repair: bool,
}

impl PartitionTable {
    /// Installs the slices of a manifest, with their sums, when the store opens.
    pub(crate) fn restore(
        &self,
        slices: Vec<Arc<Slice>>,
        sealed: &[(Partition, PartitionSummary)],
        facts: &[(Partition, Facts)],
    ) {
        let mut by_partition: BTreeMap<Partition, Vec<Arc<Slice>>> = BTreeMap::new();
        for slice in slices {
            self.note_longest(slice.longest());
            by_partition
                .entry(slice.partition())
                .or_default()
                .push(slice);
        }
        for (partition, slices) in by_partition {
            if let Some(lock) = self.shard(partition) {
                let (generations, slices): (Vec<_>, Vec<_>) =
                    slices.into_iter().partition(|slice| slice.is_generation());
                let mut shard = lock.write();
                shard.slices = slices.into();
                shard.generations = generations.into();
            }
        }
        for (partition, summary) in sealed {
            if let Some(lock) = self.shard(*partition) {
                let mut shard = lock.write();
                shard.sealed = *summary;
                shard.summary = *summary;
            }
        }
        for (partition, facts) in facts {
            if let Some(lock) = self.shard(*partition) {
                let mut shard = lock.write();
                shard.facts = *facts;
                shard.is_uncounted = facts.watermark > Ballot::default();
            }
        }
    }

    /// All slices of records that can change, and their sum for each partition.
    pub(crate) fn live(&self) -> Vec<(Partition, Slices, PartitionSummary)> {
        let live = self.partitions.iter().map(|(partition, place)| {
            let shard = place.shard.read();
            (partition, Arc::clone(&shard.slices), shard.sealed)
        });
        live.filter(|(_, slices, _)| !slices.is_empty()).collect()
    }

    /// Whether a partition was dropped by an entry above this one.
    pub(crate) fn was_dropped_after(&self, partition: Partition, seq: Seq) -> bool {
        let shard = self.shard(partition);
        shard.is_none_or(|shard| shard.read().dropped_at > seq)
    }

    /// Puts the slices of a flush in force, and removes its records from the memtable: those of
    /// entries up to `through`. The records of `skipped` were collected and are in no slice. Does
    /// nothing if the partition was dropped meanwhile.
    pub(crate) fn install_flushed(
        &self,
        partition: Partition,
        slices: &[Arc<Slice>],
        sealed: PartitionSummary,
        through: Seq,
        skipped: &BTreeSet<Seq>,
    ) -> bool {
        let Some(lock) = self.shard(partition) else {
            return false;
        };
        let mut shard = lock.write();
        if shard.dropped_at > through {
            return false;
        }
        let mut freed = 0;
        let removed = shard.memtable.remove(|slot| {
            let is_flushed = slot.seq <= through;
            freed += if is_flushed { cost(&slot.packed) } else { 0 };
            is_flushed
        });
        for slot in removed.iter().filter(|slot| skipped.contains(&slot.seq)) {
            shard.note_gone(&slot.packed);
        }
        shard.bytes -= freed;
        shard.sealed = sealed;
        if !slices.is_empty() {
            shard.slices = shard.slices.iter().chain(slices).cloned().collect();
        }
        drop(shard);
        // The lock is released before the records are freed.
        drop(removed);
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
        true
    }

    /// Replaces the inputs of a compaction by its outputs, unless the inputs are gone.
    pub(crate) fn install_compacted(&self, compacted: &Compacted<'_>) -> bool {
        let Some(lock) = self.shard(compacted.partition) else {
            return false;
        };
        let mut shard = lock.write();
        let inputs = compacted.inputs;
        if !holds_all(&shard, inputs) {
            return false;
        }
        let is_input = |slice: &&Arc<Slice>| inputs.iter().any(|input| Arc::ptr_eq(input, slice));
        let kept = shard.slices.iter().filter(|one| !is_input(one)).cloned();
        let slices: Slices = kept.chain(compacted.outputs.iter().cloned()).collect();
        if compacted.is_repair {
            shard.recount(&slices, compacted.sealed);
        } else {
            shard.sealed = compacted.sealed;
            for packed in compacted.dropped {
                // A version that the memtable supersedes was not in the sums.
                if shard.memtable.get(&packed.position()).is_none() {
                    shard.note_gone(packed);
                }
            }
        }
        shard.slices = slices;
        true
    }

    /// Puts ingested slices in force, beneath the memtable; `sealed` is the new sum of all slices.
    /// Removes records from the memtable that are not newer.
    ///
    /// Returns false, and does nothing, if the partition was dropped since entry `after`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a record needed for the comparison cannot be read: nothing was
    /// changed.
    pub(crate) fn install_ingested(
        &self,
        partition: Partition,
        ingested: &[Arc<Slice>],
        sealed: PartitionSummary,
        after: Seq,
    ) -> Result<bool, StoreError> {
        let Some(lock) = self.shard(partition) else {
            return Ok(false);
        };
        let mut shard = lock.write();
        if shard.dropped_at > after {
            return Ok(false);
        }
        let (generations, ingested): (Vec<_>, Vec<_>) =
            ingested.iter().cloned().partition(|it| it.is_generation());
        if !generations.is_empty() {
            shard.generations = shard
                .generations
                .iter()
                .cloned()
                .chain(generations)
                .collect();
        }
        if ingested.is_empty() {
            return Ok(true);
        }
        let mut slices = shard.slices.to_vec();
        slices.extend(ingested);
        let mut summary = sealed;
        let mut outdated = Vec::new();
        for slot in shard.memtable.after(None) {
            let packed = &slot.packed;
            match newest_sealed(&slices, &packed.position())? {
                Some(newest) if !packed.supersedes(&newest) => outdated.push(slot.seq),
                held => {
                    if let Some(held) = held {
                        summary.remove(&held);
                    }
                    summary.add(packed);
                }
            }
        }
        outdated.sort_unstable();
        if let Some(last) = outdated.last() {
            shard.stale_at = shard.stale_at.max(*last);
        }
        let mut freed = 0;
        let removed = shard.memtable.remove(|slot| {
            let goes = outdated.binary_search(&slot.seq).is_ok();
            freed += if goes { cost(&slot.packed) } else { 0 };
            goes
        });
        shard.bytes -= freed;
        shard.sealed = sealed;
        shard.summary = summary;
        shard.is_uncounted = shard.facts.watermark > Ballot::default();
        shard.slices = slices.into();
        drop(shard);
        drop(removed);
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
        Ok(true)
    }
}

fn holds_all(shard: &Shard, slices: &[Arc<Slice>]) -> bool {
    slices
        .iter()
        .all(|slice| shard.slices.iter().any(|held| Arc::ptr_eq(held, slice)))
}
