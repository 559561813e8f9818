//! The data directory: its lock, its format file, and atomically replaced small files.
//!
//! | file | holds |
//! |---|---|
//! | `LOCK` | nothing; locked while a process has the store open |
//! | `FORMAT` | version and number of partitions, as text |
//! | `MANIFEST` | which segments, with which of their slices, and which log make up the store |
//! | `log-N` | a segment of the commit log |
//! | `segment-N` | slices |
//! | `meta-NAME` | one small value |
//! | `*.tmp` | a file that was being written; removed on opening |
//!
//! Invariants:
//! * A small file is written under another name, synced, renamed, and the directory
//!   is synced: a reader sees the old or the new one, never a part.
//! * An error of a sync or a rename stops the store, because the state of the disk is unknown.
//! * A lack of file descriptors never does: the directory stays open, and some descriptors
//!   are reserved for the files of the store. If even these are used up, opening a file
//!   fails, nothing is changed, and the next attempt may succeed.
//! * Files with unknown names are ignored.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use torc_ring::Partitions;

use torc_record::to_usize;

use crate::StoreError;
use crate::error::is_out_of_descriptors;
use crate::format::{FORMAT_VERSION, FRAME_LEN, HEADER_LEN, MAX_LIST_LEN};
use crate::fs::{Fs, FsDir, FsFile, FsLock};

pub(crate) const FORMAT: &str = "FORMAT";
pub(crate) const MANIFEST: &str = "MANIFEST";
const LOG_PREFIX: &str = "log-";
const SEGMENT_PREFIX: &str = "segment-";
pub(crate) const META_PREFIX: &str = "meta-";
const TMP_SUFFIX: &str = ".tmp";
/// Longest file that [`Directory::read`] accepts.
const MAX_FILE_LEN: u64 = (HEADER_LEN + FRAME_LEN + MAX_LIST_LEN) as u64;

/// Reserved descriptors: a log segment, a manifest, a flush, a compaction, an ingest and a metadata
/// value may be created at the same time.
const SPARE_DESCRIPTORS: usize = 8;

/// A locked data directory.
#[derive(Debug)]
pub(crate) struct Directory {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    handle: Box<dyn FsDir>,
    /// Further handles of the directory, which hold the reserved descriptors.
    spare: Mutex<Vec<Box<dyn FsDir>>>,
    lock: Mutex<Option<Box<dyn FsLock>>>,
}

/// The numbers in the file names of a directory.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) logs: Vec<u64>,
    pub(crate) segments: Vec<u64>,
    has_meta: bool,
    temporary: Vec<String>,
}

impl Directory {
    /// Creates and locks the directory.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Io`].
    pub(crate) fn open(fs: Arc<dyn Fs>, path: &Path) -> Result<Self, StoreError> {
        fs.create_dir(path)
            .map_err(StoreError::io("create directory", path))?;
        let lock_path = path.join("LOCK");
        let lock = fs.lock(&lock_path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StoreError::Locked {
                dir: path.to_owned(),
            },
            _ => StoreError::io("lock", &lock_path)(error),
        })?;
        let handle = fs.open_dir(path);
        Ok(Self {
            handle: handle.map_err(StoreError::io("open", path))?,
            spare: Mutex::default(),
            fs,
            path: path.to_owned(),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Creates a new file of the store, using a reserved descriptor if necessary.
    pub(crate) fn create(&self, path: &Path) -> Result<Box<dyn FsFile>, StoreError> {
        let file = self.with_spare(|| self.fs.create(path));
        file.map_err(StoreError::io("create", path))
    }

    fn with_spare<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match open() {
                // Another thread may take the freed descriptor first, so this may repeat.
                Err(error) if is_out_of_descriptors(&error) && self.give_spare() => {}
                done => return done,
            }
        }
    }

    fn give_spare(&self) -> bool {
        self.spare.lock().pop().is_some()
    }

    /// Refills the reserve as far as possible. Call this after closing a file.
    pub(crate) fn hold_spare(&self) {
        let mut spare = self.spare.lock();
        while spare.len() < SPARE_DESCRIPTORS {
            match self.fs.open_dir(&self.path) {
                Ok(one) => spare.push(one),
                Err(_) => break,
            }
        }
    }

