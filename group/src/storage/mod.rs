//! The topology group's store: one redb file with log, vote, state and snapshot.
//!
//! Invariants:
//! * Every write is one transaction, durable when the call returns. With two-phase
//!   commits, the last acknowledged commit survives a crash, and redb reports a damaged
//!   page instead of falling back to the previous commit.
//! * Applying entries is one transaction. Its effects are published only after it is durable, so
//!   an epoch that a node acts on survives its crash. The topology itself, up to a megabyte, is not
//!   in every such transaction: the log has the entries that were applied since it was written.
//! * A file of a newer format is refused and not written to.
//! * On a full disk, writes wait for space (`file`) instead of failing.
//!
//! Layout: table `log` maps an index to an entry, table `meta` a name to a value, all
//! values in JSON. The names are the `*_KEY` constants of this directory.
//!
//! Absent on purpose: a cache. The topology changes a few times a day, and redb has its own cache.

#[cfg(test)]
pub(crate) mod crash_disk;
mod file;
mod log;
mod machine;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use redb::backends::InMemoryBackend;
use redb::{
    Database, Durability, ReadTransaction, ReadableTable, StorageBackend as _, TableDefinition,
    WriteTransaction,
};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use torc_ring::topology::Topology;

use file::{RoomyFile, Space};
pub(crate) use log::{LogStore, Standing};
pub(crate) use machine::Machine;

use crate::GroupError;
use crate::identity::Identity;
use crate::raft::{LogId, Membership};

pub(crate) const FILE_NAME: &str = "topology.redb";

/// A store under construction.
const UNFINISHED_NAME: &str = "topology.redb.new";

/// Version of the layout.
const FORMAT: u32 = 2;

/// redb's page cache, bytes: the whole store of a usual cluster.
const CACHE_LEN: usize = 8 << 20;

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");

const FORMAT_KEY: &str = "format";
const IDENTITY_KEY: &str = "identity";
const START_KEY: &str = "start";
const VOTE_KEY: &str = "vote";
const PURGED_KEY: &str = "purged";
const APPLIED_KEY: &str = "applied";
const TOPOLOGY_KEY: &str = "topology";
/// The last entry that the stored topology has.
const TOPOLOGY_AT_KEY: &str = "topology.at";

/// The progress of the state machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AppliedState {
    pub(crate) last_applied: Option<LogId>,
    pub(crate) membership: Membership,
}

/// A failed access. A write failed, or its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("the store was closed")]
    Closed,
    #[error("redb: {0}")]
    Redb(Box<redb::Error>),
    #[error("`{what}` cannot be read: {reason}")]
    Corrupt { what: String, reason: String },
    #[error("cannot encode: {0}")]
    Encode(#[from] serde_json::Error),
    #[error("the store's thread panicked")]
    Panicked,
}

macro_rules! from_redb {
    ($($error:ident),+) => {$(
        impl From<redb::$error> for StoreError {
            fn from(error: redb::$error) -> Self {
                Self::Redb(Box::new(error.into()))
            }
        }
    )+};
}

from_redb!(TransactionError, TableError, StorageError, CommitError);

/// The durable state of a node's part in the group.
pub(crate) struct Store {
    /// `None` once closed.
    db: RwLock<Option<Database>>,
    applied: Mutex<AppliedState>,
    topology: watch::Sender<Option<Arc<Topology>>>,
    space: Arc<Space>,
}

/// Opening and closing.
impl Store {
    /// Opens the store in `dir`, or atomically creates an empty one.
    pub(crate) fn open(dir: &Path) -> Result<Self, GroupError> {
        let path = dir.join(FILE_NAME);
        if !path.exists() {
            make(dir, &path)?;
        }
        let space = Arc::default();
        let file = RoomyFile::open(&path, Arc::clone(&space))?;
        let store = Self::over(guarded(|| open_database(file, &path))?)?;
        Ok(Self { space, ..store })
    }

