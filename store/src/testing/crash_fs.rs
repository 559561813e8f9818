//! A file system in memory that can crash at every call and lose what was not synced.
//!
//! It is as unkind as POSIX allows. After a crash, of everything since the last sync of
//! a file or directory any part may be there: none of it, all of it, or some calls and
//! not others, and of one write some sectors or a prefix that ends anywhere. A rename is
//! atomic, and what was renamed may be durable while its creation under the old name was
//! not. When only the process dies everything is still visible, and still as unsynced as
//! before. After a failed sync, what it should have made durable is visible and never
//! becomes durable.
//!
//! Kinder than a real disk in two ways: directories are durable when made, and what was
//! synced never rots ([`CrashFs::put_file`] is there to damage it).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::fs::{Fs, FsFile, FsLock};

const SECTOR_BYTES: usize = 512;

/// A call that changes something, and at which a crash or a fault can be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Fs::create`].
    Create,
    /// [`Fs::rename`].
    Rename,
    /// [`Fs::remove`].
    Remove,
    /// [`Fs::sync_dir`].
    SyncDir,
    /// [`FsFile::write_all_at`].
    Write,
    /// [`FsFile::preallocate`].
    Preallocate,
    /// [`FsFile::set_len`].
    SetLen,
    /// [`FsFile::sync_data`].
    Sync,
}

/// What of the unsynced survives a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// None of it: the power failed before the cache was written.
    Nothing,
    /// All of it: the process died, the machine did not. A later crash may still lose it.
    Everything,
    /// Some of it, drawn from this seed.
    Some(u64),
}

/// A file system in memory. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct CrashFs {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending: Vec<NameChange>,
    locks: BTreeSet<PathBuf>,
    calls: u64,
    crash_at: Option<u64>,
    crashed: bool,
    faults: Vec<Fault>,
    hooks: Vec<Hook>,
    capacity: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Changes that a failed sync dropped.
    doomed: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Create {
        path: PathBuf,
        inode: usize,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        inode: usize,
    },
    Remove {
        path: PathBuf,
    },
}

/// What a test does before a call.
struct Hook {
    call: Call,
    path_contains: String,
    after: usize,
    run: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "before {:?} of {}", self.call, self.path_contains)
    }
}

#[derive(Debug)]
struct Fault {
    call: Call,
    path_contains: String,
    error: io::ErrorKind,
}

impl CrashFs {
    /// An empty file system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Crashes at the `call`-th changing call from now on, counted from 1: that call is
    /// under way when it happens, and every later one fails.
    pub fn crash_at(&self, call: u64) {
        let mut state = self.state.lock();
        state.crash_at = Some(state.calls + call);
    }

    /// Crashes now.
    pub fn crash(&self) {
        self.state.lock().crashed = true;
    }

    /// Whether it has crashed.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// Changing calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// What a machine finds that starts after a crash at this moment. `self` is unchanged.
    #[must_use]
    pub fn image(&self, survives: Survives) -> Self {
        let state = self.state.lock();
        let image = match survives {
            Survives::Nothing => state.image(None),
            Survives::Some(seed) => state.image(Some(Dice(seed))),
            Survives::Everything => state.visible(),
        };
        Self {
            state: Arc::new(Mutex::new(image)),
        }
    }

    /// Makes the next such call on a path that contains `path_contains` fail. A failing
    /// write writes half.
    pub fn fail_next(&self, call: Call, path_contains: &str, error: io::ErrorKind) {
        self.state.lock().faults.push(Fault {
            call,
            path_contains: path_contains.to_owned(),
            error,
        });
    }

    /// Does something right before a call on a path that contains `path_contains`, in the
    /// thread that makes the call; `after` such calls are let pass first.
    pub fn before(
        &self,
        call: Call,
        path_contains: &str,
        after: usize,
        run: impl FnOnce() + Send + 'static,
    ) {
        self.state.lock().hooks.push(Hook {
            call,
            path_contains: path_contains.to_owned(),
            after,
            run: Box::new(run),
        });
    }

