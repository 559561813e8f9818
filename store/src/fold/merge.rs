//! Several slices of a partition as the input of one.

use std::ops::Range;
use std::sync::Arc;

use torc_record::{Ballot, Digest, HybridTime};
use torc_ring::Partitions;

use crate::format::draw_salt;
use crate::holdings::{Damaged, MergedSlices};
use crate::packed::Packed;
use crate::segment::Slice;
use crate::slice::SliceInput;
use crate::{PartitionSummary, StoreError};

/// The newest version of each key of some slices: copies, checked, in ring order.
pub(super) struct Merged {
    bytes: Vec<u8>,
    records: Vec<Range<usize>>,
    digests: Vec<Digest>,
    held: PartitionSummary,
    highest_time: HybridTime,
    /// Newest versions that were collected and are left out.
    pub(super) dropped: Vec<Packed>,
}

impl Merged {
    /// Reads the slices. What was collected up to the watermark is left out, unless one of
    /// the `others` may hold an older version of its key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(super) fn of(
        inputs: &[Arc<Slice>],
        others: &[Arc<Slice>],
        watermark: Ballot,
    ) -> Result<Self, StoreError> {
        let headers = inputs.iter().filter_map(|slice| slice.header());
        let mut merged = Self {
            bytes: Vec::with_capacity(headers.clone().map(|one| one.records_len as usize).sum()),
            records: Vec::new(),
            digests: Vec::new(),
            held: PartitionSummary::default(),
            highest_time: headers
                .map(|one| one.highest_time)
                .max()
                .unwrap_or_default(),
            dropped: Vec::new(),
        };
        for slice in inputs {
            slice.will_need();
        }
        let mut records = MergedSlices::after(inputs.iter(), None, Damaged::Sort)?;
        while let Some(packed) = records.next()? {
            if packed.is_collected(watermark) && !may_hold(others, &packed.digest()) {
                merged.dropped.push(packed);
            } else {
                merged.push(&packed);
            }
        }
        Ok(merged)
    }

    /// What its records come to.
    pub(super) fn held(&self) -> PartitionSummary {
        self.held
    }

    fn push(&mut self, packed: &Packed) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packed.bytes());
        self.records.push(start..self.bytes.len());
        self.digests.push(packed.digest());
        self.held.add(packed);
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn input(
        &self,
        like: &Slice,
        partitions: Partitions,
        gate_rate: f64,
    ) -> SliceInput<'_> {
        let records = self.records.iter().cloned();
        SliceInput {
            partition: like.partition(),
            partitions,
            records: records.map(|range| &self.bytes[range]).collect(),
            digests: self.digests.clone(),
            held: self.held,
            highest_time: self.highest_time,
            salt: draw_salt(),
            gate_rate,
        }
    }
}

pub(super) fn may_hold(slices: &[Arc<Slice>], digest: &Digest) -> bool {
    slices.iter().any(|slice| slice.may_hold(digest))
}
