//! The peer fjall 2: one partition, a batch of its journal a commit, fdatasynced.

use std::path::Path;

use anyhow::Result;
use fjall::{Config, Keyspace, PartitionCreateOptions, PartitionHandle, PersistMode};

use super::grouped::Peer;
use crate::records::Pair;

pub(super) struct Fjall {
    keyspace: Keyspace,
    records: PartitionHandle,
}

impl Fjall {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        // Its background sync is not needed: every commit syncs.
        let keyspace = Config::new(dir).fsync_ms(None).open()?;
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
        Ok(self.records.get(key)?.map(|value| value.len()))
    }
}
