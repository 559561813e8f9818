//! Torc's own store, used as in a node.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::BoxFuture;
use torc_record::{
    Ballot, Digest, DigestKey, Epoch, HybridTime, Key, Locator, NamespaceId, NodeSlot, Record,
    ReplicaBatch, State,
};
use torc_ring::{Partitions, Token};
use torc_store::{Store, StoreOptions};

use super::engine::{Engine, touched};
use crate::records::Pair;

/// The digest key of the suite.
pub(super) const CLUSTER: DigestKey = DigestKey([7; 32]);

pub(super) struct Torc {
    store: Store,
    partitions: Partitions,
    time: AtomicU64,
}

impl Torc {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let options = StoreOptions::new(dir);
        let partitions = options.partitions;
        let (store, recovery) = Store::open(options)?;
        Ok(Self {
            store,
            partitions,
            time: AtomicU64::new(recovery.highest_time.0 + 1),
        })
    }

    /// Stores records as a node does, all with one call. A node refuses writes while there is no
    /// room; this waits.
    async fn apply(&self, records: Vec<Record>) -> Result<()> {
        while !self.store.room() {
            self.store.flush().await?;
        }
        let changes = records.into_iter().map(|record| {
            let token = Token::of(&record.digest);
            let partition = self.partitions.holding(record.namespace, token);
            let records = vec![record];
            let batch = ReplicaBatch {
                records,
                ..ReplicaBatch::default()
            };
            (partition, batch)
        });
        let (done, applied) = oneshot::channel();
        self.store
            .apply_many(changes.collect::<Vec<_>>(), |applied| {
                drop(done.send(applied));
            });
        match applied.await?.failed.pop() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// A record with the next version. Hashes the key, as its write in a cluster does.
    fn record(&self, pair: Pair) -> Result<Record> {
        Ok(Record {
            namespace: NamespaceId::DEFAULT,
            digest: located(&pair.key).digest,
            key: Key::new(pair.key)?,
            ballot: Ballot {
                epoch: Epoch(1),
                time: HybridTime(self.time.fetch_add(1, Ordering::Relaxed)),
                slot: NodeSlot(0),
            },
            origin: None,
            state: State::Value {
                value: Bytes::from(pair.value),
                expires_at_ms: None,
            },
        })
    }
}

/// The locator of a key of the suite.
pub(super) fn located(key: &[u8]) -> Locator<&[u8]> {
    let namespace = NamespaceId::DEFAULT;
    Locator {
        digest: Digest::of(&CLUSTER, namespace, key),
        namespace,
        key,
    }
}

/// Like [`Engine::get`] for a caller that has hashed the key, such as a node that received a digest.
pub(super) fn get_hashed(store: &Store, at: Locator<&[u8]>) -> Result<Option<usize>> {
    let found = store.get(at)?;
    Ok(found.as_ref().and_then(len_of))
}

fn len_of(record: &Record) -> Option<usize> {
    match &record.state {
        State::Value { value, .. } => Some(touched(value)),
        State::Tombstone => None,
    }
}

impl Engine for Torc {
    fn put(&self, pair: Pair) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.apply(vec![self.record(pair)?]).await })
    }

    fn put_many(&self, pairs: Vec<Pair>) -> Result<()> {
        let records: Result<Vec<Record>> =
            pairs.into_iter().map(|pair| self.record(pair)).collect();
        block_on(self.apply(records?))
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        get_hashed(&self.store, located(key))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<usize> {
        let reads: Vec<_> = keys.iter().map(|key| located(key)).collect();
        let mut found = 0;
        for (record, at) in self.store.get_batch_cached(&reads).into_iter().zip(&reads) {
            let record = record.unwrap_or_else(|| self.store.get(*at))?;
            found += usize::from(record.as_ref().and_then(len_of).is_some());
        }
        Ok(found)
    }

    /// Flushes the memtable and compacts every partition into one slice.
    fn settle(&self) -> Result<()> {
        block_on(self.store.flush())?;
        block_on(self.store.compact())?;
        Ok(())
    }

    fn torc(&self) -> Option<&Store> {
        Some(&self.store)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(block_on(self.store.close())?)
    }
}
