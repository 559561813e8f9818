//! The partition table: the data of each partition. That is its part of the memtable, an ordered
//! map in memory of the recent records, and the slices with the flushed ones.
//!
//! Invariants:
//! * Only entries whose log batch has been synced are applied, in log order, by one
//!   thread; so a reader sees durable data only.
//! * A record of the memtable supersedes every version of its key in the slices, so a read that
//!   finds one there is complete.
//! * Among slices the highest ballot wins; their order does not matter.
//! * Summaries and the byte count are updated under the same lock as every change.
//!   `sealed` covers the slices alone, without superseded versions; `summary` covers all.
//!   Both include collected records that are still stored; see [`collected`].
//! * Slices of generations are separate (`generations`): they have no memtable and are in no sum,
//!   no scan and no compaction. A generation has one slice in each partition where it has keys.
//! * No lock is held while a file is read, with three exceptions: to publish slices to a partition
//!   whose memtable already has records (on a new replica), to replace damaged slices, and, after a
//!   purge, to look up collected versions beneath records of the memtable. None is held across more
//!   than [`RECORDS_PER_LOCK`] records, and none while records are unpacked.
//!
//! RAM per record of the memtable in addition to its packed bytes (a head of 44 bytes): 16 for the
//! reference counts, about 8 for the allocator, about 35 for its slot.

mod collected;
mod figures;
mod generations;
mod merge;
mod ordered;
mod publish;
mod reads;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use torc_record::{Ballot, Locator};
use torc_ring::{Layered, Partition, Partitions, Token};

pub(crate) use self::merge::{Damaged, MergedSlices};
use self::ordered::{Ordered, Upsert};
pub(crate) use self::publish::Compacted;
pub(crate) use self::reads::{PREFETCHED, ReadCounts, newest_readable};
use crate::packed::{Packed, PackedRef};
use crate::partition::Facts;
use crate::segment::Slice;
use crate::slice::Reading;
use crate::{PartitionSummary, SealedPartition, SealedSlice, Seq, StoreError};

/// Estimated memory of a record in addition to its packed bytes.
const OVERHEAD_BYTES: u64 = 60;
/// Limit on the records examined under one lock.
const RECORDS_PER_LOCK: usize = 1024;

/// The slices of a partition at one moment.
pub(crate) type Slices = Arc<[Arc<Slice>]>;

#[derive(Debug, Default)]
struct Shard {
    memtable: Ordered,
    slices: Slices,
    /// Slices of generations.
    generations: Slices,
    /// The sum of all newest versions, collected ones included.
    summary: PartitionSummary,
    /// The sum of the collected ones among them; invalid while `is_uncounted`.
    hidden: PartitionSummary,
    is_uncounted: bool,
    sealed: PartitionSummary,
    facts: Facts,
    /// Bytes of the memtable.
    bytes: u64,
    /// The number of the last drop.
    dropped_at: Seq,
    /// The last entry that was superseded when it was applied, or later by an ingested slice. While
    /// it is in the log, the version that superseded it must be kept.
    stale_at: Seq,
}

/// A partition with its data and its read counters.
#[derive(Debug, Default)]
struct Place {
    shard: RwLock<Shard>,
    counts: ReadCounts,
}

/// All records of a node, by partition.
#[derive(Debug)]
pub(crate) struct PartitionTable {
    partitions: Layered<Place>,
    bytes: AtomicU64,
    longest: AtomicUsize,
}

/// A stretch of a partition's memtable, read under one lock.
pub(crate) struct Stretch {
    /// Records with their numbers, in ring order.
    pub(crate) records: Vec<(Seq, Packed)>,
    /// The last record examined; `None` at the end.
    pub(crate) last: Option<Packed>,
    /// The slices beneath.
    pub(crate) slices: Slices,
}

/// The versions of one key beneath the memtable.
struct Beneath {
    slices: Slices,
    /// The newest readable version.
    sealed: Option<Packed>,
}

