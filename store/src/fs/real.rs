//! The file system of the machine.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use memmap2::{Advice, Mmap};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, statvfs};

use super::{Fs, FsFile, FsLock, FsMap};

/// The file system of the machine, by plain system calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

impl RealFs {
    fn boxed(file: io::Result<File>) -> io::Result<Box<dyn FsFile>> {
        Ok(Box::new(RealFile(file?)))
    }
}

impl Fs for RealFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let parent = match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if dir.is_dir() {
            // Whoever made it may have died before it was durable. A parent that we may not
            // read was not made by us.
            return match self.sync_dir(parent) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                synced => synced,
            };
        }
        self.create_dir(parent)?;
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => self.sync_dir(parent),
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
            // A name that is not UTF-8 is none of ours.
            if let (true, Ok(name)) = (
                entry.file_type()?.is_file(),
                entry.file_name().into_string(),
            ) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
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
struct RealFile(File);

impl FsFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), 0, len) {
            // Some file systems cannot reserve: the length is all they give.
            Err(rustix::io::Errno::OPNOTSUPP) if self.size()? < len => self.0.set_len(len),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn map(&self) -> io::Result<Arc<dyn FsMap>> {
        // SAFETY: nobody writes or cuts a file of a data directory that is complete: the
        // directory is locked against other processes, and the store maps a file only
        // once it is whole. Every byte read through the mapping is copied and then
        // checked against a checksum before it is trusted, so that even a file changed by
        // force is damage that is reported. A file cut by force ends the process.
        let map = unsafe { Mmap::map(&self.0)? };
        // Gets land anywhere: reading ahead would read a hundred records for one. A hint.
        let _ = map.advise(Advice::Random);
        Ok(Arc::new(RealMap(map)))
    }
}

#[derive(Debug)]
struct RealMap(Mmap);

impl FsMap for RealMap {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn will_need(&self, at: usize, len: usize) {
        // A hint: the bytes can be read all the same.
        let _ = self.0.advise_range(Advice::WillNeed, at, len);
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
    fn a_mapping_shows_the_file_even_after_its_name_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = RealFs.create(&path).unwrap();
        assert_eq!(file.map().unwrap().bytes(), b"", "an empty file");
        file.write_all_at(b"abc", 0).unwrap();
        let map = file.map().unwrap();
        drop(file);
        RealFs.remove(&path).unwrap();
        map.will_need(0, 3);
        assert_eq!(map.bytes(), b"abc");
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
