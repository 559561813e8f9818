//! Why the store refused or could not do something.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use torc_record::{NamespaceId, RecordError};
use torc_ring::Partition;

/// Why an operation of the store did not happen.
///
/// Each variant says whether anything changed and what to do. An error is handed to
/// every write of a batch, hence `Clone`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A record is out of bounds. Nothing was changed.
    #[error(transparent)]
    Refused(#[from] RecordError),
    /// The disk is full. Nothing was changed by this write; reads go on. Free space:
    /// writes are taken again as soon as there is some.
    #[error("out of disk space: the write was refused, reads go on; free some space")]
    OutOfSpace,
    /// The memtable is full and could not be flushed. Nothing was changed; reads and deletes
    /// go on. The log says why the flush failed; the next write starts another.
    #[error(
        "the memtable has reached its limit of {limit_bytes} bytes and could not be flushed: look at the node's log"
    )]
    MemtableFull {
        /// The limit it was opened with, bytes.
        limit_bytes: u64,
    },
    /// The memtable is full. Nothing was changed; a flush is under way: try again soon.
    #[error("the memtable has reached its limit of {limit_bytes} bytes: try again soon")]
    NoRoom {
        /// The limit it was opened with, bytes.
        limit_bytes: u64,
    },
    /// More than a batch of a partition may hold. Nothing was changed: split it.
    #[error("a batch of {len} bytes or more, at most {max} are allowed: split it")]
    BatchTooLong {
        /// Bytes of its records as stored, as far as they were counted.
        len: usize,
        /// The limit, bytes.
        max: usize,
    },
    /// A record of another partition than its batch. Nothing was changed.
    #[error("a batch of partition {partition} has a record of another one")]
    StrayRecord {
        /// That of the batch.
        partition: Partition,
    },
    /// A batch that was handed over before failed. Nothing was changed: begin again from what
    /// is durable, then [`Store::resume`](crate::Store::resume).
    #[error("an earlier batch of partition {partition} was not stored, so this one is refused")]
    AfterFailure {
        /// Whose batches are refused.
        partition: Partition,
    },
    /// Writing or syncing failed earlier, or just now. A write that was under way may or
    /// may not survive; nothing else is lost. The store refuses everything from here on:
    /// look at the disk, then start the node again.
    #[error("the store has stopped: {reason}; look at the disk and start the node again")]
    Failed {
        /// What failed, with the file.
        reason: Arc<str>,
    },
    /// The store was closed. Nothing was changed.
    #[error("the store is closed")]
    Closed,
    /// Another process has the data directory open. Nothing was changed.
    #[error("{} is in use by another process: stop it or choose another directory", .dir.display())]
    Locked {
        /// The data directory.
        dir: PathBuf,
    },
    /// A file was written by a newer release. Nothing was changed: use that release.
    #[error(
        "{} has format {found}, this release reads {supported}: use the newer release",
        .file.display()
    )]
    NewerFormat {
        /// The file that says so.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// What this release reads.
        supported: u32,
    },
    /// A file was written by an older release, in a format that is no longer read. Nothing was
    /// changed: dump the data with that release, or set the directory aside and let the node
    /// join again.
    #[error(
        "{} has format {found}, this release reads {supported}; nothing was changed: dump the data with the release that wrote it, or let the node join again with an empty directory",
        .file.display()
    )]
    OlderFormat {
        /// The file that says so.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// What this release reads.
        supported: u32,
    },
    /// The directory belongs to a cluster with another number of partitions. Nothing was
    /// changed.
    #[error(
        "{} was created with {found} partitions, not {wanted}: the number is fixed when a cluster is created",
        .dir.display()
    )]
    PartitionsDiffer {
        /// The data directory.
        dir: PathBuf,
        /// What it was created with.
        found: u32,
        /// What it was opened with.
        wanted: u32,
    },
    /// Stored bytes are not what was written. Nothing was changed and nothing was
    /// skipped: set the directory aside and let the node join anew, or restore it.
    #[error(
        "{} is corrupt at byte {offset}: {what}; set the directory aside and let the node join anew",
        .file.display()
    )]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Where in it, bytes from its start.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A sealed slice is not what was written. Nothing was changed. Whether a key is there
    /// cannot be told, so it is refused rather than called absent: copy the partition anew
    /// from another replica, or write the key again.
    #[error(
        "partition {partition}: a slice at byte {offset} of {} is damaged: {what}; copy the partition anew", .file.display()
    )]
    Damaged {
        /// Whose slice.
        partition: Partition,
        /// The segment.
        file: PathBuf,
        /// Where in it the slice starts, bytes.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A partition has no slice of a generation, or it cannot be read: another replica knows whether
    /// the key is in it. Nothing was changed.
    #[error("this node has no slice of generation {} of partition {partition}", .generation.0)]
    NotHeld {
        /// The partition.
        partition: Partition,
        /// The generation.
        generation: NamespaceId,
    },
    /// Records cannot be made a slice: a partition has more than 2^30. Nothing was changed:
    /// they stay in memory and in the log.
    #[error("records cannot be flushed: {why}; they stay in memory and in the log")]
    Unflushable {
        /// What the index said.
        why: Arc<str>,
    },
    /// Bytes that came from another node are not what it said. Nothing was changed: ask for
    /// them again.
    #[error(
        "a slice of partition {partition} did not arrive as it was sent: {what}; ask for it again"
    )]
    BadIngest {
        /// Whose slice.
        partition: Partition,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A file could not be opened, made or read. Nothing was changed; the system says
    /// what to do.
    #[error("cannot {action} {}: {source}", .file.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        file: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The cluster has no such partition. Nothing was changed.
    #[error("partition {partition} does not exist: there are {count}")]
    UnknownPartition {
        /// What was asked for.
        partition: Partition,
        /// How many there are.
        count: u32,
    },
    /// Not a name for [`Store::meta_set`](crate::Store::meta_set). Nothing was changed.
    #[error("`{name}` is not a name for metadata: use 1 to 64 of a to z, 0 to 9, `-` and `_`")]
    BadMetaName {
        /// The refused name, cut to 80 characters.
        name: String,
    },
    /// Too much for [`Store::meta_set`](crate::Store::meta_set). Nothing was changed.
    #[error("{len} bytes of metadata, at most {max} are allowed")]
    MetaTooLong {
        /// Length of the refused bytes.
        len: usize,
        /// The limit, bytes.
        max: usize,
    },
    /// A setting is out of its range. Nothing was changed.
    #[error("{setting} must be {allowed}")]
    BadOption {
        /// The field of [`StoreOptions`](crate::StoreOptions).
        setting: &'static str,
        /// Its range.
        allowed: &'static str,
    },
}