/// Estimated memory of a record in the memtable, bytes.
pub(crate) fn cost(packed: &Packed) -> u64 {
    packed.bytes().len() as u64 + OVERHEAD_BYTES
}

impl PartitionTable {
    pub(crate) fn new(partitions: Partitions) -> Self {
        Self {
            partitions: Layered::new(partitions),
            bytes: AtomicU64::new(0),
            longest: AtomicUsize::new(0),
        }
    }

    /// No record that is or was here has a longer key and value together. Never shrinks.
    pub(crate) fn longest(&self) -> usize {
        self.longest.load(Ordering::Relaxed)
    }

    /// Before a record of this length can be read.
    pub(crate) fn note_longest(&self, len: usize) {
        // Seldom the longest: a load is cheaper than an update.
        if len > self.longest() {
            self.longest.fetch_max(len, Ordering::Relaxed);
        }
    }

    /// Estimated memory of the memtable.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Applies a durable record. Returns whether it is the newest version now. Only one thread applies
    /// records.
    ///
    /// An unreadable sealed version is superseded: the new record is what is known now.
    pub(crate) fn apply(&self, seq: Seq, packed: &Packed) -> bool {
        self.note_longest(packed.payload_len());
        if let Some(is_held) = self.apply_at_once(seq, packed) {
            return is_held;
        }
        loop {
            let beneath = self.beneath(packed);
            if let Some(is_held) = self.apply_above(&beneath, seq, packed) {
                return is_held;
            }
        }
    }

    /// Applies a record of a key that the memtable has, or that no slice has, according to the gates;
    /// `None` for any other.
    fn apply_at_once(&self, seq: Seq, packed: &Packed) -> Option<bool> {
        let position = packed.position();
        let mut shard = self.place(&position).shard.write();
        shard.note_ballot(packed.ballot());
        let may_be_sealed = shard
            .slices
            .iter()
            .any(|slice| slice.may_hold(&position.digest));
        // The memtable's version is newer than those of all slices.
        let is_known = !may_be_sealed || shard.memtable.get(&position).is_some();
        is_known.then(|| self.upsert(&mut shard, seq, packed, None))
    }

    /// The slices' newest version of a record's key, which the memtable does not have: it gets records
    /// only from the caller's thread.
    fn beneath(&self, packed: &Packed) -> Beneath {
        let position = packed.position();
        let slices = Arc::clone(&self.place(&position).shard.read().slices);
        let sealed = reads::newest_readable(&slices, &position);
        Beneath { slices, sealed }
    }

    /// Applies a record; `None` if the slices have changed since `beneath` was looked up, because
    /// the memtable's version may have moved to a slice.
    fn apply_above(&self, beneath: &Beneath, seq: Seq, packed: &Packed) -> Option<bool> {
        let mut shard = self.place(&packed.position()).shard.write();
        if !Arc::ptr_eq(&beneath.slices, &shard.slices) {
            return None;
        }
        let sealed = beneath.sealed.as_ref();
        if sealed.is_some_and(|sealed| !packed.supersedes(sealed)) {
            shard.stale_at = seq;
            return Some(false);
        }
        Some(self.upsert(&mut shard, seq, packed, sealed))
    }

    fn upsert(
        &self,
        shard: &mut Shard,
        seq: Seq,
        packed: &Packed,
        sealed: Option<&Packed>,
    ) -> bool {
        match shard.memtable.upsert(seq, packed) {
            Upsert::Stale => {
                shard.stale_at = seq;
                return false;
            }
            Upsert::Inserted => {
                if let Some(sealed) = sealed {
                    shard.note_gone(sealed);
                }
            }
            Upsert::Replaced(old) => {
                shard.note_gone(&old);
                shard.bytes -= cost(&old);
                self.bytes.fetch_sub(cost(&old), Ordering::Relaxed);
            }
        }
        shard.note_come(packed);
        shard.bytes += cost(packed);
        self.bytes.fetch_add(cost(packed), Ordering::Relaxed);
        true
    }

