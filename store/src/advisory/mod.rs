//! State a node may lose.
use std::path::PathBuf;

/// Small trees of advisory state. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Advisory {}

impl Advisory {
    /// Opens, never fails.
    #[must_use]
    pub fn open(dir: impl Into<PathBuf>) -> Self {
        todo!("{:?}", dir.into())
    }
    /// Sets a value.
    pub async fn put(&self, tree: &str, key: &[u8], value: &[u8]) {
        todo!("{tree} {key:?} {value:?}")
    }
    /// Reads a value.
    pub async fn get(&self, tree: &str, key: &[u8]) -> Option<Vec<u8>> {
        todo!("{tree} {key:?}")
    }
    /// Removes a value.
    pub async fn delete(&self, tree: &str, key: &[u8]) {
        todo!("{tree} {key:?}")
    }
    /// All pairs of a tree, in key order.
    pub async fn list(&self, tree: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        todo!("{tree}")
    }
    /// Writes to the disk what was put so far.
    pub async fn flush(&self) {
        todo!()
    }
    /// How often state was lost.
    #[must_use]
    pub fn losses(&self) -> u64 {
        todo!()
    }
    /// Flushes and stops.
    pub async fn close(self) {
        todo!()
    }
}