    /// Whether every fault and every hook that was asked for has happened.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        let state = self.state.lock();
        state.faults.is_empty() && state.hooks.is_empty()
    }

    /// Bounds the bytes of all files together; `None` for no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used()
    }

    /// Every file, in the order of names.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.state.lock().names.keys().cloned().collect()
    }

    /// The contents of a file, as a reader sees them.
    #[must_use]
    pub fn file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let inode = state.names.get(path)?;
        Some(state.inodes[*inode].bytes.clone())
    }

    /// Puts a durable file in place, for instance one with a bit flipped.
    pub fn put_file(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state.lock();
        let inode = state.inodes.len();
        state.inodes.push(Inode {
            bytes: bytes.to_vec(),
            durable: bytes.to_vec(),
            ..Inode::default()
        });
        state.names.insert(path.to_owned(), inode);
        state.durable_names.insert(path.to_owned(), inode);
    }

    /// Removes a file durably, if it is there.
    pub fn remove_file(&self, path: &Path) {
        let mut state = self.state.lock();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    /// Runs the hooks of a call without holding the state, then begins the call.
    fn begin(&self, call: Call, path: &Path) -> io::Result<MutexGuard<'_, State>> {
        let name = path.to_string_lossy();
        let mut due = Vec::new();
        let mut state = self.state.lock();
        for hook in std::mem::take(&mut state.hooks) {
            let is_meant = hook.call == call && name.contains(&hook.path_contains);
            match (is_meant, hook.after) {
                (true, 0) => due.push(hook.run),
                (true, after) => state.hooks.push(Hook {
                    after: after - 1,
                    ..hook
                }),
                (false, _) => state.hooks.push(hook),
            }
        }
        if !due.is_empty() {
            drop(state);
            due.into_iter().for_each(|run| run());
            state = self.state.lock();
        }
        state.alive()?;
        Ok(state)
    }

    fn file_at(&self, path: &Path, inode: usize) -> Box<dyn FsFile> {
        Box::new(CrashFile {
            fs: self.clone(),
            path: path.to_owned(),
            inode,
        })
    }
}

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
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        let path = path.to_owned();
        state.change_names(NameChange::Create {
            path: path.clone(),
            inode,
        });
        state.count()?;
        drop(state);
        Ok(self.file_at(&path, inode))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let state = self.state.lock();
        state.alive()?;
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        drop(state);
        Ok(self.file_at(path, inode))
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

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::SyncDir, dir)?;
        state.fault(Call::SyncDir, dir)?;
        state.count()?;
        let pending = std::mem::take(&mut state.pending);
        let (here, elsewhere) = pending
            .into_iter()
            .partition::<Vec<_>, _>(|change| change.dir() == Some(dir));
        for change in here {
            change.apply(&mut state.durable_names);
        }
        state.pending = elsewhere;
        Ok(())
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

impl State {
    fn alive(&self) -> io::Result<()> {
        if self.crashed {
            return Err(io::Error::other("the machine has crashed"));
        }
        Ok(())
    }

    /// As found by another process on the same machine.
    fn visible(&self) -> Self {
        Self {
            inodes: self.inodes.clone(),
            names: self.names.clone(),
            durable_names: self.durable_names.clone(),
            pending: self.pending.clone(),
            capacity: self.capacity,
            ..Self::default()
        }
    }