    /// Removes everything that a partition holds; returns its sum.
    ///
    /// Entries are applied in log order, so the whole memtable is older than the drop. So are the
    /// slices, except in recovery: slices with the effect of entries from `seq` on stay.
    pub(crate) fn drop_partition(&self, partition: Partition, seq: Seq) -> PartitionSummary {
        let Some(lock) = self.shard(partition) else {
            return PartitionSummary::default();
        };
        let mut shard = lock.write();
        let later = |slices: &Slices| -> Slices {
            let later = slices.iter().filter(|it| it.segment.file.after >= seq);
            later.cloned().collect()
        };
        let generations = later(&shard.generations);
        let later = later(&shard.slices);
        let sealed = if later.is_empty() {
            PartitionSummary::default()
        } else {
            shard.sealed
        };
        let rest = Shard {
            slices: later,
            generations,
            summary: sealed,
            sealed,
            dropped_at: seq,
            facts: Facts {
                watermark: Ballot::default(),
                ..shard.facts
            },
            ..Shard::default()
        };
        let dropped = std::mem::replace(&mut *shard, rest);
        drop(shard);
        // The lock is released before the records are freed.
        self.bytes.fetch_sub(dropped.bytes, Ordering::Relaxed);
        dropped.visible().unwrap_or(dropped.summary)
    }

    /// The sum of all summaries, taking one lock after another. Includes collected records where
    /// they have not been counted.
    pub(crate) fn total(&self) -> PartitionSummary {
        let mut total = PartitionSummary::default();
        for (_, place) in self.partitions.iter() {
            let shard = place.shard.read();
            total.merge(&shard.visible().unwrap_or(shard.summary));
        }
        total
    }

    /// The slices of a partition.
    pub(crate) fn slices(&self, partition: Partition) -> Slices {
        let shard = self.shard(partition);
        shard.map_or_else(Slices::default, |shard| Arc::clone(&shard.read().slices))
    }

    /// The slices of a partition, and their sum.
    pub(crate) fn sealed(&self, partition: Partition) -> (Slices, PartitionSummary) {
        let shard = self.shard(partition);
        shard.map_or_else(Default::default, |shard| {
            let shard = shard.read();
            (Arc::clone(&shard.slices), shard.sealed)
        })
    }

    /// The sealed part of a partition; its log position is at most `last`.
    pub(crate) fn sealed_through(&self, partition: Partition, last: Seq) -> SealedPartition {
        let mut sealed = SealedPartition {
            through: last,
            ..SealedPartition::of(Vec::new())
        };
        let Some(shard) = self.shard(partition) else {
            return sealed;
        };
        let shard = shard.read();
        let Facts {
            meta, watermark, ..
        } = shard.facts;
        for slot in shard.memtable.after(None) {
            sealed.through = sealed.through.min(Seq(slot.seq.0.saturating_sub(1)));
            sealed.needs_flush |= slot.packed.is_collected(watermark);
            sealed.needs_flush |= slot.packed.is_collected(meta.collecting);
        }
        let slices = shard.slices.iter().cloned();
        sealed.slices = slices.map(SealedSlice).collect();
        sealed.summary = shard.sealed;
        sealed
    }

    /// Records of the memtable after a position for which `wanted` is true, until `full` is true or
    /// [`RECORDS_PER_LOCK`] records were examined.
    pub(crate) fn stretch(
        &self,
        partition: Partition,
        after: Option<&Locator<&[u8]>>,
        wanted: impl Fn(Seq) -> bool,
        mut full: impl FnMut(&Packed) -> bool,
    ) -> Stretch {
        let mut stretch = Stretch {
            records: Vec::new(),
            last: None,
            slices: Slices::default(),
        };
        let Some(shard) = self.shard(partition) else {
            return stretch;
        };
        let shard = shard.read();
        stretch.slices = Arc::clone(&shard.slices);
        let mut slots = shard.memtable.after(after).peekable();
        let mut looked_at = 0;
        while let Some(slot) = slots.next() {
            looked_at += 1;
            let mut stop = looked_at == RECORDS_PER_LOCK;
            if wanted(slot.seq) {
                let record = (slot.seq, slot.packed.clone());
                stretch.records.push(record);
                stop |= full(&slot.packed);
            }
            if stop {
                stretch.last = slots.peek().map(|_| slot.packed.clone());
                break;
            }
        }
        stretch
    }

