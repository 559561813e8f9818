//! Makes the disk slow or faulty, for tests of real clusters.
//!
//! A node with `TORC_TEST_DISK_FAULTS=FILE` reads the file at every sync of its store:
//!
//! ```json
//! {"sync_ms": 200, "fails_sync": true, "loses_writes": true}
//! ```
//!
//! Each sync takes `sync_ms` longer, and fails with `fails_sync`. With `loses_writes` too, bytes
//! written since the last sync then become zero, as when the kernel drops pages that the disk did
//! not accept. Missing fields are zero or false; so is everything while the file is missing or
//! malformed, so write another file and rename it. Only the store's files are affected.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use torc_store::fs::{Fs, FsDir, FsFile, FsLock, RealFs};

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Plan {
    sync_ms: u64,
    fails_sync: bool,
    loses_writes: bool,
}

impl Plan {
    fn of(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }
}

/// The machine's file system, with the faults that the file requests.
#[derive(Debug)]
pub(crate) struct FaultyFs {
    plan: Arc<Path>,
}

impl FaultyFs {
    pub(crate) fn new(plan: PathBuf) -> Self {
        tracing::warn!(file = %plan.display(), "the store's disk has the faults in this file");
        Self { plan: plan.into() }
    }

    fn faulty(&self, file: io::Result<Box<dyn FsFile>>) -> io::Result<Box<dyn FsFile>> {
        Ok(Box::new(FaultyFile {
            file: file?,
            plan: Arc::clone(&self.plan),
            unsynced: Mutex::default(),
        }))
    }
}

impl Fs for FaultyFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealFs.create_dir(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.faulty(RealFs.create(path))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.faulty(RealFs.open(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn FsDir>> {
        RealFs.open_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>> {
        RealFs.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealFs.free_bytes(dir)
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn FsFile>,
    plan: Arc<Path>,
    /// Writes since the last sync: offset and number of bytes.
    unsynced: Mutex<Vec<(u64, usize)>>,
}

impl FsFile for FaultyFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.file.read_cached_at(buf, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.unsynced.lock().push((offset, bytes.len()));
        self.file.write_all_at(bytes, offset)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.file.preallocate(len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let plan = Plan::of(&self.plan);
        std::thread::sleep(Duration::from_millis(plan.sync_ms));
        let written = std::mem::take(&mut *self.unsynced.lock());
        if !plan.fails_sync {
            return self.file.sync_data();
        }
        if plan.loses_writes {
            for (offset, len) in written {
                self.file.write_all_at(&vec![0; len], offset)?;
            }
        }
        Err(io::Error::other("a test has made the sync fail"))
    }

    fn expect_random_reads(&self) {
        self.file.expect_random_reads();
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.file.will_need(offset, len);
    }
}
