//! Every access to files, behind one small trait.
//!
//! The store opens, writes, syncs and renames through [`Fs`] and [`FsFile`] only, so
//! that a test can stand in for the disk and crash it at every call
//! (`testing::CrashFs`). The contracts are those of POSIX, with nothing assumed beyond:
//!
//! * Bytes written are durable after [`FsFile::sync_data`] returned, not before, and any
//!   part of them may be durable before.
//! * A file that was created, renamed or removed is durably so after
//!   [`FsDir::sync`] of its directory, not before.
//! * A read may fail at any place and at any time; nothing follows for other places.
//! * After a sync that failed nothing is known of what was written since the sync
//!   before; asking again does not help.
//!
//! Absent on purpose: buffering, paths relative to anything, permissions.

mod real;

use std::fmt;
use std::io;
use std::path::Path;

pub use real::RealFs;

/// A file system, or what a test puts in its place.
pub trait Fs: fmt::Debug + Send + Sync {
    /// Makes a directory and its missing parents, durably. One that exists is fine.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes a new, empty file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when there is one.
    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;

    /// Opens a file that exists, for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;

    /// Gives a file another name in the same directory, in place of what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Opens a directory that exists.
    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn FsDir>>;

    /// Locks a file, made when it is missing, against every other process and every
    /// other lock of this one. The lock is released when the guard is dropped.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when it is taken.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>>;

    /// Bytes that can still be written in a directory.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// An open file. Positions are explicit: there is no cursor to share.
pub trait FsFile: fmt::Debug + Send + Sync {
    /// Length, bytes.
    fn size(&self) -> io::Result<u64>;

    /// Reads at a position, as much as there is up to the length of `buf`; 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at a position. After an error some of them may be there.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reserves space so that the file is at least `len` bytes long, new ones zero.
    fn preallocate(&self, len: u64) -> io::Result<()>;

    /// Cuts or extends the file; new bytes are zero.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes contents and length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// As [`read_at`](Self::read_at), but never waits for the disk: `None` if the page cache
    /// does not have all of it. A file system that cannot tell waits.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(buf, offset).map(Some)
    }

    /// Says that reads will land anywhere, so reading ahead is a waste. A hint.
    fn expect_random_reads(&self) {}

    /// Says that these bytes will be read soon, all of them. A hint.
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