    /// Opens a copy in memory of the store in `dir`, which no process may have open. Changes
    /// nothing there.
    pub(crate) fn peek(dir: &Path) -> Result<Self, GroupError> {
        let path = dir.join(FILE_NAME);
        let cannot = |error: std::io::Error| GroupError::Open {
            path: path.clone(),
            reason: error.to_string(),
        };
        let file = File::open(&path).map_err(cannot)?;
        // redb's own lock, held until the whole file is read.
        flock(&file, FlockOperation::NonBlockingLockShared).map_err(|error| match error {
            Errno::WOULDBLOCK => GroupError::Locked { path: path.clone() },
            error => cannot(error.into()),
        })?;
        let mut content = Vec::new();
        (&file).read_to_end(&mut content).map_err(cannot)?;
        let copy = InMemoryBackend::new();
        copy.set_len(content.len() as u64)
            .and_then(|()| copy.write(0, &content))
            .map_err(cannot)?;
        Self::over(guarded(|| {
            checked(Database::builder().create_with_backend(copy), &path)
        })?)
    }

    /// The store in an open database.
    pub(crate) fn over(db: Database) -> Result<Self, GroupError> {
        guarded(|| {
            prepare(&db)?;
            let txn = db
                .begin_read()
                .map_err(|error| damaged(&StoreError::from(error)))?;
            let (applied, topology) = machine::state_in(&txn).map_err(|error| damaged(&error))?;
            Ok(Self {
                applied: Mutex::new(applied),
                topology: watch::Sender::new(topology.map(Arc::new)),
                db: RwLock::new(Some(db)),
                space: Arc::default(),
            })
        })
    }

    /// Waits for running work, then closes the file. Every later access fails.
    pub(crate) fn close(&self) {
        self.give_up_waiting();
        drop(self.db.write().take());
    }

    /// Makes writes that wait for disk space fail from now on.
    pub(crate) fn give_up_waiting(&self) {
        self.space.give_up();
    }
}

#[cfg(test)]
impl Store {
    /// Ends like a killed process: copies everything written so far to another directory
    /// and blocks further writes.
    pub(crate) fn abandon(&self, dir: &Path, copy_to: &Path) {
        let mut db = self.db.write();
        std::fs::copy(dir.join(FILE_NAME), copy_to.join(FILE_NAME)).expect("the file is there");
        // Its destructor would write.
        std::mem::forget(db.take());
    }
}

/// Getters.
impl Store {
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<Topology>>> {
        self.topology.subscribe()
    }

    pub(crate) fn topology(&self) -> Option<Arc<Topology>> {
        self.topology.borrow().clone()
    }

    pub(crate) fn identity(&self) -> Result<Option<Identity>, StoreError> {
        self.read(|txn| get(txn, IDENTITY_KEY))
    }

    /// The number of the last start that used the store.
    pub(crate) fn start(&self) -> Result<Option<u64>, StoreError> {
        self.read(|txn| get(txn, START_KEY))
    }
}

/// Transactions. All of them block; from async code, use [`Store::run`].
impl Store {
    pub(crate) fn set_identity(&self, identity: Identity) -> Result<(), StoreError> {
        self.write(|txn| put(txn, IDENTITY_KEY, &identity))
    }

    /// Writes nothing if the number is there already.
    pub(crate) fn set_start(&self, number: u64) -> Result<(), StoreError> {
        if self.start()? == Some(number) {
            return Ok(());
        }
        self.write(|txn| put(txn, START_KEY, &number))
    }

    /// Runs blocking work on the store away from the async threads.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.unwrap_or_else(|ended| {
            Err(if ended.is_panic() {
                StoreError::Panicked
            } else {
                StoreError::Closed
            })
        })
    }

    fn read<T>(
        &self,
        work: impl FnOnce(&ReadTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let db = self.db.read();
        let db = db.as_ref().ok_or(StoreError::Closed)?;
        work(&db.begin_read()?)
    }

    /// One durable transaction, which is discarded unless `work` succeeds.
    fn write<T>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let db = self.db.read();
        let db = db.as_ref().ok_or(StoreError::Closed)?;
        write_to(db, work)
    }
}

fn write_to<T>(
    db: &Database,
    work: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut txn = db.begin_write()?;
    txn.set_durability(Durability::Immediate);
    txn.set_two_phase_commit(true);
    let result = work(&txn)?;
    txn.commit()?;
    Ok(result)
}

