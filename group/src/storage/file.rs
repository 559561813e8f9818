//! The file of the database. It allocates disk space before it grows, and waits if the disk is
//! full, so no write fails for lack of space: after a failed write, redb refuses further ones
//! and openraft ends.
//!
//! Meanwhile the group is blocked on this node. It still serves what it knows, and the
//! other voters elect another leader.
//!
//! Invariant: every byte within the file's length is allocated, except in a file of an
//! older release that was opened on a full disk, and on file systems without allocation.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::GroupError;

/// The first bytes of a redb file. redb would overwrite a file that starts differently.
const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];
/// Time between checks for space.
const LOOK: Duration = Duration::from_millis(200);

/// Whether a write waits for space, and whether it may.
#[derive(Debug, Default)]
pub(super) struct Space {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_waiting: bool,
    is_closing: bool,
}

impl Space {
    /// Makes writes that wait for space fail from now on.
    pub(super) fn give_up(&self) {
        self.state.lock().is_closing = true;
        self.changed.notify_all();
    }

    /// Whether a write waits for space.
    #[cfg(test)]
    pub(super) fn is_awaited(&self) -> bool {
        self.state.lock().is_waiting
    }

    /// Waits briefly; returns whether to continue.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        if !state.is_waiting {
            tracing::warn!(
                "the disk is full: the topology group is blocked on this node until there is \
                 space again; free some space"
            );
        }
        state.is_waiting = true;
        if !state.is_closing {
            self.changed.wait_for(&mut state, LOOK);
        }
        !state.is_closing
    }

    fn found(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_waiting) {
            tracing::info!("disk space is available again: the topology group continues");
        }
    }
}

/// A file whose space is allocated before use.
#[derive(Debug)]
pub(super) struct RoomyFile {
    backend: FileBackend,
    /// The same file.
    file: File,
    space: Arc<Space>,
}

impl RoomyFile {
    /// Opens an existing database.
    ///
    /// # Errors
    /// [`GroupError::Corrupt`] if the file is not a database; [`GroupError::Locked`],
    /// [`GroupError::Open`].
    pub(super) fn open(path: &Path, space: Arc<Space>) -> Result<Self, GroupError> {
        let cannot = |error: io::Error| GroupError::Open {
            path: path.into(),
            reason: error.to_string(),
        };
        let options = File::options().read(true).write(true).open(path);
        let file = options.map_err(cannot)?;
        let mut found = [0; MAGIC.len()];
        let is_database = match file.read_exact_at(&mut found, 0) {
            Ok(()) => found == MAGIC,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(cannot(error)),
        };
        if !is_database {
            return Err(GroupError::Corrupt {
                what: "it is not a redb database".into(),
            });
        }
        let this = Self::over(file, space).map_err(|error| super::refusal(path, error))?;
        // If there is space, allocates what an older release left unallocated.
        let _ = this.set_aside(this.len().map_err(cannot)?);
        Ok(this)
    }

    /// Creates a database in this empty file.
    pub(super) fn over(file: File, space: Arc<Space>) -> Result<Self, DatabaseError> {
        let same = file.try_clone().map_err(DatabaseError::from)?;
        Ok(Self {
            backend: FileBackend::new(file)?,
            file: same,
            space,
        })
    }

    fn set_aside(&self, len: u64) -> Result<(), Errno> {
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len) {
            // Some file systems cannot allocate space.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => done,
        }
    }
}

impl StorageBackend for RoomyFile {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.backend.read(offset, len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        while len > self.len()? {
            match self.set_aside(len) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::NOSPC | Errno::DQUOT) if self.space.wait() => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.space.found();
        self.backend.set_len(len)
    }

    fn sync_data(&self, eventual: bool) -> io::Result<()> {
        self.backend.sync_data(eventual)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }
}
