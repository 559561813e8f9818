//! The state behind a [`CrashFs`](super::CrashFs).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::contents::{Change, Dice, Inode, NameChange};

/// A call that changes something, at which a test can place a crash or a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Fs::create`](crate::fs::Fs::create).
    Create,
    /// [`Fs::rename`](crate::fs::Fs::rename).
    Rename,
    /// [`Fs::remove`](crate::fs::Fs::remove).
    Remove,
    /// [`FsDir::sync`](crate::fs::FsDir::sync).
    SyncDir,
    /// [`FsFile::read_at`](crate::fs::FsFile::read_at). Hooks see it; faults do not.
    Read,
    /// [`FsFile::write_all_at`](crate::fs::FsFile::write_all_at).
    Write,
    /// [`FsFile::preallocate`](crate::fs::FsFile::preallocate).
    Preallocate,
    /// [`FsFile::set_len`](crate::fs::FsFile::set_len).
    SetLen,
    /// [`FsFile::sync_data`](crate::fs::FsFile::sync_data).
    Sync,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) inodes: Vec<Inode>,
    pub(super) names: BTreeMap<PathBuf, usize>,
    pub(super) durable_names: BTreeMap<PathBuf, usize>,
    pub(super) pending: Vec<NameChange>,
    pub(super) locks: BTreeSet<PathBuf>,
    pub(super) calls: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) crashed: bool,
    pub(super) faults: Vec<Fault>,
    pub(super) hooks: Vec<Hook>,
    pub(super) capacity: Option<u64>,
    /// Unreadable bytes of files.
    pub(super) bad_sectors: Vec<(usize, Range<u64>)>,
    /// Whether the page cache is empty.
    pub(super) is_cold: bool,
    pub(super) free_descriptors: Option<usize>,
    pub(super) stolen_descriptors: usize,
}

/// An action of a test before a call.
pub(super) struct Hook {
    pub(super) call: Call,
    pub(super) path_contains: String,
    pub(super) after: usize,
    pub(super) run: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "before {:?} of {}", self.call, self.path_contains)
    }
}

#[derive(Debug)]
pub(super) struct Fault {
    pub(super) call: Call,
    pub(super) path_contains: String,
    pub(super) error: io::ErrorKind,
}

impl State {
    pub(super) fn alive(&self) -> io::Result<()> {
        if self.crashed {
            return Err(io::Error::other("the machine has crashed"));
        }
        Ok(())
    }

    /// # Errors
    /// Some of these bytes are unreadable.
    pub(super) fn check_sectors(&self, inode: usize, bytes: Range<u64>) -> io::Result<()> {
        let meets = |(file, bad): &(usize, Range<u64>)| {
            *file == inode && bad.start < bytes.end && bytes.start < bad.end
        };
        if self.bad_sectors.iter().any(meets) {
            return Err(io::Error::other("a sector cannot be read"));
        }
        Ok(())
    }

    /// The state that another process on the same machine finds.
    pub(super) fn visible(&self) -> Self {
        Self {
            inodes: self.inodes.clone(),
            names: self.names.clone(),
            durable_names: self.durable_names.clone(),
            pending: self.pending.clone(),
            capacity: self.capacity,
            ..Self::default()
        }
    }

    /// The state after a restart of the machine; `dice` choose which unsynced changes survive.
    pub(super) fn image(&self, mut dice: Option<Dice>) -> Self {
        let mut names = self.durable_names.clone();
        for change in &self.pending {
            if dice.as_mut().is_some_and(Dice::toss) {
                change.apply(&mut names);
            }
        }
        let inodes = self.inodes.iter();
        Self {
            inodes: inodes.map(|inode| inode.image(dice.as_mut())).collect(),
            durable_names: names.clone(),
            names,
            capacity: self.capacity,
            ..Self::default()
        }
    }

    /// Counts a call that was just recorded, and crashes during it if requested.
    pub(super) fn count(&mut self) -> io::Result<()> {
        self.calls += 1;
        self.crashed |= self.crash_at == Some(self.calls);
        self.alive()
    }

    pub(super) fn fault(&mut self, call: Call, path: &Path) -> io::Result<()> {
        let path = path.to_string_lossy();
        let matching = |fault: &Fault| fault.call == call && path.contains(&fault.path_contains);
        match self.faults.iter().position(matching) {
            Some(at) => Err(self.faults.remove(at).error.into()),
            None => Ok(()),
        }
    }

    pub(super) fn take_descriptor(&mut self) -> io::Result<()> {
        if let Some(free) = &mut self.free_descriptors {
            let left = free.checked_sub(1);
            *free = left.ok_or(rustix::io::Errno::MFILE)?;
        }
        Ok(())
    }

    pub(super) fn give_descriptor(&mut self) {
        if self.stolen_descriptors > 0 {
            self.stolen_descriptors -= 1;
        } else if let Some(free) = &mut self.free_descriptors {
            *free += 1;
        }
    }

    pub(super) fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    pub(super) fn used(&self) -> u64 {
        let files = self.names.values().collect::<BTreeSet<_>>().into_iter();
        files
            .map(|inode| self.inodes[*inode].bytes.len() as u64)
            .sum()
    }

    pub(super) fn free(&self) -> usize {
        let capacity = self.capacity.unwrap_or(u64::MAX);
        usize::try_from(capacity.saturating_sub(self.used())).unwrap_or(usize::MAX)
    }

    pub(super) fn change(&mut self, inode: usize, change: Change) {
        change.apply(&mut self.inodes[inode].bytes);
        self.inodes[inode].pending.push(change);
    }
}
