//! An in-memory file system that can crash at every call and lose everything that was not synced.
//!
//! It is as unkind as POSIX allows. After a crash, any part of what happened since the last sync of
//! a file or directory may remain: nothing, everything, or some calls and not others; of one write,
//! some sectors or a prefix of any length. A rename is atomic, and a renamed file may be durable
//! although its creation under the old name was not. If only the process dies, everything is still
//! visible, and still as unsynced as before. After a failed sync, the data that it should have made
//! durable stays visible and never becomes durable.
//!
//! It is kinder than a real disk in two ways: directories are durable when created, and synced data
//! never rots ([`CrashFs::put_file`] can damage it).

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::contents::{Dice, Inode};
use super::state::{Call, Fault, Hook, State};

/// The part of unsynced changes that survives a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// Nothing: the power failed before the cache was written.
    Nothing,
    /// Everything: the process died, the machine did not. A later crash may still lose it.
    Everything,
    /// Some of it, chosen by this seed.
    Some(u64),
}

/// An in-memory file system. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CrashFs {
    pub(super) state: Arc<Mutex<State>>,
}

impl CrashFs {
    /// An empty file system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Crashes during the `call`-th changing call from now on, counted from 1; every later call
    /// fails.
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

    /// The file system that a machine finds after a crash now. `self` is unchanged.
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

    /// Makes the next such call on a path that contains `path_contains` fail. A failing write
    /// writes half of its bytes.
    pub fn fail_next(&self, call: Call, path_contains: &str, error: io::ErrorKind) {
        self.state.lock().faults.push(Fault {
            call,
            path_contains: path_contains.to_owned(),
            error,
        });
    }

    /// Runs `hook` right before a call on a path that contains `path_contains`, on the calling
    /// thread, after letting `after` such calls pass.
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

    /// Whether every requested fault and hook has happened.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        let state = self.state.lock();
        state.faults.is_empty() && state.hooks.is_empty()
    }

    /// Limits the total bytes of all files; `None` for no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Total bytes of all files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used()
    }

    /// Every file, in the order of names.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.state.lock().names.keys().cloned().collect()
    }

    /// The content of a file, as a reader sees it.
    #[must_use]
    pub fn file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let inode = state.names.get(path)?;
        Some(state.inodes[*inode].bytes.clone())
    }

    /// Stores a durable file, for example one with a flipped bit.
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

    /// Changes the bytes of a file in place, also for those who have it open.
    pub fn rot(&self, path: &Path, change: impl FnOnce(&mut [u8])) {
        let mut state = self.state.lock();
        if let Some(inode) = state.names.get(path).copied() {
            let file = &mut state.inodes[inode];
            change(&mut file.bytes);
            file.durable.clone_from(&file.bytes);
        }
    }

    /// Makes reads of these bytes of a file fail from now on.
    pub fn break_sectors(&self, path: &Path, bytes: Range<u64>) {
        let mut state = self.state.lock();
        if let Some(inode) = state.names.get(path).copied() {
            state.bad_sectors.push((inode, bytes));
        }
    }

    /// Sets whether the page cache is empty: then a reader that must not wait gets no bytes.
    pub fn set_cold(&self, is_cold: bool) {
        self.state.lock().is_cold = is_cold;
    }

    /// Durably removes a file, if it exists.
    pub fn remove_file(&self, path: &Path) {
        let mut state = self.state.lock();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    /// Makes creations, renames and removals in a directory durable.
    ///
    /// # Errors
    /// The injected faults.
    pub fn sync_dir(&self, dir: &Path) -> io::Result<()> {
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

    /// Limits the descriptors that can still be opened; `None` for no limit.
    pub fn set_free_descriptors(&self, free: Option<usize>) {
        self.state.lock().free_descriptors = free;
    }

    /// Lets other processes take the next `next` descriptors as soon as they are closed.
    pub fn steal_descriptors(&self, next: usize) {
        self.state.lock().stolen_descriptors = next;
    }

    /// Runs the hooks of a call without holding the state's lock, then begins the call.
    pub(super) fn begin(&self, call: Call, path: &Path) -> io::Result<MutexGuard<'_, State>> {
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
            for run in due {
                run();
            }
            state = self.state.lock();
        }
        state.alive()?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Fs;
    use std::collections::BTreeSet;

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
