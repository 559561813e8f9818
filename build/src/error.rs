//! Why a build failed, or a generation cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use torc_store::StoreError;

/// Why a build failed, or a generation cannot be used. Everything built before is unchanged: unless
/// the error says otherwise, the same command continues from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An earlier error left files that end at unknown places. Nothing more was written. Drop the
    /// build, and create it again: it continues from its last durable rows.
    #[error("the build stopped at an earlier error: run it again, and it continues")]
    Stopped,
    /// The directory holds a build of another target, or with other options.
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
    /// No generation can have this shape.
    #[error("{what}")]
    BadShape {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The directory holds files that belong to no build: nothing was changed.
    #[error("{} is not empty and holds no build: choose another directory", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory already has a generation.
    #[error("{} holds a complete generation: choose another place", dir.display())]
    Complete {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no generation, or its build is unfinished.
    #[error("{} holds no complete generation: {what}", dir.display())]
    NoGeneration {
        /// The directory.
        dir: PathBuf,
        /// What is missing or wrong.
        what: String,
    },
    /// Two manifests have the highest number at a place. Nothing was read or changed.
    #[error(
        "{} has two newest manifests, {one} and {other}: give the URL of one of them",
        place.display()
    )]
    TwoNewest {
        /// A directory or the URL of a location.
        place: PathBuf,
        /// One of them.
        one: String,
        /// The other.
        other: String,
    },
    /// A file that `kvctl generation reserve` did not write.
    #[error("{} is not a reservation of a generation: {what}", path.display())]
    NoReservation {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A task got a row under the wrong bucket: its results are void.
    #[error(
        "row {row} belongs to bucket {bucket} but arrived in another: partition the rows with this plan"
    )]
    OtherBucket {
        /// Number of the row, from 1.
        row: u64,
        /// The bucket of its key.
        bucket: u32,
    },
    /// A task got rows of too many buckets: its results are void.
    #[error("a task has rows of more than {most} buckets: partition the rows by bucket first")]
    NotPartitioned {
        /// Most buckets per task.
        most: u32,
    },
    /// Two tasks had rows of the same bucket. No manifest was written.
    #[error(
        "two tasks had rows of bucket {bucket}: partition the rows by bucket, and do not shuffle them \
         afterwards"
    )]
    BucketTwice {
        /// Its number.
        bucket: u32,
    },
    /// A receipt from a task of another job. No manifest was written.
    #[error("a receipt is of another plan: commit the receipts of this job's tasks, and no others")]
    OtherReceipt,
    /// A key that no cluster accepts.
    #[error("row {row}: {what}")]
    BadRow {
        /// Number of the row, from 1, without rows refused before.
        row: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A key occurs more than once, and duplicates are an error.
    #[error(
        "the key {key:?} is there more than once: remove it, or say which row counts (first or last)"
    )]
    Duplicate {
        /// The key as text; bytes that are not UTF-8 are replaced.
        key: String,
    },
    /// Two keys have the same digest. Only someone who knows the target's digest key can construct
    /// such keys.
    #[error("the keys {one:?} and {other:?} have the same digest: build for another digest key")]
    SameDigest {
        /// One key.
        one: String,
        /// The other.
        other: String,
    },
    /// A single partition does not fit into the memory limit of the build.
    #[error(
        "partition {partition} needs {bytes} bytes, more than the memory of a worker: allow more memory, fewer \
         workers, or build for more partitions"
    )]
    PartitionTooLarge {
        /// Its number.
        partition: u32,
        /// The memory that its rows take.
        bytes: u64,
    },
    /// The gathered rows differ from the scattered ones: the disk lost or changed data.
    #[error(
        "the data read back differs from the data written ({what}): the disk changed a file of {}; \
         remove the directory and build again",
        dir.display()
    )]
    SumsDiffer {
        /// The directory.
        dir: PathBuf,
        /// The sums that differ.
        what: &'static str,
    },
    /// A location of objects.
    #[cfg(feature = "objects")]
    #[error(transparent)]
    Objects(#[from] torc_objects::ObjectError),
    /// An error of a file of slices.
    #[error("{}", of_build(.0))]
    Store(#[from] StoreError),
}

/// The store's texts on damage say what to do with a node; a build has neither replicas nor a log.
fn of_build(error: &StoreError) -> String {
    match error {
        StoreError::Corrupt { file, offset, what }
        | StoreError::Damaged {
            file, offset, what, ..
        } => format!(
            "{} is damaged at byte {offset}: {what}; copy the file again, or build again into another directory",
            file.display()
        ),
        other => other.to_string(),
    }
}

impl BuildError {
    /// Makes a function for `map_err` after a file operation.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_of_a_build_has_advice_for_builds() {
        let corrupt = StoreError::Corrupt {
            file: "g/1.slices".into(),
            offset: 64,
            what: "a bad checksum",
        };
        let damaged = StoreError::Damaged {
            partition: torc_ring::Partition(3),
            file: "g/1.slices".into(),
            offset: 64,
            what: "a bad checksum",
        };
        for error in [corrupt, damaged] {
            assert_eq!(
                BuildError::from(error).to_string(),
                "g/1.slices is damaged at byte 64: a bad checksum; copy the file again, or build again \
                 into another directory"
            );
        }
    }
}
