//! Generations: immutable records that come as slices, are looked up by themselves, and go as a whole.
//!
//! Nothing of them is ever written record by record. They take no part in summaries, scans of
//! partitions, tails and compaction; dropping a partition drops what it has of them, too. A key of a
//! generation that this node has no slice of is [`StoreError::NotHeld`], never absent: whoever knows
//! that the generation has no keys in the partition says so.

use std::collections::BTreeSet;

use torc_record::NamespaceId;
use torc_ring::Partition;

use crate::ingest::SealedSlice;
use crate::publish::Change;
use crate::segment::Slice;
use crate::slice::SliceHeader;
use crate::{Cursor, ScanLimits, ScanPage, Store, StoreError};

impl Store {
    /// The slice that a partition has of a generation, unless it is damaged.
    #[must_use]
    pub fn generation(&self, partition: Partition, generation: NamespaceId) -> Option<SealedSlice> {
        let slice = self.shared().table.generation(partition, generation);
        slice.map(SealedSlice)
    }

    /// The generations that this node has slices of. Looks at every partition.
    #[must_use]
    pub fn generations(&self) -> BTreeSet<NamespaceId> {
        let all = self.shared().table.generations();
        let slices = all.iter().flat_map(|(_, slices)| slices.iter());
        slices
            .filter_map(|slice| slice.header()?.generation())
            .collect()
    }

    /// A page of what a partition has of a generation, in ring order.
    ///
    /// # Errors
    /// [`StoreError::NotHeld`], [`StoreError::Damaged`], [`StoreError::Failed`],
    /// [`StoreError::Closed`].
    pub fn scan_generation(
        &self,
        partition: Partition,
        generation: NamespaceId,
        after: Option<&Cursor>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        self.check_partition(partition)?;
        let shared = self.shared();
        shared.health.check()?;
        shared
            .table
            .generation_page(partition, generation, after, limits)
    }

    /// Drops slices of generations, durably: those that `keeps` does not keep, and damaged ones.
    /// Returns how many went. Their files go when nothing else in them counts. For a thread that may
    /// wait.
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
