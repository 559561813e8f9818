//! The store of one node.
use std::sync::Arc;

use torc_record::{Digest, NamespaceId, Record};
use torc_ring::Partition;

use crate::fs::Fs;
use crate::*;

/// Sequence number of an entry of the commit log. The first has 1; 0 is before all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// The durable records of one node. Cheap to clone; all clones are one store.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<()>,
}

impl Store {
    /// Opens.
    pub fn open(options: StoreOptions) -> Result<(Self, Recovery), StoreError> {
        todo!("{options:?}")
    }
    /// Opens on a file system.
    pub fn open_with(
        options: StoreOptions,
        fs: Arc<dyn Fs>,
    ) -> Result<(Self, Recovery), StoreError> {
        todo!("{options:?} {fs:?}")
    }
    /// The record of a key, tombstones included.
    pub fn get(
        &self,
        namespace: NamespaceId,
        digest: &Digest,
        key: &[u8],
    ) -> Result<Option<Record>, StoreError> {
        todo!("{:?} {namespace:?} {digest:?} {key:?}", self.inner)
    }
    /// Stores durably.
    pub async fn write(&self, record: Record) -> Result<(), StoreError> {
        todo!("{record:?}")
    }
    /// Stores durably.
    pub async fn write_batch(&self, records: Vec<Record>) -> Result<(), StoreError> {
        todo!("{records:?}")
    }
    /// Removes what a partition holds, durably.
    pub async fn drop_partition(&self, partition: Partition) -> Result<DropReport, StoreError> {
        todo!("{partition:?}")
    }
    /// A page.
    pub fn scan(
        &self,
        partition: Partition,
        after: Option<&Cursor>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        todo!("{partition:?} {after:?} {limits:?}")
    }
    /// A page of newer records.
    pub fn scan_since(
        &self,
        partition: Partition,
        since: Seq,
        after: Option<&Cursor>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        todo!("{partition:?} {since:?} {after:?} {limits:?}")
    }
    /// What a partition holds.
    pub fn summary(&self, partition: Partition) -> PartitionSummary {
        todo!("{partition:?}")
    }
    /// Newest applied entry.
    pub fn last_seq(&self) -> Seq {
        todo!()
    }
    /// Writes a checkpoint.
    pub async fn checkpoint(&self) -> Result<CheckpointReport, StoreError> {
        todo!()
    }
    /// Counters.
    pub fn stats(&self) -> StoreStats {
        todo!()
    }
    /// Health.
    pub fn health(&self) -> StoreHealth {
        todo!()
    }
    /// Reads a small durable value. Blocks on the disk.
    pub fn meta_get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        todo!("{name}")
    }
    /// Sets a small durable value. Blocks for a few syncs.
    pub fn meta_set(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        todo!("{name} {bytes:?}")
    }
    /// Flushes, stops and releases the directory.
    pub async fn close(self) -> Result<(), StoreError> {
        todo!()
    }
}
