//! The peer LMDB, through heed: one database, one transaction per batch, synced on commit as by
//! default. Gets share a read transaction, which is renewed after a commit, as its documentation
//! recommends.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions, RoTxn, WithoutTls};

use super::engine::touched;
use super::grouped::Peer;
use crate::records::Pair;

/// Address space, neither memory nor disk: the database cannot grow beyond this.
const MAP_BYTES: usize = 1 << 38;

pub(super) struct Lmdb {
    // Declared before the environment, so that it is dropped first: it reads from it.
    reading: Mutex<Option<RoTxn<'static, WithoutTls>>>,
    records: Database<Bytes, Bytes>,
    env: Env<WithoutTls>,
}

impl Lmdb {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_BYTES);
        // SAFETY: no other code modifies the file while it is mapped: the directory belongs to this
        // measurement, and no other process opens it before this one has ended.
        let env = unsafe { options.open(dir) }?;
        let mut begun = env.write_txn()?;
        let records = env.create_database(&mut begun, None)?;
        begun.commit()?;
        Ok(Self {
            reading: Mutex::new(None),
            records,
            env,
        })
    }

    fn with_reader<T>(&self, read: impl FnOnce(&RoTxn<'_, WithoutTls>) -> Result<T>) -> Result<T> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if reading.is_none() {
            *reading = Some(self.env.clone().static_read_txn()?);
        }
        read(reading.as_ref().context("no transaction to read in")?)
    }
}

impl Peer for Lmdb {
    fn commit(&self, batch: &[Pair]) -> Result<()> {
        // Pages that a reader may access cannot be reused.
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut begun = self.env.write_txn()?;
        for pair in batch {
            self.records.put(&mut begun, &pair.key, &pair.value)?;
        }
        Ok(begun.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        self.with_reader(|begun| Ok(self.records.get(begun, key)?.map(touched)))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<usize> {
        self.with_reader(|begun| {
            let mut found = 0;
            for key in keys {
                found += usize::from(self.records.get(begun, key)?.map(touched).is_some());
            }
            Ok(found)
        })
    }
}
