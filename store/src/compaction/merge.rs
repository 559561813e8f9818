//! Merges slices of a partition into the input of a new one.

use std::ops::Range;
use std::sync::Arc;

use torc_record::{Ballot, Digest, to_usize};
use torc_ring::{Partition, Partitions};

use crate::StoreError;
use crate::format::draw_salt;
use crate::packed::Packed;
use crate::partition_table::{Damaged, MergedSlices};
use crate::segment::Slice;
use crate::slice::{Kind, SliceInput};

/// The newest version of each key of some slices: checked copies in ring order.
pub(super) struct Merged {
    bytes: Vec<u8>,
    records: Vec<Range<usize>>,
    digests: Vec<Digest>,
    /// Newest versions that were collected and left out.
    pub(super) dropped: Vec<Packed>,
}

impl Merged {
    /// Reads the slices. Leaves out records collected up to the watermark, unless one of `others`
    /// may hold an older version of the key.
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
            bytes: Vec::with_capacity(headers.map(|one| to_usize(one.records_len)).sum()),
            records: Vec::new(),
            digests: Vec::new(),
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

    fn push(&mut self, packed: &Packed) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packed.bytes());
        self.records.push(start..self.bytes.len());
        self.digests.push(packed.digest());
    }

    /// The inputs of new slices, from a layer on; none if there are no records.
    pub(super) fn layers(
        &self,
        partition: Partition,
        partitions: Partitions,
        layer: u8,
        gate_rate: f64,
    ) -> Vec<SliceInput<'_>> {
        if self.records.is_empty() {
            return Vec::new();
        }
        let records = self.records.iter().cloned();
        let input = SliceInput {
            kind: Kind::Records,
            partition,
            partitions,
            records: records.map(|range| &self.bytes[range]).collect(),
            digests: self.digests.clone(),
            layer,
            salt: Some(draw_salt()),
            gate_rate,
        };
        input.layers()
    }
}

pub(super) fn may_hold(slices: &[Arc<Slice>], digest: &Digest) -> bool {
    slices.iter().any(|slice| slice.may_hold(digest))
}
