//! A [`CrashFs`] as a file system, with its open files and locks.

use std::io;
use std::path::{Path, PathBuf};

use super::contents::{Change, Inode, NameChange};
use super::crash_fs::CrashFs;
use super::state::Call;
use crate::fs::{Fs, FsDir, FsFile, FsLock};

impl Fs for CrashFs {
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        self.state.lock().alive()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let mut state = self.begin(Call::Create, path)?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.fault(Call::Create, path)?;
        state.take_descriptor()?;
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        let path = path.to_owned();
        state.change_names(NameChange::Create {
            path: path.clone(),
            inode,
        });
        state.count()?;
        drop(state);
        Ok(file_at(self, &path, inode))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let mut state = self.state.lock();
        state.alive()?;
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        state.take_descriptor()?;
        drop(state);
        Ok(file_at(self, path, inode))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::Rename, to)?;
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.fault(Call::Rename, to)?;
        state.change_names(NameChange::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            inode,
        });
        state.count()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::Remove, path)?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.fault(Call::Remove, path)?;
        state.change_names(NameChange::Remove {
            path: path.to_owned(),
        });
        state.count()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.alive()?;
        let here = state.names.keys().filter(|path| path.parent() == Some(dir));
        let names = here.filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
        Ok(names.collect())
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn FsDir>> {
        let mut state = self.state.lock();
        state.alive()?;
        state.take_descriptor()?;
        drop(state);
        Ok(Box::new(CrashDir {
            fs: self.clone(),
            path: dir.to_owned(),
        }))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>> {
        let mut state = self.state.lock();
        state.alive()?;
        if !state.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(CrashLock {
            fs: self.clone(),
            path: path.to_owned(),
        }))
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.state.lock();
        state.alive()?;
        Ok(state
            .capacity
            .unwrap_or(u64::MAX)
            .saturating_sub(state.used()))
    }
}

/// The file at a path, open.
fn file_at(fs: &CrashFs, path: &Path, inode: usize) -> Box<dyn FsFile> {
    Box::new(CrashFile {
        fs: fs.clone(),
        path: path.to_owned(),
        inode,
    })
}

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
