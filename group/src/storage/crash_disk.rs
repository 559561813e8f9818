//! A disk in memory that fails at a chosen sync.
//!
//! Writes since the last successful sync may be lost: [`CrashDisk::synced`] loses all of
//! them; [`CrashDisk::written`] none, like a killed process on a running machine.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, StorageBackend};

#[derive(Debug, Clone)]
pub(crate) struct CrashDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    written: Vec<u8>,
    synced: Vec<u8>,
    /// Syncs that succeed before the disk dies.
    syncs_left: usize,
    dead: bool,
}

impl CrashDisk {
    /// A disk with this content, which dies at the sync after the next `syncs_left`.
    pub(crate) fn new(content: Vec<u8>, syncs_left: usize) -> Self {
        let synced = content.clone();
        Self(Arc::new(Mutex::new(State {
            written: content,
            synced,
            syncs_left,
            dead: false,
        })))
    }

    pub(crate) fn immortal() -> Self {
        Self::new(Vec::new(), usize::MAX)
    }

    pub(crate) fn synced(&self) -> Vec<u8> {
        self.0.lock().synced.clone()
    }

    pub(crate) fn written(&self) -> Vec<u8> {
        self.0.lock().written.clone()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.lock().dead
    }

    pub(crate) fn die_at_next_sync(&self) {
        self.0.lock().syncs_left = 0;
    }

    pub(crate) fn database(&self) -> Result<Database, redb::DatabaseError> {
        Database::builder()
            .set_cache_size(super::CACHE_LEN)
            .create_with_backend(self.clone())
    }

    fn alive<T>(&self, access: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.0.lock();
        if state.dead {
            return Err(io::Error::other("the disk died"));
        }
        access(&mut state)
    }
}

fn range(offset: u64, len: usize) -> std::ops::Range<usize> {
    let start = offset as usize;
    start..start + len
}

impl StorageBackend for CrashDisk {
    fn len(&self) -> io::Result<u64> {
        self.alive(|state| Ok(state.written.len() as u64))
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.alive(|state| {
            let bytes = state.written.get(range(offset, len));
            bytes
                .map(<[u8]>::to_vec)
                .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.alive(|state| {
            state.written.resize(len as usize, 0);
            Ok(())
        })
    }

    fn sync_data(&self, _eventual: bool) -> io::Result<()> {
        self.alive(|state| {
            if state.syncs_left == 0 {
                state.dead = true;
                return Err(io::Error::other("the disk died"));
            }
            state.syncs_left -= 1;
            state.synced.clone_from(&state.written);
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.alive(|state| {
            let bytes = state.written.get_mut(range(offset, data.len()));
            bytes
                .ok_or(io::ErrorKind::UnexpectedEof)?
                .copy_from_slice(data);
            Ok(())
        })
    }
}
