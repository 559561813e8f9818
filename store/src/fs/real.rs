//! The file system of the machine.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, fadvise, fallocate, flock, statvfs};

use super::{Fs, FsDir, FsFile, FsLock};

/// The file system of the machine, through plain system calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

impl RealFs {
    fn boxed(file: io::Result<File>) -> io::Result<Box<dyn FsFile>> {
        Ok(Box::new(RealFile {
            file: file?,
            always_waits: AtomicBool::new(false),
        }))
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

impl Fs for RealFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let parent = match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if dir.is_dir() {
            // The process that created it may have died before that was durable. A parent that we
            // may not read was not created by us.
            return match sync_dir(parent) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                synced => synced,
            };
        }
        self.create_dir(parent)?;
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => sync_dir(parent),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let mut how = OpenOptions::new();
        Self::boxed(how.read(true).write(true).create_new(true).open(path))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        Self::boxed(OpenOptions::new().read(true).write(true).open(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            // A name that is not UTF-8 is not one of the store's.
            if let (true, Ok(name)) = (
                entry.file_type()?.is_file(),
                entry.file_name().into_string(),
            ) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn FsDir>> {
        Ok(Box::new(RealDir(File::open(dir)?)))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>> {
        let mut how = OpenOptions::new();
        let file = how
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(RealLock { _file: file }))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    /// The file system cannot report what is in the page cache.
    always_waits: AtomicBool,
}

impl RealFile {
    /// Reads what the page cache has; `None` if the system cannot tell.
    #[cfg(target_os = "linux")]
    fn read_cached(&self, buf: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let mut buf = [io::IoSliceMut::new(buf)];
        loop {
            return match preadv2(&self.file, &mut buf, offset, ReadWriteFlags::NOWAIT) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Some(Ok(0)),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => None,
                done => Some(done.map_err(Into::into)),
            };
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn read_cached(&self, _buf: &mut [u8], _offset: u64) -> Option<io::Result<usize>> {
        None
    }
}

impl FsFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            // Some file systems cannot reserve space; then only the length is set.
            Err(rustix::io::Errno::OPNOTSUPP) if self.size()? < len => self.file.set_len(len),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        if !self.always_waits.load(Ordering::Relaxed) {
            match self.read_cached(buf, offset) {
                // A short read ends where the cached pages or the file end.
                Some(Ok(read)) => return Ok((read == buf.len()).then_some(read)),
                Some(Err(error)) => return Err(error),
                None => self.always_waits.store(true, Ordering::Relaxed),
            }
        }
        self.read_at(buf, offset).map(Some)
    }

    fn expect_random_reads(&self) {
        // A hint: reads work without it.
        let _ = fadvise(&self.file, 0, None, Advice::Random);
    }

    fn will_need(&self, offset: u64, len: u64) {
        let _ = fadvise(&self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
    }
}

#[derive(Debug)]
struct RealDir(File);

impl FsDir for RealDir {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// `flock` belongs to the open file: closing it, or the end of the process, releases it.
#[derive(Debug)]
struct RealLock {
    _file: File,
}

impl FsLock for RealLock {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preallocated_file_reads_as_zeros_and_keeps_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = RealFs.create(&dir.path().join("f")).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        file.preallocate(4096).unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.size().unwrap(), 4096);
        let mut buf = [1; 8];
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 8);
        assert_eq!(&buf, b"abc\0\0\0\0\0");
        assert_eq!(file.read_at(&mut buf, 4096).unwrap(), 0, "the end");
    }

    #[test]
    fn what_was_just_written_is_read_without_waiting_and_even_after_its_name_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = RealFs.create(&path).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        RealFs.remove(&path).unwrap();
        file.expect_random_reads();
        file.will_need(0, 3);
        let mut buf = [0; 3];
        assert_eq!(file.read_cached_at(&mut buf, 0).unwrap(), Some(3));
        assert_eq!(&buf, b"abc");
    }

    #[test]
    fn a_lock_is_exclusive_within_a_process_too_and_ends_with_its_guard() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let held = RealFs.lock(&path).unwrap();
        let second = RealFs.lock(&path).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        assert!(RealFs.lock(&path).is_ok());
    }

    #[test]
    fn missing_parents_of_a_directory_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        RealFs.create_dir(&deep).unwrap();
        RealFs.create_dir(&deep).unwrap();
        assert!(deep.is_dir());
        assert!(RealFs.free_bytes(&deep).unwrap() > 0);
    }

    #[test]
    fn a_file_that_exists_is_not_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        drop(RealFs.create(&path).unwrap());
        let again = RealFs.create(&path).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(RealFs.list(dir.path()).unwrap(), ["f"]);
    }
}
