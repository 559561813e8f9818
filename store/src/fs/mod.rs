//! Every access to files, behind one small trait.
//!
//! The store opens, writes, syncs and renames through [`Fs`] and [`FsFile`] only, so
//! that a test can stand in for the disk and crash it at every call
//! (`testing::CrashFs`). The contracts are those of POSIX, with nothing assumed beyond:
//!
//! * Bytes written are durable after [`FsFile::sync_data`] returned, not before, and any
//!   part of them may be durable before.
//! * A file that was created, renamed or removed is durably so after
//!   [`Fs::sync_dir`] of its directory, not before.
//! * A mapping shows what the file held when it was made; files are mapped once they are
//!   complete and never written again.
//! * After a sync that failed nothing is known of what was written since the sync
//!   before; asking again does not help.
//!
//! Absent on purpose: buffering, paths relative to anything, permissions.

mod real;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

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

    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

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

    /// The file as it is now, in memory. Its length must not change while it is mapped.
    ///
    /// # Errors
    /// Those of the system; an empty file can be mapped.
    fn map(&self) -> io::Result<Arc<dyn FsMap>>;
}

/// A mapped file. Reading it may wait for the disk; a disk that cannot be read ends the
/// process (`SIGBUS`), as for everybody who maps files.
pub trait FsMap: fmt::Debug + Send + Sync {
    /// The contents.
    fn bytes(&self) -> &[u8];

    /// Says that these bytes will be read soon, all of them. A hint.
    fn will_need(&self, at: usize, len: usize);
}

/// A held lock; dropping it releases.
pub trait FsLock: fmt::Debug + Send + Sync {}
