//! The peer RocksDB, with the settings that its documentation recommends for point lookups: Bloom
//! filters with 10 bits per key over whole keys, hash indexes in the blocks, a block cache of 1
//! GiB. A batch is one write to its log, synced. Built only with the feature `rocksdb`.

use std::path::Path;

use anyhow::Result;
use rocksdb::{DB, Options, WriteBatch, WriteOptions};

use super::engine::touched;
use super::grouped::Peer;
use crate::records::Pair;

const CACHE_MIB: u64 = 1024;

pub(super) struct RocksDb {
    db: DB,
}

impl RocksDb {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.optimize_for_point_lookup(CACHE_MIB);
        let db = DB::open(&options, dir)?;
        Ok(Self { db })
    }
}

impl Peer for RocksDb {
    fn commit(&self, batch: &[Pair]) -> Result<()> {
        let mut changes = WriteBatch::default();
        for pair in batch {
            changes.put(&pair.key, &pair.value);
        }
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        Ok(self.db.write_opt(changes, &durable)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        let found = self.db.get_pinned(key)?;
        Ok(found.map(|value| touched(&value)))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<usize> {
        let mut found = 0;
        for value in self.db.multi_get(keys) {
            found += usize::from(value?.map(|value| touched(&value)).is_some());
        }
        Ok(found)
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }
}
