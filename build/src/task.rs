//! Builds a generation with tasks on several machines, driven by an engine that partitions rows and
//! repeats tasks.
//!
//! 1. The driver [begins](Plan::begin) with a [`Plan`] and a [`Location`], and sends both to all tasks.
//! 2. The engine sends all rows of a [bucket](Plan::bucket_of) to one [`Task`], and any number
//!    of buckets to each task.
//! 3. A task builds the files of one bucket after the other on its own disk, sends them to the location,
//!    and returns a [`Receipt`].
//! 4. The driver [commits](Plan::commit) the receipts: the manifest is written last.
//!
//! Invariants:
//! * A task may run any number of times, even concurrently, and an attempt may go on after the commit: the same
//!   rows make a file of the same name and bytes, which no attempt removes.
//! * Nothing removes a file that no manifest names, because another job may be about to name it.
//! * All rows of a key reach one task, so it detects duplicates, however many tasks there are. A
//!   bucket in two receipts is refused.
//!
//! Absent: the engine, and the order of rows. [`Duplicates::First`](crate::Duplicates::First) and
//! [`Last`](crate::Duplicates::Last) mean the order in which a task gets them.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use torc_objects::{Location, ObjectError};

use crate::gather::{Places, gather};
use crate::manifest::{Gathered, Manifest};
use crate::objects::{check_place, send};
use crate::plan::Plan;
use crate::scatter::Scatter;
use crate::sums::{Sums, hex32};
use crate::target::Target;
use crate::{BuildError, BuildOptions, Published, source_of};

/// The result of a task: about 100 bytes per slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    #[serde(with = "hex32")]
    plan: [u8; 32],
    /// The sums of its rows when they were read.
    read: Sums,
    buckets: BTreeMap<u32, Gathered>,
}

/// One attempt of a task.
#[derive(Debug)]
pub struct Task {
    plan: Plan,
    to: Location,
    /// Its rows, and the files of one bucket. Deleted with the attempt.
    scratch: TempDir,
    scatter: Scatter,
}

impl Task {
    /// Begins an attempt. `to` is the location of the generation; `scratch` is the place for temporary files: all
    /// rows of the task, and the files of one bucket.
    ///
    /// # Errors
    /// [`BuildError::BadShape`]: no [`Plan::for_tasks`] made this plan. [`BuildError::Io`].
    pub fn begin(plan: Plan, to: Location, scratch: &Path) -> Result<Self, BuildError> {
        plan.check().map_err(|what| BuildError::BadShape { what })?;
        let own = tempfile::Builder::new().prefix("torc-").tempdir_in(scratch);
        let own = own.map_err(BuildError::io("create a directory in", scratch))?;
        // Files take half of a task's memory.
        let memory = plan.file_bytes.saturating_mul(2);
        let nothing = (0, Sums::default(), Vec::new());
        Ok(Self {
            scatter: Scatter::open(own.path(), &plan, nothing, memory)?,
            plan,
            to,
            scratch: own,
        })
    }

    /// Takes a row. `placed`: the bucket for which the engine sent it, if known.
    ///
    /// # Errors
    /// [`BuildError::BadRow`], [`BuildError::OtherBucket`], [`BuildError::NotPartitioned`], [`BuildError::Io`].
    pub fn push(
        &mut self,
        key: Bytes,
        value: Bytes,
        placed: Option<u32>,
    ) -> Result<(), BuildError> {
        self.scatter.push((key, value), placed)
    }

