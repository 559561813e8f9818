//! Where the scratch store lies: sled, guarded, or memory.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use super::Pairs;

const CACHE_BYTES: u64 = 8 << 20;
/// What is kept in memory when there is no disk for it.
const MEMORY_BYTES: usize = 16 << 20;
/// Damaged files have been seen to keep sled busy for ever.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Directories set aside that are kept for a look at them.
const BROKEN_KEPT: u64 = 3;

/// Why a call into sled did not do what it should.
pub(super) type Trouble = String;

#[derive(Debug)]
pub(super) enum Backing {
    /// Nothing was ever put: sled, which takes 28 MiB once it is open, is not needed yet.
    Empty(PathBuf),
    Sled(sled::Db),
    Memory(Memory),
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    trees: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    bytes: usize,
}

impl Backing {
    /// What a directory holds, which is opened only if it exists.
    pub(super) fn of(dir: &Path) -> Result<Self, Trouble> {
        if dir.exists() {
            Self::open(dir)
        } else {
            Ok(Self::Empty(dir.to_owned()))
        }
    }

    /// Opens sled in a directory, in a thread that is left behind if it does not return.
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
            // Nobody waits any more if it took too long.
            let _ = done.send(opened);
        });
        spawned.map_err(|error| error.to_string())?;
        match opened.recv_timeout(OPEN_TIMEOUT) {
            Ok(opened) => opened.map(Self::Sled),
            Err(_) => Err("it does not open in time".to_owned()),
        }
    }

    pub(super) fn put(&mut self, tree: &str, key: &[u8], value: &[u8]) -> Result<(), Trouble> {
        if let Self::Empty(dir) = self {
            *self = Self::open(dir)?;
        }
        match self {
            Self::Empty(_) => Ok(()),
            Self::Sled(db) => guarded(|| db.open_tree(tree)?.insert(key, value).map(|_| ())),
            Self::Memory(memory) => {
                memory.put(tree, key, value);
                Ok(())
            }
        }
    }

    pub(super) fn get(&self, tree: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Trouble> {
        match self {
            Self::Empty(_) => Ok(None),
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
            Self::Empty(_) => Ok(()),
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
            Self::Empty(_) => Ok(Pairs::new()),
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
            Self::Empty(_) | Self::Memory(_) => Ok(()),
        }
    }

    /// Lets go of files that are in order.
    pub(super) fn close(self) -> Result<(), Trouble> {
        guarded(|| {
            drop(self);
            Ok(())
        })
    }

    /// Lets go of files that are not. Dropping sled flushes, which may panic or hang; what
    /// it has in memory is left behind instead.
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
            // What is kept is small; whoever fills this is better off starting over.
            *self = Self::default();
        }
        let tree = self.trees.entry(tree.to_owned()).or_default();
        tree.insert(key.to_vec(), value.to_vec());
    }
}

/// Calls into sled; errors and panics are both trouble.
fn guarded<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, Trouble> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("it panicked".to_owned()),
    }
}

/// Whether the files are fine and somebody else's. sled tells it in words only.
pub(super) fn is_in_use(trouble: &str) -> bool {
    trouble.contains("could not acquire lock")
}

/// Renames a directory that cannot be used, and removes older ones of its kind.
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