fn get<T: DeserializeOwned>(txn: &ReadTransaction, key: &str) -> Result<Option<T>, StoreError> {
    read(&txn.open_table(META)?, key)
}

fn read<T: DeserializeOwned>(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<Option<T>, StoreError> {
    meta.get(key)?
        .map(|value| parse(key, value.value()))
        .transpose()
}

fn put<T: Serialize>(txn: &WriteTransaction, key: &str, value: &T) -> Result<(), StoreError> {
    let value = serde_json::to_vec(value)?;
    txn.open_table(META)?.insert(key, value.as_slice())?;
    Ok(())
}

fn parse<T: DeserializeOwned>(what: &str, value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| StoreError::Corrupt {
        what: what.into(),
        reason: error.to_string(),
    })
}

/// Creates an empty store under another name and moves it into place when it is complete.
fn make(dir: &Path, path: &Path) -> Result<(), GroupError> {
    let cannot = |error: std::io::Error| GroupError::Open {
        path: path.into(),
        reason: error.to_string(),
    };
    std::fs::create_dir_all(dir).map_err(cannot)?;
    let unfinished = dir.join(UNFINISHED_NAME);
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot(error)),
        _ => {}
    }
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&unfinished)
        .map_err(cannot)?;
    let refused = |error| refusal(&unfinished, error);
    let file = RoomyFile::over(file, Arc::default()).map_err(refused)?;
    let db = Database::builder().create_with_backend(file);
    prepare(&db.map_err(refused)?)?;
    File::open(&unfinished)
        .and_then(|file| file.sync_all())
        .map_err(cannot)?;
    std::fs::rename(&unfinished, path).map_err(cannot)?;
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(cannot)
}

/// Opens a database and compares every page with its checksum.
fn open_database(file: RoomyFile, path: &Path) -> Result<Database, GroupError> {
    let opened = Database::builder()
        .set_cache_size(CACHE_LEN)
        .create_with_backend(file);
    checked(opened, path)
}

fn checked(
    opened: Result<Database, redb::DatabaseError>,
    path: &Path,
) -> Result<Database, GroupError> {
    let refused = |error| refusal(path, error);
    let mut db = opened.map_err(refused)?;
    if !db.check_integrity().map_err(refused)? {
        tracing::warn!(path = %path.display(), "repaired the free space list of the topology group's store");
    }
    Ok(db)
}

fn refusal(path: &Path, error: redb::DatabaseError) -> GroupError {
    match error {
        redb::DatabaseError::DatabaseAlreadyOpen => GroupError::Locked { path: path.into() },
        redb::DatabaseError::Storage(redb::StorageError::Corrupted(what)) => {
            GroupError::Corrupt { what }
        }
        other => GroupError::Open {
            path: path.into(),
            reason: other.to_string(),
        },
    }
}

/// Creates the tables of a new store; checks the format of an existing one.
fn prepare(db: &Database) -> Result<(), GroupError> {
    let format: Option<u32> = match db.begin_read() {
        Err(error) => return Err(damaged(&StoreError::from(error))),
        Ok(txn) => match get(&txn, FORMAT_KEY) {
            Err(StoreError::Redb(error)) if matches!(*error, redb::Error::TableDoesNotExist(_)) => {
                None
            }
            other => other.map_err(|error| damaged(&error))?,
        },
    };
    match format {
        Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => Err(GroupError::NewerFormat {
            found,
            supported: FORMAT,
        }),
        Some(found) => Err(GroupError::OlderFormat {
            found,
            supported: FORMAT,
        }),
        None => {
            let made = write_to(db, |txn| {
                txn.open_table(LOG)?;
                put(txn, FORMAT_KEY, &FORMAT)
            });
            made.map_err(|error| damaged(&error))
        }
    }
}

fn damaged(error: &StoreError) -> GroupError {
    GroupError::Corrupt {
        what: error.to_string(),
    }
}

/// redb panics on some kinds of damage instead of returning an error.
fn guarded<T>(work: impl FnOnce() -> Result<T, GroupError>) -> Result<T, GroupError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(GroupError::Corrupt {
            what: "redb panicked on a damaged page".into(),
        })
    })
}
