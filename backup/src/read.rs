//! Reads a partition of a backup.

use torc_record::{Digest, DigestKey, Locator, NamespaceId, Record};
use torc_ring::{Partition, Partitions, Token};
use torc_store::bulk::{LooseSlice, MergedRecords};

use crate::{Backup, BackupError, Location, PackSlice};

/// Limit of all slices of a partition, bytes, which are in memory together.
const LONGEST_PARTITION: u64 = 8 << 30;

/// The checked slices of a partition.
#[derive(Debug)]
pub struct PartitionSlices {
    partition: Partition,
    slices: Vec<LooseSlice>,
}

impl Backup {
    /// The number of partitions per layer.
    ///
    /// # Errors
    /// [`BackupError::Location`]: the number is impossible.
    pub fn partitions(&self) -> Result<Partitions, BackupError> {
        let partitions = Partitions::new(self.plan.partitions);
        partitions.map_err(|error| BackupError::damaged(&self.plan.name, error.to_string()))
    }

    /// Reads a partition into memory.
    ///
    /// # Errors
    /// [`BackupError::Location`].
    pub async fn read_partition(
        &self,
        location: &Location,
        partition: Partition,
    ) -> Result<PartitionSlices, BackupError> {
        let line = self.line(partition).map(|line| line.slices);
        let wanted = line.unwrap_or_default();
        let total = wanted
            .iter()
            .try_fold(0_u64, |sum, it| sum.checked_add(it.len));
        if total.is_none_or(|total| total > LONGEST_PARTITION) {
            let what = format!("partition {partition} has more than 8 GiB of slices");
            return Err(BackupError::damaged(&self.plan.name, what));
        }
        let mut slices = Vec::with_capacity(wanted.len());
        for slice in &wanted {
            slices.push(read_slice(location, slice).await?);
        }
        let partitions = self.partitions()?;
        let is_of = |it: &LooseSlice| it.partition() == partition && it.partitions() == partitions;
        if !slices.iter().all(is_of) {
            let what = format!("it names slices of another partition for {partition}");
            return Err(BackupError::damaged(&self.plan.name, what));
        }
        Ok(PartitionSlices { partition, slices })
    }

    /// The record of a key, tombstones included. Reads the slices of one partition.
    ///
    /// # Errors
    /// As [`read_partition`](Self::read_partition).
    pub async fn get(
        &self,
        location: &Location,
        namespace: NamespaceId,
        key: &[u8],
    ) -> Result<Option<Record>, BackupError> {
        let at = Locator {
            digest: Digest::of(&DigestKey(self.plan.digest_key), namespace, key),
            namespace,
            key,
        };
        let partition = self.partitions()?.holding(namespace, Token::of(&at.digest));
        let slices = self.read_partition(location, partition).await?;
        let mut newest: Option<Record> = None;
        for slice in &slices.slices {
            let found = slice.get(at);
            let found = found.map_err(|what| slices.damaged(what))?;
            if let Some(found) = found
                && newest
                    .as_ref()
                    .is_none_or(|newest| found.supersedes(newest))
            {
                newest = Some(found);
            }
        }
        Ok(newest)
    }
}

async fn read_slice(location: &Location, slice: &PackSlice) -> Result<LooseSlice, BackupError> {
    let object = slice.object();
    let bytes = location.read_range(&object, slice.range()).await?;
    LooseSlice::new(bytes, &slice.digest)
        .map_err(|what| BackupError::damaged(&object, format!("at {}: {what}", slice.at)))
}

impl PartitionSlices {
    /// The records in ring order: of each key the newest, tombstones included.
    ///
    /// # Errors
    /// [`BackupError::Location`].
    pub fn records(
        &self,
    ) -> Result<impl Iterator<Item = Result<Record, BackupError>> + '_, BackupError> {
        let merged = MergedRecords::of(&self.slices).map_err(|what| self.damaged(what))?;
        Ok(merged.map(|record| record.map_err(|what| self.damaged(what))))
    }

    /// Whether each record is as it was written, has the digest of its key, and is found by it.
    pub(crate) fn verify(&self, cluster: &DigestKey) -> Result<(), BackupError> {
        let digest_of = |namespace, key: &[u8]| Some(Digest::of(cluster, namespace, key));
        let mut slices = self.slices.iter();
        slices
            .try_for_each(|slice| slice.verify(digest_of))
            .map_err(|what| self.damaged(what))
    }

    fn damaged(&self, what: &str) -> BackupError {
        BackupError::damaged(&format!("partition {}", self.partition), what)
    }
}
