//! Why a build or a generation cannot go on.

use std::io;
use std::path::{Path, PathBuf};

use torc_store::StoreError;

/// Why a build or a generation cannot go on. What was built before is as it was: the same
/// command goes on from there, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory holds a build of something else, or with other options.
    #[error(
        "{} holds a build with another {what}: choose another directory, or remove it",
        dir.display()
    )]
    OtherPlan {
        /// The directory.
        dir: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// Nothing is built in such a shape.
    #[error("{what}")]
    BadShape {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The directory holds files that are no build's: nothing was changed.
    #[error("{} is not empty and holds no build: choose another directory", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory has a generation already.
    #[error("{} holds a complete generation: choose another directory", dir.display())]
    Complete {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no generation, or its build has not ended.
    #[error("{} holds no complete generation: {what}", dir.display())]
    NoGeneration {
        /// The directory.
        dir: PathBuf,
        /// What is missing or wrong.
        what: String,
    },
    /// A file that `kvctl generation reserve` did not write.
    #[error("{} is not a reservation of a generation: {what}", path.display())]
    NoReservation {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A task was given a row of another bucket than was said: nothing of the task counts.
    #[error(
        "row {row} is of bucket {bucket} and came as one of another: partition the rows by the buckets of \
         this very plan"
    )]
    OtherBucket {
        /// Which one, counted from 1.
        row: u64,
        /// The bucket of its key.
        bucket: u32,
    },
    /// A task was given rows of too many buckets: nothing of the task counts.
    #[error("a task has rows of more than {most} buckets: partition the rows by bucket first")]
    NotPartitioned {
        /// Buckets that one task takes.
        most: u32,
    },
    /// Two tasks had rows of one bucket. No manifest was written.
    #[error(
        "two tasks had rows of bucket {bucket}: partition the rows by bucket, and do not shuffle them \
         afterwards"
    )]
    BucketTwice {
        /// Its number.
        bucket: u32,
    },
    /// A receipt of a task of another job. No manifest was written.
    #[error("a receipt is of another plan: commit the receipts of this job's tasks, and no others")]
    OtherReceipt,
    /// A key that no cluster takes.
    #[error("row {row}: {what}")]
    BadRow {
        /// Which one, counted from 1.
        row: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A key is there more than once, and that is to be an error.
    #[error(
        "the key {key:?} is there more than once: remove it, or say which row counts (first or last)"
    )]
    Duplicate {
        /// The key, as text as far as it is.
        key: String,
    },
    /// Two keys with one digest: the target's digest key was aimed at.
    #[error("the keys {one:?} and {other:?} have the same digest: build for another digest key")]
    SameDigest {
        /// One key.
        one: String,
        /// The other.
        other: String,
    },
    /// One partition alone does not fit into the memory that the build may use.
    #[error(
        "partition {partition} has {bytes} bytes, which do not fit into the memory of a worker: allow more \
         memory, fewer workers, or build for more partitions"
    )]
    PartitionTooLarge {
        /// Its number.
        partition: u32,
        /// What its rows come to.
        bytes: u64,
    },
    /// What was gathered is not what was scattered: the disk lost or changed something.
    #[error(
        "what was written is not what was read ({what}): the disk changed a file of {}; remove the \
         directory and build again",
        dir.display()
    )]
    SumsDiffer {
        /// The directory.
        dir: PathBuf,
        /// Which sums.
        what: &'static str,
    },
    /// A file of slices.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BuildError {
    /// For `map_err` of what was tried with a file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