impl StoreError {
    /// Whether a write that got this error may nevertheless survive.
    #[must_use]
    pub const fn outcome_unknown(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Refused(_)
            | Self::OutOfSpace
            | Self::MemtableFull { .. }
            | Self::NoRoom { .. }
            | Self::BatchTooLong { .. }
            | Self::StrayRecord { .. }
            | Self::AfterFailure { .. }
            | Self::Closed
            | Self::Locked { .. }
            | Self::NewerFormat { .. }
            | Self::OlderFormat { .. }
            | Self::PartitionsDiffer { .. }
            | Self::Corrupt { .. }
            | Self::Damaged { .. }
            | Self::Unflushable { .. }
            | Self::BadIngest { .. }
            | Self::NotHeld { .. }
            | Self::Io { .. }
            | Self::UnknownPartition { .. }
            | Self::BadMetaName { .. }
            | Self::MetaTooLong { .. }
            | Self::BadOption { .. } => false,
        }
    }

    /// Whether the same call may succeed later without anybody changing it.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::OutOfSpace
            | Self::MemtableFull { .. }
            | Self::NoRoom { .. }
            | Self::BadIngest { .. }
            | Self::NotHeld { .. }
            | Self::Io { .. }
            | Self::Locked { .. } => true,
            Self::Refused(_)
            | Self::BatchTooLong { .. }
            | Self::StrayRecord { .. }
            | Self::AfterFailure { .. }
            | Self::Failed { .. }
            | Self::Closed
            | Self::NewerFormat { .. }
            | Self::OlderFormat { .. }
            | Self::PartitionsDiffer { .. }
            | Self::Corrupt { .. }
            | Self::Damaged { .. }
            | Self::Unflushable { .. }
            | Self::UnknownPartition { .. }
            | Self::BadMetaName { .. }
            | Self::MetaTooLong { .. }
            | Self::BadOption { .. } => false,
        }
    }

    pub(crate) fn io<'a>(
        action: &'static str,
        file: &'a Path,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| {
            if is_out_of_space(&source) {
                return Self::OutOfSpace;
            }
            Self::Io {
                action,
                file: file.to_owned(),
                source: Arc::new(source),
            }
        }
    }

    /// A failure after which nobody knows what the disk holds.
    pub(crate) fn stopped<'a>(
        action: &'static str,
        file: &'a Path,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Failed {
            reason: format!("cannot {action} {}: {source}", file.display()).into(),
        }
    }

    pub(crate) fn panicked() -> Self {
        Self::Failed {
            reason: "a thread of the store has panicked".into(),
        }
    }

    pub(crate) fn corrupt(file: &Path, offset: u64, what: &'static str) -> Self {
        Self::Corrupt {
            file: file.to_owned(),
            offset,
            what,
        }
    }
}

/// Whether the system said that the disk, or our share of it, is full.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Whether the process, or the system, has no descriptor left.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}
