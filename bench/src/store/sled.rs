//! The peer sled 0.34: batches applied to its one tree, then flushed. Its cache is 1 GiB, as
//! it comes.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::engine::touched;
use super::grouped::Peer;
use crate::records::Pair;

/// What makes a batch durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    /// sled's own flush: `sync_file_range`.
    Own,
    /// That, and an fdatasync of the file that it wrote.
    Fdatasync,
}

pub(super) struct Sled {
    db: sled::Db,
    synced: Option<File>,
}

impl Sled {
    pub(super) fn open(dir: &Path, flush: Flush) -> Result<Self> {
        let db = sled::open(dir)?;
        let file: PathBuf = dir.join("db");
        let synced = (flush == Flush::Fdatasync).then(|| File::open(file));
        Ok(Self {
            db,
            synced: synced.transpose()?,
        })
    }
}

impl Peer for Sled {
    fn commit(&self, batch: &[Pair]) -> Result<()> {
        let mut changes = sled::Batch::default();
        for pair in batch {
            changes.insert(&*pair.key, &*pair.value);
        }
        self.db.apply_batch(changes)?;
        self.db.flush()?;
        if let Some(file) = &self.synced {
            file.sync_data()?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.db.get(key)?.map(|value| touched(&value)))
    }
}