    /// Builds and sends the files of all rows. Blocks its thread while it builds.
    ///
    /// # Errors
    /// As [`Build::finish`](crate::Build::finish), and [`BuildError::Objects`]. Another attempt at the same rows
    /// sends what is missing.
    pub async fn finish(self) -> Result<Receipt, BuildError> {
        let Self {
            plan,
            to,
            scratch,
            scatter,
        } = self;
        let (read, dir) = (scatter.sums, scratch.path());
        let places = Places {
            runs: dir,
            dir,
            temporary: dir.join("part"),
        };
        let mut buckets = BTreeMap::new();
        for bucket in scatter.write_out()? {
            let gathered = gather(&places, &plan, bucket)?;
            for entry in &gathered.files {
                send(&to, dir, entry).await?;
                let path = dir.join(entry.name());
                std::fs::remove_file(&path).map_err(BuildError::io("remove", &path))?;
            }
            buckets.insert(bucket, gathered);
        }
        // Compares the sums.
        Manifest::of(&plan, to.url().as_ref(), &read, buckets.values().cloned())?;
        Ok(Receipt {
            plan: plan.digest(),
            read,
            buckets,
        })
    }
}

impl Plan {
    /// A plan for tasks. `buckets`, the number of ranges of the ring that are built separately, is
    /// rounded up to a power of two. A task uses as much memory as one worker of the options.
    ///
    /// # Errors
    /// [`BuildError::BadShape`].
    pub fn for_tasks(
        target: Target,
        options: &BuildOptions,
        buckets: u32,
    ) -> Result<Self, BuildError> {
        options.check()?;
        Ok(options.plan_of(target, buckets))
    }

    /// Number of ranges of the ring that are built separately.
    #[must_use]
    pub const fn buckets(&self) -> u32 {
        self.buckets
    }

    /// The bucket of a key. One task gets all rows of a bucket.
    #[must_use]
    pub fn bucket_of(&self, key: &[u8]) -> u32 {
        self.bucket(&self.target.digest(key))
    }

    fn digest(&self) -> [u8; 32] {
        // The type contains no maps, so that serialisation cannot fail and is deterministic.
        let text = serde_json::to_vec(self).unwrap_or_default();
        *blake3::hash(&text).as_bytes()
    }

    /// Checks that a location can take a generation: it has none, unless it may have others, and a small object
    /// can be written there.
    ///
    /// # Errors
    /// [`BuildError::BadShape`], [`BuildError::Complete`], [`BuildError::Objects`]: nothing was changed.
    pub async fn begin(&self, to: &Location, may_have_others: bool) -> Result<(), BuildError> {
        self.check().map_err(|what| BuildError::BadShape { what })?;
        if source_of(to.url()).0 != to.url() {
            let what = "it must not end in .json, as manifests do".to_owned();
            let url = to.url().to_owned();
            return Err(ObjectError::Url { url, what }.into());
        }
        check_place(to, None, may_have_others).await?;
        Ok(to.probe().await?)
    }

    /// Writes the manifest of all tasks' files under the next number. Generations that the location has stay there.
    ///
    /// # Errors
    /// [`BuildError::OtherReceipt`], [`BuildError::BucketTwice`], [`BuildError::SumsDiffer`], [`BuildError::Complete`]
    /// if it has others and may not, [`BuildError::Objects`], also where a file of a receipt is missing or has another
    /// length: no manifest was written, unless the store failed while it was. The same commit may be repeated.
    pub async fn commit(
        &self,
        to: Location,
        receipts: &[Receipt],
        may_have_others: bool,
    ) -> Result<Published, BuildError> {
        let mut read = Sums::default();
        let mut buckets: BTreeMap<u32, &Gathered> = BTreeMap::new();
        for (place, receipt) in receipts.iter().enumerate() {
            if receipt.plan != self.digest() {
                return Err(BuildError::OtherReceipt);
            }
            // A task that ran twice may return the same receipt twice.
            if receipts[..place].contains(receipt) {
                continue;
            }
            read.merge(&receipt.read);
            for (bucket, gathered) in &receipt.buckets {
                if buckets.insert(*bucket, gathered).is_some() {
                    return Err(BuildError::BucketTwice { bucket: *bucket });
                }
            }
        }
        let gathered = buckets.into_values().cloned();
        let manifest = Manifest::of(self, to.url().as_ref(), &read, gathered)?;
        Published::commit(to, manifest, may_have_others).await
    }
}
