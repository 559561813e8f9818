//! The peer fjall 2: one partition, one batch of its journal per commit, fdatasynced. Bloom filters
//! with 10 bits per key, its default; its cache is as large as that of the others.

use std::path::Path;

use anyhow::Result;
use fjall::{Config, Keyspace, PartitionCreateOptions, PartitionHandle, PersistMode};

use super::engine::touched;
use super::grouped::Peer;
use crate::records::Pair;

const CACHE_BYTES: u64 = 1 << 30;

pub(super) struct Fjall {
    keyspace: Keyspace,
    records: PartitionHandle,
}

impl Fjall {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        // Its background sync is not needed: every commit syncs.
        let config = Config::new(dir).fsync_ms(None).cache_size(CACHE_BYTES);
        let keyspace = config.open()?;
        let records = keyspace.open_partition("records", PartitionCreateOptions::default())?;
        Ok(Self { keyspace, records })
    }
}

impl Peer for Fjall {
    fn commit(&self, batch: &[Pair]) -> Result<()> {
        let mut changes = self
            .keyspace
            .batch()
            .durability(Some(PersistMode::SyncData));
        for pair in batch {
            changes.insert(&self.records, &*pair.key, &*pair.value);
        }
        Ok(changes.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.records.get(key)?.map(|value| touched(&value)))
    }

    fn settle(&self) -> Result<()> {
        self.records.rotate_memtable_and_wait()?;
        Ok(self.records.major_compact()?)
    }
}