    /// The first damaged slice of a partition.
    pub(crate) fn damage(&self, partition: Partition) -> Option<Arc<Slice>> {
        let slices = self.slices(partition);
        slices.iter().find(|slice| slice.is_damaged()).cloned()
    }

    /// Read counters, summed over all partitions.
    pub(crate) fn read_counts(&self) -> [u64; reads::COUNTS] {
        reads::total(self.partitions.iter().map(|(_, place)| &place.counts))
    }

    /// All partitions that were ever accessed, in numeric order.
    pub(crate) fn partitions(&self) -> Vec<Partition> {
        let places = self.partitions.iter();
        places.map(|(partition, _)| partition).collect()
    }

    /// The partition of a key.
    fn partition(&self, position: &Locator<&[u8]>) -> Partition {
        let token = Token::of(&position.digest);
        self.partitions.partition_holding(position.namespace, token)
    }

    /// The partition that holds a key.
    fn place(&self, position: &Locator<&[u8]>) -> &Place {
        let token = Token::of(&position.digest);
        self.partitions.holding(position.namespace, token)
    }

    fn shard(&self, partition: Partition) -> Option<&RwLock<Shard>> {
        self.partitions.get(partition).map(|place| &place.shard)
    }
}

impl PartitionSummary {
    /// Wraps, as [`PartitionSummary::remove`] does.
    pub(crate) fn add(&mut self, packed: &Packed) {
        self.add_ref(packed.borrowed());
    }

    /// As [`PartitionSummary::add`].
    pub(crate) fn add_ref(&mut self, packed: PackedRef<'_>) {
        self.records = self.records.wrapping_add(1);
        let tombstones = u64::from(packed.is_tombstone());
        self.tombstones = self.tombstones.wrapping_add(tombstones);
        let payload_bytes = packed.payload_len() as u64;
        self.payload_bytes = self.payload_bytes.wrapping_add(payload_bytes);
        self.fingerprint = self.fingerprint.wrapping_add(packed.fingerprint());
    }

    /// Wraps: a difference of summaries is a summary modulo 2^64 and 2^128.
    pub(crate) fn remove(&mut self, packed: &Packed) {
        self.records = self.records.wrapping_sub(1);
        self.tombstones = self
            .tombstones
            .wrapping_sub(u64::from(packed.is_tombstone()));
        self.payload_bytes = self.payload_bytes.wrapping_sub(packed.payload_len() as u64);
        self.fingerprint = self.fingerprint.wrapping_sub(packed.fingerprint());
    }

    /// Wraps, as [`PartitionSummary::remove`] does.
    pub(crate) fn take_away(&mut self, other: &Self) {
        self.records = self.records.wrapping_sub(other.records);
        self.tombstones = self.tombstones.wrapping_sub(other.tombstones);
        self.payload_bytes = self.payload_bytes.wrapping_sub(other.payload_bytes);
        self.fingerprint = self.fingerprint.wrapping_sub(other.fingerprint);
    }

    /// Wraps, as [`PartitionSummary::remove`] does.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.records = self.records.wrapping_add(other.records);
        self.tombstones = self.tombstones.wrapping_add(other.tombstones);
        self.payload_bytes = self.payload_bytes.wrapping_add(other.payload_bytes);
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
    }
}

/// The newest version of a key in these slices.
///
/// # Errors
/// [`StoreError::Damaged`]: a damaged slice may have a newer one.
pub(crate) fn newest_sealed(
    slices: &[Arc<Slice>],
    position: &Locator<&[u8]>,
) -> Result<Option<Packed>, StoreError> {
    let mut answer = reads::Answer::default();
    answer.ask_all(slices, position, Reading::Wait, None);
    answer.newest()
}
