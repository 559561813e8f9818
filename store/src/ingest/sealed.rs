//! The sealed part of a partition, for copying it to another node.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use torc_record::NamespaceId;

use super::file::SliceInfo;
use crate::segment::Slice;
use crate::slice::SliceHeader;
use crate::{PartitionSummary, Seq, StoreError};

/// The slices of a partition at one moment. They stay readable while this exists, even if they are
/// compacted or dropped meanwhile.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SealedPartition {
    /// Its slices, in any order.
    pub slices: Vec<SealedSlice>,
    /// Their sum, without superseded versions.
    pub summary: PartitionSummary,
    /// All records that are not in the slices have log entries above this one:
    /// [`Store::scan_since`](crate::Store::scan_since) returns them.
    pub through: Seq,
    /// The memtable has a record that a collection drops, or drops if one that has begun ends. The
    /// slices may have versions that only this record hides, and after its end a scan does not
    /// return it. Flush before you send the slices to a new replica.
    pub needs_flush: bool,
}

impl SealedPartition {
    /// Slices without a tail in the log.
    #[must_use]
    pub fn of(slices: Vec<SealedSlice>) -> Self {
        Self {
            slices,
            summary: PartitionSummary::default(),
            through: Seq(0),
            needs_flush: false,
        }
    }
}

/// A slice, readable byte for byte.
#[derive(Debug, Clone)]
pub struct SealedSlice(pub(crate) Arc<Slice>);

impl SealedSlice {
    /// What a receiver must know in advance. Reads the digest from the file.
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

    /// Its records by namespace, tombstones included. Reads every record, 0.1 us each, unless it is a slice of a
    /// generation.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: a record cannot be read.
    pub fn namespaces(&self) -> Result<BTreeMap<NamespaceId, u64>, StoreError> {
        let counted = self.0.view().and_then(|view| view.namespaces());
        counted.map_err(|what| self.0.note_damage(what))
    }

    /// Number of its segment and its row there, for display.
    #[must_use]
    pub fn id(&self) -> (u64, u32) {
        self.0.id()
    }

    /// Up to `len` of its bytes from `at` on; empty at the end. May block on the disk.
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

    /// Records that a receiver found it damaged: reads refuse it from now on.
    #[must_use]
    pub fn note_damage(&self) -> StoreError {
        self.0
            .note_damage("the receiving node found the slice damaged")
    }
}
