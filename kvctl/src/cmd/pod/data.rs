//! The data directory of a node that may have left the cluster.
//!
//! The cluster needs nothing from a node that has left, and does not take it back. Its directory
//! gets a mark, and the next start of the pod empties it; until then you can inspect the data. A
//! second mark exists while the node leaves, so a node that was killed meanwhile knows why it is not
//! a member. A node that was declared dead has no mark, and keeps its data.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::out::note;

/// Exists only after the node has left.
const MARK: &str = "left-the-cluster";
/// Exists from the moment when the node starts to leave.
const LEAVING: &str = "leaving-the-cluster";
/// Created by the file system, for root alone.
const OF_FILE_SYSTEM: &str = "lost+found";

pub(super) struct DataDir(PathBuf);

impl DataDir {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Whether the directory has never held a node's data.
    pub(super) fn is_new(&self) -> bool {
        !self.0.join("store").exists()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.0.join(LEAVING).exists()
    }

    pub(super) fn mark_as_leaving(&self) -> Result<(), Failure> {
        self.mark(LEAVING)
    }

    /// Cancels the leave: the node stays.
    pub(super) fn unmark(&self) -> Result<(), Failure> {
        let mark = self.0.join(LEAVING);
        match fs::remove_file(&mark) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::file("remove", &mark, error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn mark_as_left(&self) -> Result<(), Failure> {
        self.mark(MARK)
    }

    fn mark(&self, name: &str) -> Result<(), Failure> {
        let mark = self.0.join(name);
        let written = File::create(&mark).and_then(|file| file.sync_all());
        let written = written.and_then(|()| File::open(&self.0)?.sync_all());
        written.map_err(|source| Failure::file("write", &mark, source))
    }

    /// Removes everything if the node has left. The mark goes last, so that a crash leaves it.
    pub(super) fn empty_if_left(&self) -> Result<(), Failure> {
        let mark = self.0.join(MARK);
        if !mark.exists() {
            return Ok(());
        }
        note("this node has left the cluster: emptying its data directory to start as a new node");
        let entries =
            fs::read_dir(&self.0).map_err(|source| Failure::file("read", &self.0, source))?;
        for entry in entries {
            let entry = entry.map_err(|source| Failure::file("read", &self.0, source))?;
            if entry.file_name() == MARK || entry.file_name() == OF_FILE_SYSTEM {
                continue;
            }
            let path = entry.path();
            let removed = match entry.file_type() {
                Ok(kind) if kind.is_dir() => fs::remove_dir_all(&path),
                Ok(_) => fs::remove_file(&path),
                Err(error) => Err(error),
            };
            removed.map_err(|source| Failure::file("remove", &path, source))?;
        }
        let synced = File::open(&self.0).and_then(|dir| dir.sync_all());
        let gone = synced.and_then(|()| fs::remove_file(&mark));
        gone.map_err(|source| Failure::file("remove", &mark, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directory_of_a_node_that_left_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        for folder in ["store/deep", OF_FILE_SYSTEM] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("store/deep/file"), "1").unwrap();
        fs::write(dir.path().join("topology.redb"), "1").unwrap();
        data.empty_if_left().unwrap();
        assert!(!data.is_new(), "it did not leave");

        data.mark_as_leaving().unwrap();
        data.empty_if_left().unwrap();
        assert!(data.is_leaving() && !data.is_new(), "nor is it gone");

        data.mark_as_left().unwrap();
        data.empty_if_left().unwrap();
        assert!(data.is_new());
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, [OF_FILE_SYSTEM], "the mark is gone, too");
    }
}
