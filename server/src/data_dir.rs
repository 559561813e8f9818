//! Checks that the parts of a data directory belong together.
//!
//! | part | holds |
//! |---|---|
//! | `store/` | the records, and who the node is: `meta-incarnation`, `meta-membership`, `meta-boot` |
//! | `topology/topology.redb` | the topology group's log, vote and state |
//!
//! Both hold promises that the node made under its number, so it must not continue with only one
//! of them: a voter that forgot its vote can elect a leader that lacks committed topologies; a
//! replica that forgot what it accepted can bring back an older value. A node creates the parts
//! in this order, which shows what was lost:
//!
//! 1. `store/`, then its incarnation, then an empty `topology.redb`;
//! 2. `meta-membership`, when the node gets its number;
//! 3. the number and the incarnation in `topology.redb`, before Raft starts.
//!
//! Each start of a member takes a number in both parts before the topology group confirms it
//! (`boot`). So a `topology.redb` without the last confirmed number is an older copy.
//!
//! So a crash never leaves a later part without the earlier ones; a node that finds this
//! refuses to start. The check comes before the node creates anything.

use std::path::{Path, PathBuf};

use torc_group::{GroupError, TopologyGroup};
use torc_member::identity::{INCARNATION, Identity, MEMBERSHIP};
use torc_proto::DATA_DIR_ADVICE;
use torc_store::{Store, StoreError};

use crate::boot::BOOT;

/// Why a node refuses a data directory. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// One part exists, but a part that is created before it is missing.
    #[error("{} is missing, although {} exists: a part of the data directory was lost. {DATA_DIR_ADVICE}",
        .missing.display(), .beside.display())]
    Missing {
        /// The missing part.
        missing: PathBuf,
        /// The part that shows that it existed.
        beside: PathBuf,
    },
    /// The parts are of two data directories.
    #[error("{} and {} come from different data directories. {DATA_DIR_ADVICE}",
        .one.display(), .other.display())]
    Mixed {
        /// The first part.
        one: PathBuf,
        /// The second part.
        other: PathBuf,
    },
    /// One part is an older copy.
    #[error("{} is older than {}: someone has put an older copy there, which lacks votes and log entries that the node \
             has acknowledged. {DATA_DIR_ADVICE}", .older.display(), .newer.display())]
    Older {
        /// The older part.
        older: PathBuf,
        /// The part that shows it.
        newer: PathBuf,
    },
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The topology group's store could not be read.
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// The parts of a data directory.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    /// Directory of the records.
    pub(crate) store: PathBuf,
    /// Directory of the topology group's store.
    pub(crate) topology: PathBuf,
    /// Directory of the scratch store, which may be lost.
    pub(crate) scratch: PathBuf,
    /// The audit log, unless it is kept elsewhere.
    pub(crate) audit: PathBuf,
}

impl DataDir {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            store: path.join("store"),
            topology: path.join("topology"),
            scratch: path.join("scratch"),
            audit: path.join("audit").join("audit.log"),
        }
    }

    /// Must be called before the store is opened, because opening creates one.
    pub(crate) fn check_store(&self) -> Result<(), DataDirError> {
        let redb = TopologyGroup::file(&self.topology);
        let first = Store::format_file(&self.store);
        if redb.exists() && !first.exists() {
            return Err(missing(&first, redb));
        }
        Ok(())
    }

    /// Must be called before the node draws an incarnation and opens the topology group's store,
    /// because opening creates one.
    pub(crate) fn check_identity(&self, store: &Store) -> Result<(), DataDirError> {
        let redb = TopologyGroup::file(&self.topology);
        let is_there = redb.exists();
        if is_there && store.meta_get(INCARNATION)?.is_none() {
            return Err(missing(&self.meta(INCARNATION), redb));
        }
        if !is_there && store.meta_get(MEMBERSHIP)?.is_some() {
            return Err(missing(&redb, self.meta(MEMBERSHIP)));
        }
        Ok(())
    }

    /// Must be called before Raft starts.
    pub(crate) fn check_group(
        &self,
        identity: &Identity,
        group: &TopologyGroup,
        last_confirmed: u64,
    ) -> Result<(), DataDirError> {
        let redb = TopologyGroup::file(&self.topology);
        let older = || DataDirError::Older {
            older: redb.clone(),
            newer: self.meta(BOOT),
        };
        let Some(directory) = group.bound_to()? else {
            // As before the node was in a cluster.
            return if last_confirmed > 0 {
                Err(older())
            } else {
                Ok(())
            };
        };
        if directory != identity.incarnation {
            return Err(DataDirError::Mixed {
                one: redb.clone(),
                other: self.store.clone(),
            });
        }
        if identity.membership().is_none() {
            return Err(missing(&self.meta(MEMBERSHIP), redb));
        }
        if group
            .last_start()?
            .is_some_and(|number| number < last_confirmed)
        {
            return Err(older());
        }
        Ok(())
    }

    fn meta(&self, name: &str) -> PathBuf {
        self.store.join(format!("meta-{name}"))
    }
}

fn missing(missing: &Path, beside: PathBuf) -> DataDirError {
    DataDirError::Missing {
        missing: missing.to_owned(),
        beside,
    }
}
