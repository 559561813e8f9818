//! Reads generations from this node's replicas.

use std::sync::Arc;

use torc_record::NamespaceId;
use torc_ring::Partition;
use torc_store::{Cursor, ScanLimits, ScanPage, StoreError};

use super::Registers;

impl Registers {
    /// Whether this node can say for every key of a partition if a generation has it.
    pub(crate) fn has_generation(&self, partition: Partition, id: NamespaceId) -> bool {
        self.keys.load().is_without(partition, id) || self.store.generation(partition, id).is_some()
    }

    /// A page of this node's copy of a generation.
    ///
    /// # Errors
    /// [`StoreError::NotHeld`], and other errors of the store.
    pub(crate) async fn page_of_generation(
        self: &Arc<Self>,
        partition: Partition,
        id: NamespaceId,
        after: Option<Cursor>,
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
        reading.await.unwrap_or(Err(StoreError::Closed))
    }
}
