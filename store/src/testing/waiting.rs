//! Calls that wait, made of the calls of a node.

use tokio::sync::oneshot;
use torc_record::{Locator, Record, ReplicaBatch};
use torc_ring::{Partition, Token};

use crate::{Applied, PartitionSummary, Store, StoreError, StoreHealth};

/// Writes that return when they are durable, and reads that may wait for the disk. Like a replica,
/// a write accepts the partition again after a failure; unlike one, it flushes a full memtable
/// itself and tries again.
pub trait WaitingStore {
    /// Stores a record unless there is one with the same or a higher ballot.
    fn write(&self, record: Record) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Stores records like [`WaitingStore::write`]: up to 4 MiB in one batch of the log.
    fn write_batch(
        &self,
        records: Vec<Record>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Removes all records of a partition. Returns what it held before.
    fn drop_partition(
        &self,
        partition: Partition,
    ) -> impl Future<Output = Result<PartitionSummary, StoreError>> + Send;

    /// Many gets, answered in request order: from the page cache if possible.
    fn get_batch(&self, reads: &[Locator<&[u8]>]) -> Vec<Result<Option<Record>, StoreError>>;
}

impl WaitingStore for Store {
    async fn write(&self, record: Record) -> Result<(), StoreError> {
        self.write_batch(vec![record]).await
    }

    async fn write_batch(&self, records: Vec<Record>) -> Result<(), StoreError> {
        let partitions = self.shared().options.partitions;
        let change = |record: Record| {
            let partition = partitions.holding(record.namespace, Token::of(&record.digest));
            let records = vec![record];
            let batch = ReplicaBatch {
                records,
                ..ReplicaBatch::default()
            };
            (partition, batch)
        };
        store(self, records.into_iter().map(change).collect()).await
    }

    async fn drop_partition(&self, partition: Partition) -> Result<PartitionSummary, StoreError> {
        self.check_partition(partition)?;
        let before = self.summary(partition);
        let batch = ReplicaBatch {
            wipe: true,
            ..ReplicaBatch::default()
        };
        store(self, vec![(partition, batch)]).await?;
        Ok(before)
    }

    fn get_batch(&self, reads: &[Locator<&[u8]>]) -> Vec<Result<Option<Record>, StoreError>> {
        let cached = self.get_batch_cached(reads).into_iter();
        let both = cached.zip(reads);
        both.map(|(found, read)| found.unwrap_or_else(|| self.get(*read)))
            .collect()
    }
}

async fn store(
    store: &Store,
    mut changes: Vec<(Partition, ReplicaBatch)>,
) -> Result<(), StoreError> {
    store.shared().health.check()?;
    loop {
        if !store.room() && store.health() != StoreHealth::OutOfSpace {
            // If it fails, the write is refused, too, unless there is still some room.
            drop(store.flush().await);
        }
        let (done, outcome) = oneshot::channel();
        let tried = changes.clone();
        store.apply_many(tried, |applied| drop(done.send(applied)));
        let Ok(Applied { failed, .. }) = outcome.await else {
            return Err(StoreError::panicked());
        };
        let mut why = None;
        let mut again = Vec::with_capacity(failed.len());
        for (index, error) in failed {
            let (partition, batch) = std::mem::take(&mut changes[index]);
            // Fails only if the store has failed, which the error says.
            drop(store.resume(partition));
            again.push((partition, batch));
            if !matches!(error, StoreError::AfterFailure { .. }) {
                why.get_or_insert(error);
            }
        }
        match why {
            None if again.is_empty() => return Ok(()),
            None => {}
            Some(StoreError::NoRoom { .. }) if store.flush().await.is_ok() => {}
            Some(why) => return Err(why),
        }
        changes = again;
    }
}
