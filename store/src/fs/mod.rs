//! Every access to files, behind one small trait.
//!
//! The store opens, writes, syncs and renames through [`Fs`] and [`FsFile`] only, so
//! that a test can stand in for the disk and crash it at every call
//! (`testing::CrashFs`). The contracts are those of POSIX, with nothing assumed beyond:
//!
//! * Bytes written are durable after [`FsFile::sync_data`] returned, not before, and any
//!   part of them may be durable before.
//! * A created, renamed or removed file is durably so after [`FsDir::sync`] of its directory, not
//!   before.
//! * A read may fail at any offset and time, which says nothing about other offsets.
//! * After a failed sync, the state of everything written since the previous sync is unknown, and
//!   another sync does not help.
//!
//! Absent on purpose: buffering, paths relative to anything, permissions.

mod real;

use std::fmt;
use std::io;
use std::path::Path;

pub use real::RealFs;

/// A file system, or a test's substitute for one.
pub trait Fs: fmt::Debug + Send + Sync {
    /// Creates a directory and its missing parents, durably. Succeeds if it exists.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Creates a new, empty file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the file exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;

    /// Renames a file within its directory, replacing a file with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a directory, in any order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Opens an existing directory.
    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn FsDir>>;

    /// Locks a file, which is created if missing, against every other process and every other lock
    /// of this one. Dropping the guard releases the lock.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the file is locked.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>>;

    /// Bytes that can still be written in a directory.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// An open file. Positions are explicit: there is no cursor to share.
pub trait FsFile: fmt::Debug + Send + Sync {
    /// Length, bytes.
    fn size(&self) -> io::Result<u64>;

    /// Reads at an offset, up to the length of `buf`; returns 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at an offset. After an error, some of them may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reserves space so that the file is at least `len` bytes long; new bytes are zero.
    fn preallocate(&self, len: u64) -> io::Result<()>;

    /// Cuts or extends the file; new bytes are zero.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes content and length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Like [`read_at`](Self::read_at), but never waits for the disk: `None` unless the page cache
    /// has all of it. A file system without such a call waits.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(buf, offset).map(Some)
    }

    /// Hints that reads will be random, so that reading ahead is a waste.
    fn expect_random_reads(&self) {}

    /// Hints that all of these bytes will be read soon.
    fn will_need(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
}

/// An open directory.
pub trait FsDir: fmt::Debug + Send + Sync {
    /// Makes creations, renames and removals in it durable.
    fn sync(&self) -> io::Result<()>;
}

/// A held lock; dropping it releases.
pub trait FsLock: fmt::Debug + Send + Sync {}
