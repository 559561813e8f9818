//! Generations: immutable records that arrive as slices and are looked up and dropped separately
//! from others.
//!
//! Their records are never written one by one. They take no part in summaries, scans of partitions,
//! tails and compaction; dropping a partition drops its generations as well. A key of a generation
//! without a slice here is [`StoreError::NotHeld`], never absent: only the caller can know that the
//! generation has no keys in the partition.

use std::collections::BTreeSet;

use torc_record::{Locator, NamespaceId, Record};
use torc_ring::Partition;

use crate::ingest::SealedSlice;
use crate::publish::Change;
use crate::segment::Slice;
use crate::slice::SliceHeader;
use crate::{ScanLimits, ScanPage, Store, StoreError};

impl Store {
    /// A partition's slice of a generation, unless it is damaged.
    #[must_use]
    pub fn generation(&self, partition: Partition, generation: NamespaceId) -> Option<SealedSlice> {
        let slice = self.shared().table.generation(partition, generation);
        slice.map(SealedSlice)
    }

    /// The generations that this node has slices of. O(partitions).
    #[must_use]
    pub fn generations(&self) -> BTreeSet<NamespaceId> {
        let all = self.shared().table.generations();
        let slices = all.iter().flat_map(|(_, slices)| slices.iter());
        slices
            .filter_map(|slice| slice.header()?.generation())
            .collect()
    }

    /// A page of a partition's records of a generation, in ring order.
    ///
    /// # Errors
    /// [`StoreError::NotHeld`], [`StoreError::Damaged`], [`StoreError::Failed`],
    /// [`StoreError::Closed`].
    pub fn scan_generation(
        &self,
        partition: Partition,
        generation: NamespaceId,
        after: Option<&Locator>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        self.check_partition(partition)?;
        let shared = self.shared();
        shared.health.check()?;
        shared
            .table
            .generation_page(partition, generation, after, limits)
    }

    /// The record of a slot, in a partition's slice of a generation whose keys have ids. `None`: the
    /// slice has no such slot, or its keys have no ids. Its value is the slot, as four
    /// little-endian bytes. One read.
    ///
    /// # Errors
    /// [`StoreError::NotHeld`], [`StoreError::Damaged`], [`StoreError::Failed`],
    /// [`StoreError::Closed`].
    pub fn numbered(
        &self,
        partition: Partition,
        generation: NamespaceId,
        slot: u32,
    ) -> Result<Option<Record>, StoreError> {
        self.check_partition(partition)?;
        let shared = self.shared();
        shared.health.check()?;
        let slice = shared.table.generation(partition, generation);
        let slice = slice.ok_or(StoreError::NotHeld {
            partition,
            generation,
        })?;
        slice.numbered(slot)
    }

    /// Durably drops slices of generations: those for which `keeps` is false, and damaged ones.
    /// Returns their number. A file is removed once no slice in it is live. Blocks.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`]: nothing was changed.
    /// [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn retain_generations(
        &self,
        keeps: impl Fn(Partition, NamespaceId) -> bool,
    ) -> Result<usize, StoreError> {
        let shared = self.shared();
        shared.health.check()?;
        let going = || {
            let all = shared.table.generations();
            let slices = all.iter().flat_map(|(_, slices)| slices.iter());
            let stays = |slice: &Slice| {
                let of = slice.header().and_then(SliceHeader::generation);
                !slice.is_damaged() && of.is_some_and(|of| keeps(slice.partition(), of))
            };
            slices
                .filter(|slice| !stays(slice))
                .cloned()
                .collect::<Vec<_>>()
        };
        if going().is_empty() {
            return Ok(0);
        }
        let decide = || {
            Ok(Change {
                removed: going(),
                ..Change::default()
            })
        };
        let gone = shared.publish(decide, |change| {
            shared.table.remove_generations(&change.removed);
            change.removed.len()
        });
        gone.inspect_err(|error| shared.health.note(error))
    }
}
