//! The peer sled 0.34: batches applied to its one tree, then flushed. Its cache is 1 GiB, its
//! default.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::engine::touched;
use super::grouped::Peer;
use crate::records::Pair;

/// How a batch becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    /// sled's own flush: `sync_file_range`.
    Own,
    /// sled's own flush, and an fdatasync of the file that it wrote.
    Fdatasync,
}

/// Longer than sled ever holds its lock after it was dropped.
const TIMEOUT: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(5);

pub(super) struct Sled {
    db: sled::Db,
    /// The file that sled writes and locks.
    file: File,
    flush: Flush,
}

impl Sled {
    pub(super) fn open(dir: &Path, flush: Flush) -> Result<Self> {
        let db = sled::open(dir)?;
        let file = File::open(dir.join("db"))?;
        Ok(Self { db, file, flush })
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
        if self.flush == Flush::Fdatasync {
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.db.get(key)?.map(|value| touched(&value)))
    }

    /// sled's own threads may still use the dropped database: it is closed once its file can be
    /// locked.
    fn close(self) -> Result<()> {
        let Self { db, file, .. } = self;
        drop(db);
        let give_up = Instant::now() + TIMEOUT;
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            let is_held = error == Errno::WOULDBLOCK && Instant::now() < give_up;
            if !is_held {
                return Err(error).context("sled does not let go of its file");
            }
            std::thread::sleep(ASK_AGAIN);
        }
        // Closing the file unlocks it.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_store_that_was_closed_can_be_opened_while_its_threads_end() {
        let dir = tempfile::tempdir().unwrap();
        let store = Sled::open(dir.path(), Flush::Own).unwrap();
        let (held, closing) = (store.db.clone(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            closing.1.recv().unwrap();
            drop(held);
        });
        closing.0.send(()).unwrap();
        store.close().unwrap();
        Sled::open(dir.path(), Flush::Own).unwrap().close().unwrap();
        thread.join().unwrap();
    }
}