    /// As found after a restart of the machine; the dice draw what survives of the
    /// unsynced.
    fn image(&self, mut dice: Option<Dice>) -> Self {
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

    /// Counts a call that was just recorded; the crash comes while it is under way.
    fn count(&mut self) -> io::Result<()> {
        self.calls += 1;
        self.crashed |= self.crash_at == Some(self.calls);
        self.alive()
    }

    fn fault(&mut self, call: Call, path: &Path) -> io::Result<()> {
        let path = path.to_string_lossy();
        let matching = |fault: &Fault| fault.call == call && path.contains(&fault.path_contains);
        match self.faults.iter().position(matching) {
            Some(at) => Err(self.faults.remove(at).error.into()),
            None => Ok(()),
        }
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    fn used(&self) -> u64 {
        let files = self.names.values().collect::<BTreeSet<_>>().into_iter();
        files
            .map(|inode| self.inodes[*inode].bytes.len() as u64)
            .sum()
    }

    fn free(&self) -> usize {
        let capacity = self.capacity.unwrap_or(u64::MAX);
        usize::try_from(capacity.saturating_sub(self.used())).unwrap_or(usize::MAX)
    }

    fn change(&mut self, inode: usize, change: Change) {
        change.apply(&mut self.inodes[inode].bytes);
        self.inodes[inode].pending.push(change);
    }
}

impl Inode {
    fn image(&self, dice: Option<&mut Dice>) -> Self {
        let mut bytes = self.durable.clone();
        if let Some(dice) = dice {
            for change in self.doomed.iter().chain(&self.pending) {
                if dice.toss() {
                    change.apply_torn(&mut bytes, dice);
                }
            }
        }
        Self {
            durable: bytes.clone(),
            bytes,
            ..Self::default()
        }
    }
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => file.resize(*len, 0),
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[*offset..end].copy_from_slice(bytes);
            }
        }
    }

    /// As `apply`, but of a write perhaps only some sectors, or the start.
    fn apply_torn(&self, file: &mut Vec<u8>, dice: &mut Dice) {
        let Self::Write { offset, bytes } = self else {
            return self.apply(file);
        };
        match dice.below(3) {
            0 => self.apply(file),
            1 => {
                let kept = dice.below(bytes.len() + 1);
                let prefix = bytes[..kept].to_vec();
                Self::Write {
                    offset: *offset,
                    bytes: prefix,
                }
                .apply(file);
            }
            _ => {
                let mut at = 0;
                while at < bytes.len() {
                    let to_border = SECTOR_BYTES - (offset + at) % SECTOR_BYTES;
                    let end = bytes.len().min(at + to_border);
                    if dice.toss() {
                        let sector = bytes[at..end].to_vec();
                        Self::Write {
                            offset: offset + at,
                            bytes: sector,
                        }
                        .apply(file);
                    }
                    at = end;
                }
            }
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Create { path, inode } => {
                names.insert(path.clone(), *inode);
            }
            Self::Rename { from, to, inode } => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
        }
    }

    fn dir(&self) -> Option<&Path> {
        match self {
            Self::Create { path, .. } | Self::Remove { path } => path.parent(),
            Self::Rename { to, .. } => to.parent(),
        }
    }
}

/// Splitmix64: a seed gives the same crash again.
struct Dice(u64);

