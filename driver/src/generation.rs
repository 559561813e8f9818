//! Reads generations from this node's replicas.

use std::sync::Arc;

use torc_record::{Key, Locator, NamespaceId, Record};
use torc_ring::Partition;
use torc_store::{ScanLimits, ScanPage, StoreError};

use super::Registers;

impl Registers {
    /// Whether this node can say for every key of a partition if a generation has it.
    pub fn has_generation(&self, partition: Partition, id: NamespaceId) -> bool {
        self.keys.load().is_without(partition, id) || self.store.generation(partition, id).is_some()
    }

    /// A record of this node's store as clients read it; `None` if it is of an unknown generation.
    pub fn as_read(&self, record: Record) -> Option<Record> {
        self.keys.load().as_read(record)
    }

    /// A page of this node's copy of a generation.
    ///
    /// # Errors
    /// [`StoreError::NotHeld`], and other errors of the store.
    pub async fn page_of_generation(
        self: &Arc<Self>,
        partition: Partition,
        id: NamespaceId,
        after: Option<Locator>,
    ) -> Result<ScanPage, StoreError> {
        if self.keys.load().is_without(partition, id) {
            return Ok(ScanPage {
                records: Vec::new(),
                next: None,
                done: true,
            });
        }
        let store = self.store.clone();
        let reading = tokio::task::spawn_blocking(move || {
            store.scan_generation(partition, id, after.as_ref(), ScanLimits::default())
        });
        let mut page = reading.await.unwrap_or(Err(StoreError::Closed))?;
        let keys = self.keys.load();
        let records = page.records.into_iter().map(|it| keys.as_read(it));
        let records: Option<Vec<_>> = records.collect();
        page.records = records.ok_or(StoreError::NotHeld {
            partition,
            generation: id,
        })?;
        Ok(page)
    }

    /// The key in a slot of this node's copy of a generation that numbers its keys.
    ///
    /// # Errors
    /// [`StoreError::NotHeld`], and other errors of the store.
    pub async fn key_in(
        self: &Arc<Self>,
        partition: Partition,
        id: NamespaceId,
        slot: u32,
    ) -> Result<Option<Key>, StoreError> {
        let store = self.store.clone();
        let reading = tokio::task::spawn_blocking(move || store.numbered(partition, id, slot));
        let found = reading.await.unwrap_or(Err(StoreError::Closed))?;
        Ok(found.map(|record| record.key))
    }
}