    pub(crate) fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn log_path(&self, number: u64) -> PathBuf {
        self.path.join(format!("{LOG_PREFIX}{number:020}"))
    }

    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        self.path.join(format!("{SEGMENT_PREFIX}{number:020}"))
    }

    /// Releases the lock for other processes.
    pub(crate) fn unlock(&self) {
        self.lock.lock().take();
    }

    /// The files of the store, numbers ascending.
    pub(crate) fn names(&self) -> Result<Names, StoreError> {
        let list = self.fs.list(&self.path);
        let mut names = Names::default();
        for name in list.map_err(StoreError::io("list", &self.path))? {
            if name.ends_with(TMP_SUFFIX) {
                names.temporary.push(name);
            } else if let Some(number) = number_of(&name, LOG_PREFIX) {
                names.logs.push(number);
            } else if let Some(number) = number_of(&name, SEGMENT_PREFIX) {
                names.segments.push(number);
            } else {
                names.has_meta |= name.starts_with(META_PREFIX);
            }
        }
        names.logs.sort_unstable();
        names.segments.sort_unstable();
        Ok(names)
    }

    /// Makes all creations, renames and removals of earlier processes durable before anything
    /// relies on them.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.hold_spare();
        let synced = self.handle.sync();
        synced.map_err(StoreError::stopped("sync", &self.path))
    }

    pub(crate) fn remove_temporary(&self, names: &Names) -> Result<(), StoreError> {
        for name in &names.temporary {
            self.remove(&self.join(name))?;
        }
        Ok(())
    }

    /// Removes a file if it exists. Not durable until [`Directory::sync`]; a file that reappears is
    /// removed on the next opening.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.fs.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The content of a small file, if it exists.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.join(name);
        let file = match self.with_spare(|| self.fs.open(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(StoreError::io("open", &path))?,
        };
        let size = file.size().map_err(StoreError::io("read", &path))?;
        if size > MAX_FILE_LEN {
            return Err(StoreError::corrupt(
                &path,
                0,
                "longer than such a file can be",
            ));
        }
        let mut bytes = vec![0; to_usize(size)];
        let mut read = 0;
        while read < bytes.len() {
            let more = file.read_at(&mut bytes[read..], read as u64);
            match more.map_err(StoreError::io("read", &path))? {
                0 => return Err(StoreError::corrupt(&path, read as u64, "cut off")),
                more => read += more,
            }
        }
        Ok(Some(bytes))
    }

    /// Durably replaces a small file.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`] and [`StoreError::Io`]: nothing was changed.
    /// [`StoreError::Failed`]: the new file may or may not be in place.
    pub(crate) fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let temporary = self.join(&format!("{name}{TMP_SUFFIX}"));
        let path = self.join(name);
        self.remove(&temporary)?;
        let written = self.write_new(&temporary, bytes);
        if written.is_err() {
            // Best effort: a leftover file is removed on the next opening.
            let _ = self.fs.remove(&temporary);
        }
        written?;
        let renamed = self.fs.rename(&temporary, &path);
        renamed.map_err(StoreError::stopped("rename", &temporary))?;
        self.sync()
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        let file = self.create(path)?;
        file.write_all_at(bytes, 0)
            .map_err(StoreError::io("write", path))?;
        file.sync_data().map_err(StoreError::stopped("sync", path))
    }

    /// Checks the format file, or writes it in a directory that holds no store yet.
    /// Returns whether the store is new.
    ///
    /// # Errors
    /// [`StoreError::NewerFormat`], [`StoreError::OlderFormat`],
    /// [`StoreError::PartitionsDiffer`], [`StoreError::Corrupt`], and those of reading and
    /// writing.
    pub(crate) fn check_format(
        &self,
        partitions: Partitions,
        names: &Names,
    ) -> Result<bool, StoreError> {
        let path = self.join(FORMAT);
        let Some(bytes) = self.read(FORMAT)? else {
            let is_new = names.logs.is_empty()
                && names.segments.is_empty()
                && !names.has_meta
                && self.read(MANIFEST)?.is_none();
            if !is_new {
                return Err(StoreError::corrupt(&path, 0, "missing beside a store"));
            }
            self.write_format(partitions)?;
            return Ok(true);
        };
        let text = String::from_utf8_lossy(&bytes);
        let corrupt = || StoreError::corrupt(&path, 0, "not a format file");
        let version = field(&text, "format").ok_or_else(corrupt)?;
        if version > FORMAT_VERSION {
            return Err(StoreError::NewerFormat {
                file: path,
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        let found = field(&text, "partitions").ok_or_else(corrupt)?;
        if format_text(version, found) != text {
            return Err(corrupt());
        }
        if version < FORMAT_VERSION {
            return Err(StoreError::OlderFormat {
                file: path,
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        if found != partitions.count() {
            return Err(StoreError::PartitionsDiffer {
                dir: self.path.clone(),
                found,
                wanted: partitions.count(),
            });
        }
        Ok(false)
    }

    fn write_format(&self, partitions: Partitions) -> Result<(), StoreError> {
        let text = format_text(FORMAT_VERSION, partitions.count());
        self.publish(FORMAT, text.as_bytes())
    }
}

fn format_text(version: u32, partitions: u32) -> String {
    let fields = format!("torc-store\nformat {version}\npartitions {partitions}\n");
    format!("{fields}crc32c {:08x}\n", crc32c::crc32c(fields.as_bytes()))
}

fn field(text: &str, name: &str) -> Option<u32> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// The number in a file name, if it is one of the store's: twenty digits after `prefix`.
fn number_of(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let is_plain = digits.len() == 20 && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_plain.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, CrashFs, Survives};

    fn open(fs: &CrashFs) -> Directory {
        Directory::open(Arc::new(fs.clone()), Path::new("/d")).unwrap()
    }

    fn check(fs: &CrashFs, partitions: u32) -> Result<bool, StoreError> {
        let dir = open(fs);
        let names = dir.names().unwrap();
        dir.check_format(Partitions::new(partitions).unwrap(), &names)
    }

    #[test]
    fn the_format_file_is_written_once_and_checked_ever_after() {
        let fs = CrashFs::new();
        assert!(check(&fs, 64).unwrap());
        assert!(!check(&fs, 64).unwrap());
        let refused = check(&fs, 128).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "/d was created with 64 partitions, not 128: the number is fixed when a cluster is created"
        );
        let text = fs.file(Path::new("/d/FORMAT")).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "torc-store\nformat 5\npartitions 64\ncrc32c ae6c3244\n"
        );
    }

    #[test]
    fn a_directory_of_an_older_format_is_refused_as_it_is() {
        let fs = CrashFs::new();
        let old = b"torc-store\nformat 2\npartitions 64\ncrc32c 7b90fe5c\n";
        fs.put_file(Path::new("/d/FORMAT"), old);
        assert_eq!(
            check(&fs, 64).unwrap_err().to_string(),
            "/d/FORMAT has format 2, but this release reads 5; nothing was changed: dump the data \
             with the release that wrote it, or let the node join again with an empty directory"
        );
        assert_eq!(fs.file(Path::new("/d/FORMAT")).unwrap(), old);
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let fs = CrashFs::new();
        let newer = b"torc-store\nformat 6\nslices on the moon\n";
        fs.put_file(Path::new("/d/FORMAT"), newer);
        assert_eq!(
            check(&fs, 64).unwrap_err().to_string(),
            "/d/FORMAT has format 6, but this release reads 5: use a newer release"
        );
    }

    #[test]
    fn every_flipped_bit_of_the_format_file_is_refused() {
        let fs = CrashFs::new();
        check(&fs, 64).unwrap();
        let path = Path::new("/d/FORMAT");
        let good = fs.file(path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs.put_file(path, &bad);
            assert!(check(&fs, 64).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_store_without_its_format_file_is_not_taken_for_a_new_one() {
        for left in ["log-00000000000000000001", "meta-incarnation"] {
            let fs = CrashFs::new();
            fs.put_file(&Path::new("/d").join(left), b"");
            assert!(matches!(check(&fs, 64), Err(StoreError::Corrupt { .. })));
        }
    }

    #[test]
    fn a_published_file_is_the_old_or_the_new_one_wherever_it_crashes() {
        for survives in [Survives::Nothing, Survives::Everything, Survives::Some(1)] {
            for call in 1.. {
                let fs = CrashFs::new();
                let dir = open(&fs);
                dir.publish("f", b"old").unwrap();
                fs.crash_at(call);
                let published = dir.publish("f", b"new");
                let found = open(&fs.image(survives)).read("f").unwrap().unwrap();
                if published.is_ok() {
                    assert_eq!(found, b"new");
                    break;
                }
                assert!(found == b"old" || found == b"new", "call {call}: {found:?}");
            }
        }
    }

    #[test]
    fn a_full_disk_leaves_the_old_file_and_no_rubbish() {
        let fs = CrashFs::new();
        let dir = open(&fs);
        dir.publish("f", b"old").unwrap();
        fs.set_capacity(Some(fs.used_bytes()));
        assert!(matches!(
            dir.publish("f", b"new"),
            Err(StoreError::OutOfSpace)
        ));
        assert_eq!(dir.read("f").unwrap().unwrap(), b"old");
        assert_eq!(fs.files().len(), 1);
    }

    #[test]
    fn a_failed_sync_stops_the_store() {
        let fs = CrashFs::new();
        let dir = open(&fs);
        fs.fail_next(Call::Sync, "f.tmp", io::ErrorKind::Other);
        let failed = dir.publish("f", b"x").unwrap_err();
        assert!(failed.outcome_unknown(), "{failed}");
    }

    #[test]
    fn only_names_of_twenty_digits_are_numbers() {
        assert_eq!(number_of("log-00000000000000000012", LOG_PREFIX), Some(12));
        for name in [
            "log-12",
            "log-+0000000000000000012",
            "log-99999999999999999999",
            "log-",
        ] {
            assert_eq!(number_of(name, LOG_PREFIX), None, "{name}");
        }
    }
}