impl Dice {
    fn toss(&mut self) -> bool {
        self.below(2) == 0
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

#[derive(Debug)]
struct CrashFile {
    fs: CrashFs,
    path: PathBuf,
    inode: usize,
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
        let state = self.fs.state.lock();
        state.alive()?;
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
}

#[derive(Debug)]
struct CrashLock {
    fs: CrashFs,
    path: PathBuf,
}

impl FsLock for CrashLock {}

impl Drop for CrashLock {
    fn drop(&mut self) {
        self.fs.state.lock().locks.remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: &str = "/d";

    fn path(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    fn read(fs: &CrashFs, name: &str) -> Option<Vec<u8>> {
        fs.file(&path(name))
    }

    #[test]
    fn what_was_synced_survives_and_what_was_not_may_be_lost() {
        let fs = CrashFs::new();
        let file = fs.create(&path("f")).unwrap();
        file.write_all_at(b"one", 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(
            read(&fs.image(Survives::Nothing), "f"),
            None,
            "the name was not synced"
        );
        fs.sync_dir(Path::new(DIR)).unwrap();
        file.write_all_at(b"two", 3).unwrap();
        assert_eq!(read(&fs, "f").unwrap(), b"onetwo");
        assert_eq!(read(&fs.image(Survives::Nothing), "f").unwrap(), b"one");
        assert_eq!(
            read(&fs.image(Survives::Everything), "f").unwrap(),
            b"onetwo"
        );
    }

    #[test]
    fn what_outlives_the_process_is_still_unsynced() {
        let fs = CrashFs::new();
        let file = fs.create(&path("f")).unwrap();
        file.write_all_at(b"one", 0).unwrap();
        let next = fs.image(Survives::Everything);
        assert_eq!(read(&next, "f").unwrap(), b"one");
        assert_eq!(read(&next.image(Survives::Nothing), "f"), None);
        next.open(&path("f")).unwrap().sync_data().unwrap();
        next.sync_dir(Path::new(DIR)).unwrap();
        assert_eq!(read(&next.image(Survives::Nothing), "f").unwrap(), b"one");
    }

    #[test]
    fn a_hook_runs_once_before_its_call_and_may_use_the_files() {
        let fs = CrashFs::new();
        let file = fs.create(&path("f")).unwrap();
        let other = fs.clone();
        fs.before(Call::Write, "f", 1, move || {
            drop(other.create(&path("g")).unwrap());
        });
        file.write_all_at(b"1", 0).unwrap();
        assert!(!fs.is_used_up());
        file.write_all_at(b"2", 0).unwrap();
        assert!(fs.is_used_up());
        assert!(read(&fs, "g").is_some());
    }

    #[test]
    fn an_unsynced_rename_leaves_the_old_or_the_new_file_never_none() {
        let fs = CrashFs::new();
        fs.put_file(&path("f"), b"old");
        let new = fs.create(&path("f.tmp")).unwrap();
        new.write_all_at(b"new", 0).unwrap();
        new.sync_data().unwrap();
        fs.rename(&path("f.tmp"), &path("f")).unwrap();
        for seed in 0..50 {
            let found = read(&fs.image(Survives::Some(seed)), "f").unwrap();
            assert!(found == b"old" || found == b"new", "{found:?}");
        }
        fs.sync_dir(Path::new(DIR)).unwrap();
        assert_eq!(read(&fs.image(Survives::Nothing), "f").unwrap(), b"new");
    }

    #[test]
    fn a_crash_tears_writes_into_sectors_and_prefixes() {
        let fs = CrashFs::new();
        let file = fs.create(&path("f")).unwrap();
        file.preallocate(4096).unwrap();
        file.sync_data().unwrap();
        fs.sync_dir(Path::new(DIR)).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        let images: BTreeSet<_> = (0..100)
            .map(|seed| read(&fs.image(Survives::Some(seed)), "f").unwrap())
            .collect();
        assert!(images.len() > 10, "{} different images", images.len());
        assert!(images.iter().all(|image| image.len() == 4096));
    }

    #[test]
    fn every_call_after_the_crash_fails() {
        let fs = CrashFs::new();
        let file = fs.create(&path("f")).unwrap();
        fs.crash_at(1);
        assert!(file.write_all_at(b"x", 0).is_err(), "the crash itself");
        assert!(fs.crashed());
        assert!(file.sync_data().is_err());
        assert!(fs.open(&path("f")).is_err());
    }

    #[test]
    fn what_a_failed_sync_should_have_kept_never_becomes_durable() {
        let fs = CrashFs::new();
        let file = fs.create(&path("f")).unwrap();
        fs.sync_dir(Path::new(DIR)).unwrap();
        file.write_all_at(b"lost", 0).unwrap();
        fs.fail_next(Call::Sync, "f", io::ErrorKind::Other);
        assert!(file.sync_data().is_err());
        assert!(file.sync_data().is_ok(), "asking again lies");
        assert_eq!(read(&fs, "f").unwrap(), b"lost");
        assert_eq!(read(&fs.image(Survives::Nothing), "f").unwrap(), b"");
    }

    #[test]
    fn a_full_disk_takes_what_fits_and_recovers() {
        let fs = CrashFs::new();
        let file = fs.create(&path("f")).unwrap();
        fs.set_capacity(Some(4));
        let full = file.write_all_at(b"123456", 0).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert_eq!(read(&fs, "f").unwrap(), b"1234");
        assert_eq!(fs.free_bytes(Path::new(DIR)).unwrap(), 0);
        fs.set_capacity(None);
        file.write_all_at(b"123456", 0).unwrap();
    }
}
