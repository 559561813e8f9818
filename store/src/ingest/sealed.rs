//! The sealed part of a partition, for copying it to another node.

use std::sync::Arc;

use bytes::Bytes;

use super::SliceInfo;
use crate::segment::Slice;
use crate::slice::SliceHeader;
use crate::{PartitionSummary, Seq, StoreError};

/// The slices of a partition at one moment. They stay readable as long as this lives, also
/// when they were compacted or dropped meanwhile.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SealedPartition {
    /// Its slices; their order means nothing.
    pub slices: Vec<SealedSlice>,
    /// What they come to, superseded versions left out.
    pub summary: PartitionSummary,
    /// What is not in the slices has an entry above this one in the log:
    /// [`Store::scan_since`](crate::Store::scan_since) gives it.
    pub through: Seq,
}

impl SealedPartition {
    /// Slices that have no tail in the log.
    #[must_use]
    pub fn of(slices: Vec<SealedSlice>) -> Self {
        Self {
            slices,
            summary: PartitionSummary::default(),
            through: Seq(0),
        }
    }
}

/// A slice, readable byte for byte.
#[derive(Debug, Clone)]
pub struct SealedSlice(pub(crate) Arc<Slice>);

impl SealedSlice {
    /// What a receiver must know first. Reads the digest from the file.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: the disk cannot read it.
    pub fn info(&self) -> Result<SliceInfo, StoreError> {
        let digest = self.0.digest();
        Ok(SliceInfo {
            len: self.0.len(),
            digest: digest.map_err(|what| self.0.note_damage(what))?,
        })
    }

    /// Records in it, and bytes of their keys and values.
    #[must_use]
    pub fn sizes(&self) -> (u64, u64) {
        let held = self.0.header().map(SliceHeader::held);
        held.map_or((0, 0), |held| (held.records, held.payload_bytes))
    }

    /// Number of its segment and its row there, for people.
    #[must_use]
    pub fn id(&self) -> (u64, u32) {
        self.0.id()
    }

    /// Up to `len` of its bytes from `at` on; none at the end. May wait for the disk.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: the disk cannot read them.
    pub fn read(&self, at: u64, len: usize) -> Result<Bytes, StoreError> {
        if at == 0 {
            self.0.will_need();
        }
        let read = self.0.read(at, len);
        read.map(Bytes::from)
            .map_err(|what| self.0.note_damage(what))
    }

    /// Remembers that a receiver found it damaged: it is refused from now on.
    #[must_use]
    pub fn note_damage(&self) -> StoreError {
        self.0
            .note_damage("a node that it was sent to found it damaged")
    }
}
