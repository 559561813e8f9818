//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use torc_record::{NamespaceId, RecordError};
use torc_ring::Partition;

/// Why an operation of the store failed.
///
/// Each variant says whether anything changed and what to do. It is `Clone` because
/// every write of a batch gets the same error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A record is out of bounds. Nothing was changed.
    #[error(transparent)]
    Refused(#[from] RecordError),
    /// The disk is full. This write changed nothing, and reads still work. Writes are
    /// accepted again as soon as there is free space.
    #[error("out of disk space: the write was refused, but reads still work; free some space")]
    OutOfSpace,
    /// The memtable is full. Nothing was changed. A flush is running: retry soon.
    #[error("the memtable has reached its limit of {limit_bytes} bytes: retry soon")]
    NoRoom {
        /// The limit it was opened with, bytes.
        limit_bytes: u64,
    },
    /// A batch of a partition is too long. Nothing was changed: split it.
    #[error("batch of at least {len} bytes; the limit is {max}: split it")]
    BatchTooLong {
        /// Bytes of its records as stored, as far as counted.
        len: usize,
        /// The limit, bytes.
        max: usize,
    },
    /// A record belongs to a different partition from its batch. Nothing was changed.
    #[error("a batch of partition {partition} contains a record of another partition")]
    StrayRecord {
        /// The batch's partition.
        partition: Partition,
    },
    /// An earlier batch of the partition failed. Nothing was changed: start again from the
    /// durable state, then call [`Store::resume`](crate::Store::resume).
    #[error("an earlier batch of partition {partition} was not stored, so this one is refused")]
    AfterFailure {
        /// The partition whose batches are refused.
        partition: Partition,
    },
    /// A write or sync failed, now or earlier. A write in progress may or may not
    /// survive; nothing else is lost. The store refuses everything from now on: check
    /// the disk, then restart the node.
    #[error("the store has stopped: {reason}; check the disk and restart the node")]
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
    /// A file was written by a newer release. Nothing was changed: use that release or a later one.
    #[error(
        "{} has format {found}, but this release reads {supported}: use a newer release",
        .file.display()
    )]
    NewerFormat {
        /// The file in that format.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The version that this release reads.
        supported: u32,
    },
    /// A file was written by an older release, in a format that this release cannot read.
    /// Nothing was changed: dump the data with that release, or move the directory away and
    /// let the node join again.
    #[error(
        "{} has format {found}, but this release reads {supported}; nothing was changed: dump the data with the release that wrote it, or let the node join again with an empty directory",
        .file.display()
    )]
    OlderFormat {
        /// The file in that format.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The version that this release reads.
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
        /// The number that it was created with.
        found: u32,
        /// The number that it was opened with.
        wanted: u32,
    },
    /// A file is corrupt. Nothing was changed or skipped: keep the directory, start the node with
    /// an empty one, and let it replace the old node.
    #[error(
        "{} is corrupt at byte {offset}: {what}. Nothing was changed: keep the directory, start the node with an empty one, and let it replace the old node: `kvctl replace-node OLD-ID ADDRESS --dead`",
        .file.display()
    )]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Offset in the file, bytes.
        offset: u64,
        /// The problem.
        what: &'static str,
    },
    /// The last batch of the log is damaged, and not as by an interrupted write: it was complete
    /// once, so it may have been acknowledged. Nothing was changed or skipped. Replace the node if
    /// others have replicas of its keys. If not, open the store with
    /// [`cut_damaged_log`](crate::StoreOptions::cut_damaged_log).
    #[error(
        "{} is corrupt at byte {offset}: the last batch is damaged although it was complete once, so acknowledged writes may be lost. Nothing was changed. If other nodes have replicas of its keys, keep the directory, start the node with an empty one, and let it replace the old node: `kvctl replace-node OLD-ID ADDRESS --dead`. If not, `kvd serve --cut-damaged-log` starts it without that batch",
        .file.display()
    )]
    LostBatch {
        /// The last segment of the log.
        file: PathBuf,
        /// Offset of the batch in it, bytes.
        offset: u64,
    },
    /// A slice is damaged. Nothing was changed. The store cannot tell whether the key
    /// exists, so it returns an error rather than "not found". Other replicas supply its records;
    /// with one replica, write the key again.
    #[error(
        "partition {partition}: a slice at byte {offset} of {} is damaged: {what}. Other replicas answer for its keys and supply them; with one replica, write the keys again", .file.display()
    )]
    Damaged {
        /// The slice's partition.
        partition: Partition,
        /// The segment's file.
        file: PathBuf,
        /// Offset of the slice in it, bytes.
        offset: u64,
        /// The damage.
        what: &'static str,
    },
    /// The partition has no readable slice of a generation here: ask another replica for the key.
    /// Nothing was changed.
    #[error("this node has no slice of generation {} of partition {partition}", .generation.0)]
    NotHeld {
        /// The partition.
        partition: Partition,
        /// The generation.
        generation: NamespaceId,
    },
    /// A generation does not store its keys, so they cannot be listed. Nothing was changed.
    #[error("generation {} does not store its keys, so they cannot be listed", .generation.0)]
    Keyless {
        /// The generation.
        generation: NamespaceId,
    },
    /// The list of the store's files would be too long to be read again. Nothing was changed: the
    /// memtable and the log keep the records. Move partitions to other nodes.
    #[error(
        "the list of files would have {len} bytes; the limit is {max}: move partitions to other nodes"
    )]
    ManifestTooLong {
        /// Bytes that it would have.
        len: usize,
        /// The limit, bytes.
        max: usize,
    },
    /// Records do not fit a slice: the partition has more than 2^30. Nothing was changed:
    /// they stay in memory and in the log.
    #[error("records cannot be flushed: {why}; they stay in memory and in the log")]
    Unflushable {
        /// The index's reason.
        why: Arc<str>,
    },
    /// Bytes from another node differ from what it announced. Nothing was changed: request
    /// them again.
    #[error("a received slice of partition {partition} is damaged: {what}; request it again")]
    BadIngest {
        /// The slice's partition.
        partition: Partition,
        /// The difference.
        what: &'static str,
    },
    /// A file could not be opened, created or read. Nothing was changed; see the
    /// system's error.
    #[error("cannot {action} {}: {source}", .file.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The cluster has no such partition. Nothing was changed.
    #[error("partition {partition} does not exist: the cluster has {count}")]
    UnknownPartition {
        /// The requested partition.
        partition: Partition,
        /// The number of partitions.
        count: u32,
    },
    /// Invalid name for [`Store::meta_set`](crate::Store::meta_set). Nothing was changed.
    #[error(
        "invalid metadata name `{name}`: use 1 to 64 characters of a to z, 0 to 9, `-` and `_`"
    )]
    BadMetaName {
        /// The refused name, cut to 80 characters.
        name: String,
    },
    /// Value too long for [`Store::meta_set`](crate::Store::meta_set). Nothing was changed.
    #[error("{len} bytes of metadata; the limit is {max}")]
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
    /// Whether a write that failed with this error may still survive.
    #[must_use]
    pub const fn outcome_unknown(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Refused(_)
            | Self::OutOfSpace
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
            | Self::LostBatch { .. }
            | Self::Damaged { .. }
            | Self::ManifestTooLong { .. }
            | Self::Unflushable { .. }
            | Self::BadIngest { .. }
            | Self::NotHeld { .. }
            | Self::Keyless { .. }
            | Self::Io { .. }
            | Self::UnknownPartition { .. }
            | Self::BadMetaName { .. }
            | Self::MetaTooLong { .. }
            | Self::BadOption { .. } => false,
        }
    }

    /// Whether the same call may succeed later, unchanged.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::OutOfSpace
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
            | Self::LostBatch { .. }
            | Self::Damaged { .. }
            | Self::Keyless { .. }
            | Self::ManifestTooLong { .. }
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

    /// A failure after which the state of the disk is unknown.
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

/// Whether the system reported that the disk or quota is full.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Whether the process or the system has no file descriptors left.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}
