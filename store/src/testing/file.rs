//! Open files and locks of a [`CrashFs`](super::CrashFs).

use std::io;
use std::path::PathBuf;

use super::contents::Change;
use super::{Call, CrashFs};
use crate::fs::{FsDir, FsFile, FsLock};

#[derive(Debug)]
pub(super) struct CrashFile {
    pub(super) fs: CrashFs,
    pub(super) path: PathBuf,
    pub(super) inode: usize,
}

impl CrashFile {
    fn resize(&self, call: Call, len: u64, keep_longer: bool) -> io::Result<()> {
        let mut state = self.fs.begin(call, &self.path)?;
        state.fault(call, &self.path)?;
        let (len, now) = (len as usize, state.inodes[self.inode].bytes.len());
        if len > now && len - now > state.free() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if len > now || !keep_longer {
            state.change(self.inode, Change::SetLen(len));
        }
        state.count()
    }
}

impl FsFile for CrashFile {
    fn size(&self) -> io::Result<u64> {
        let state = self.fs.state.lock();
        state.alive()?;
        Ok(state.inodes[self.inode].bytes.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.fs.begin(Call::Read, &self.path)?;
        let end = offset.saturating_add(buf.len() as u64);
        state.check_sectors(self.inode, offset..end)?;
        let bytes = &state.inodes[self.inode].bytes;
        let from = bytes
            .len()
            .min(usize::try_from(offset).unwrap_or(usize::MAX));
        let len = buf.len().min(bytes.len() - from);
        buf[..len].copy_from_slice(&bytes[from..from + len]);
        Ok(len)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.fs.begin(Call::Write, &self.path)?;
        let offset = offset as usize;
        let room = state.inodes[self.inode].bytes.len().saturating_sub(offset);
        let fits = bytes.len().min(room.saturating_add(state.free()));
        let failure = match state.fault(Call::Write, &self.path) {
            Err(error) => Some((bytes.len() / 2, error)),
            Ok(()) if fits < bytes.len() => Some((fits, io::ErrorKind::StorageFull.into())),
            Ok(()) => None,
        };
        let written = failure
            .as_ref()
            .map_or(bytes.len(), |(written, _)| *written);
        let bytes = bytes[..written].to_vec();
        state.change(self.inode, Change::Write { offset, bytes });
        state.count()?;
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.resize(Call::Preallocate, len, true)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.resize(Call::SetLen, len, false)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.fs.begin(Call::Sync, &self.path)?;
        let fault = state.fault(Call::Sync, &self.path);
        let counted = state.count();
        let inode = &mut state.inodes[self.inode];
        if let Err(error) = fault {
            let lost = std::mem::take(&mut inode.pending);
            inode.doomed.extend(lost);
            return Err(error);
        }
        counted?;
        for change in std::mem::take(&mut inode.pending) {
            change.apply(&mut inode.durable);
        }
        Ok(())
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        if self.fs.state.lock().is_cold {
            return Ok(None);
        }
        self.read_at(buf, offset).map(Some)
    }
}

impl Drop for CrashFile {
    fn drop(&mut self) {
        self.fs.state.lock().give_descriptor();
    }
}

#[derive(Debug)]
pub(super) struct CrashDir {
    pub(super) fs: CrashFs,
    pub(super) path: PathBuf,
}

impl FsDir for CrashDir {
    fn sync(&self) -> io::Result<()> {
        self.fs.sync_dir(&self.path)
    }
}

impl Drop for CrashDir {
    fn drop(&mut self) {
        self.fs.state.lock().give_descriptor();
    }
}

#[derive(Debug)]
pub(super) struct CrashLock {
    pub(super) fs: CrashFs,
    pub(super) path: PathBuf,
}

impl FsLock for CrashLock {}

impl Drop for CrashLock {
    fn drop(&mut self) {
        self.fs.state.lock().locks.remove(&self.path);
    }
}
