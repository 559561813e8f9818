//! Reading a file of slices.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use torc_record::{Digest, KeyId, Locator, NamespaceId, Record};
use torc_ring::{Partition, Partitions, Token};

use super::SliceFileInfo;
use crate::fs::{Fs, RealFs};
use crate::ingest::SealedSlice;
use crate::partition_table::newest_sealed;
use crate::segment::{Slice, open_slice_file};
use crate::{PartitionSummary, StoreError};

/// An open file of slices. The indexes of its slices are in memory and checked; records are read
/// from the file on demand.
#[derive(Debug)]
pub struct SliceFile {
    slices: BTreeMap<Partition, Vec<Arc<Slice>>>,
    partitions: Partitions,
}

impl SliceFile {
    /// Opens a file with the length and table that `info` gives.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::NewerFormat`], and [`StoreError::Corrupt`] if it is not
    /// that file. Damage of single slices is reported when they are read.
    pub fn open(
        path: &Path,
        partitions: Partitions,
        info: &SliceFileInfo,
    ) -> Result<Self, StoreError> {
        let opened = RealFs.open(path).map_err(StoreError::io("open", path))?;
        let all = open_slice_file(Arc::from(opened), path, partitions, info)?;
        let mut slices: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for slice in all {
            slices.entry(slice.partition()).or_default().push(slice);
        }
        Ok(Self { slices, partitions })
    }

    /// The record of a key, if the file has it. Reads at most one record.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn get(&self, at: Locator<&[u8]>) -> Result<Option<Record>, StoreError> {
        let partition = self.partitions.holding(at.namespace, Token::of(&at.digest));
        let Some(slices) = self.slices.get(&partition) else {
            return Ok(None);
        };
        let found = newest_sealed(slices, &at)?;
        Ok(found.map(|packed| packed.unpack()))
    }

    /// The slot of a digest in its partition's slice, whether or not the slice has the digest.
    #[must_use]
    pub fn slot(&self, key: KeyId) -> Option<usize> {
        let partition = self
            .partitions
            .holding(key.namespace, Token::of(&key.digest));
        let slice = self.slices.get(&partition)?.first()?;
        Some(slice.view().ok()?.mphf()?.slot(&key.digest))
    }

    /// The record of a slot, if the partition's slice numbers its keys and has the slot. One read.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn numbered(&self, partition: Partition, slot: u32) -> Result<Option<Record>, StoreError> {
        let slice = self.slices.get(&partition).and_then(|held| held.first());
        slice.map_or(Ok(None), |slice| slice.numbered(slot))
    }

    /// The slices of a partition, to be copied to a node.
    #[must_use]
    pub fn slices(&self, partition: Partition) -> Vec<SealedSlice> {
        let slices = self.slices.get(&partition).into_iter().flatten();
        slices.map(|slice| SealedSlice(Arc::clone(slice))).collect()
    }

    /// The partitions that it has slices of, in the order of their numbers.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> + '_ {
        self.slices.keys().copied()
    }

    /// RAM of the indexes, bytes: gates, MPHFs and offsets.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        let slices = self.slices.values().flatten();
        let headers = slices.filter_map(|slice| slice.header());
        headers.map(|header| header.lookup_len() as u64).sum()
    }

    /// Reads everything: checks that every record is as it was written, and that lookups find every
    /// key. `digest_of` gives the correct digest of a key. Takes 0.2 us per record.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: the first damaged slice.
    pub fn verify(
        &self,
        digest_of: impl Fn(NamespaceId, &[u8]) -> Option<Digest>,
    ) -> Result<PartitionSummary, StoreError> {
        let mut summary = PartitionSummary::default();
        for slice in self.slices.values().flatten() {
            let verified = slice.view().and_then(|view| view.verify(&digest_of));
            verified.map_err(|what| slice.note_damage(what))?;
            if let Some(header) = slice.header() {
                summary.merge(&header.held());
            }
        }
        Ok(summary)
    }
}
