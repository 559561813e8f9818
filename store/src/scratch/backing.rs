//! The storage of the scratch store: sled, guarded, or memory.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use super::Pairs;

const CACHE_BYTES: u64 = 8 << 20;
/// Limit on the bytes kept in memory if the disk is unusable.
const MEMORY_BYTES: usize = 16 << 20;
/// sled can hang forever on damaged files.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of broken directories kept for inspection.
const BROKEN_KEPT: u64 = 3;

/// Why a call to sled failed.
pub(super) type Trouble = String;

#[derive(Debug)]
pub(super) enum Backing {
    Sled(sled::Db),
    Memory(Memory),
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    trees: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    bytes: usize,
}

impl Backing {
    /// Opens sled in a directory, on a thread that is abandoned if it does not return.
    pub(super) fn open(dir: &Path) -> Result<Self, Trouble> {
        let (done, opened) = mpsc::channel();
        let path = dir.to_owned();
        let thread = std::thread::Builder::new().name("torc-scratch-open".to_owned());
        let spawned = thread.spawn(move || {
            let config = sled::Config::new()
                .path(path)
                .cache_capacity(CACHE_BYTES)
                .flush_every_ms(None);
            let opened = guarded(|| config.open());
            // Fails if opening took too long and the receiver is gone.
            let _ = done.send(opened);
        });
        spawned.map_err(|error| error.to_string())?;
        match opened.recv_timeout(OPEN_TIMEOUT) {
            Ok(opened) => opened.map(Self::Sled),
            Err(_) => Err("opening timed out".to_owned()),
        }
    }

    pub(super) fn put(&mut self, tree: &str, key: &[u8], value: &[u8]) -> Result<(), Trouble> {
        match self {
            Self::Sled(db) => guarded(|| db.open_tree(tree)?.insert(key, value).map(|_| ())),
            Self::Memory(memory) => {
                memory.put(tree, key, value);
                Ok(())
            }
        }
    }

    pub(super) fn get(&self, tree: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Trouble> {
        match self {
            Self::Sled(db) => guarded(|| Ok(db.open_tree(tree)?.get(key)?.map(|v| v.to_vec()))),
            Self::Memory(memory) => Ok(memory
                .trees
                .get(tree)
                .and_then(|tree| tree.get(key))
                .cloned()),
        }
    }

    pub(super) fn delete(&mut self, tree: &str, key: &[u8]) -> Result<(), Trouble> {
        match self {
            Self::Sled(db) => guarded(|| db.open_tree(tree)?.remove(key).map(|_| ())),
            Self::Memory(memory) => {
                if let Some(tree) = memory.trees.get_mut(tree) {
                    tree.remove(key);
                }
                Ok(())
            }
        }
    }

    pub(super) fn list(&self, tree: &str) -> Result<Pairs, Trouble> {
        match self {
            Self::Sled(db) => guarded(|| {
                let pairs = db.open_tree(tree)?.iter();
                pairs
                    .map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())))
                    .collect()
            }),
            Self::Memory(memory) => {
                let pairs = memory.trees.get(tree).into_iter().flatten();
                Ok(pairs
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect())
            }
        }
    }

    pub(super) fn write_out(&self) -> Result<(), Trouble> {
        match self {
            Self::Sled(db) => guarded(|| db.flush().map(|_| ())),
            Self::Memory(_) => Ok(()),
        }
    }

    /// Closes undamaged files.
    pub(super) fn close(self) -> Result<(), Trouble> {
        guarded(|| {
            drop(self);
            Ok(())
        })
    }

    /// Abandons damaged files. Dropping sled flushes, which may panic or hang, so its memory is
    /// leaked instead.
    pub(super) fn abandon(self) {
        if let Self::Sled(db) = self {
            std::mem::forget(db);
        }
    }
}

impl Memory {
    fn put(&mut self, tree: &str, key: &[u8], value: &[u8]) {
        self.bytes += key.len() + value.len();
        if self.bytes > MEMORY_BYTES {
            // The content should be small, so overflow clears all of it.
            *self = Self::default();
        }
        let tree = self.trees.entry(tree.to_owned()).or_default();
        tree.insert(key.to_vec(), value.to_vec());
    }
}

/// Calls sled; turns errors and panics into `Trouble`.
fn guarded<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, Trouble> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("it panicked".to_owned()),
    }
}

/// Whether another process uses the files. sled reports that only in its message.
pub(super) fn is_in_use(trouble: &str) -> bool {
    trouble.contains("could not acquire lock")
}

/// Renames an unusable directory, and removes older ones of that kind.
pub(super) fn set_aside(dir: &Path) -> std::io::Result<PathBuf> {
    let name = dir
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let prefix = format!("{name}.broken-");
    let parent = dir.parent().unwrap_or(Path::new("."));
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(parent)? {
        let name = entry?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(&prefix)?.parse::<u64>().ok());
        numbers.extend(number);
    }
    let next = numbers.iter().max().map_or(1, |last| last + 1);
    for old in numbers
        .into_iter()
        .filter(|number| number + BROKEN_KEPT <= next)
    {
        std::fs::remove_dir_all(parent.join(format!("{prefix}{old}")))?;
    }
    let aside = parent.join(format!("{prefix}{next}"));
    std::fs::rename(dir, &aside)?;
    Ok(aside)
}
