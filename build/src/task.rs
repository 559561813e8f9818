//! Builds a generation with tasks on several machines, driven by an engine that partitions rows and
//! repeats tasks.
//!
//! 1. The driver [begins](Plan::begin) with a [`Plan`], and sends it to all tasks.
//! 2. The engine sends all rows of a [bucket](Plan::bucket_of) to one [`Task`], and any number
//!    of buckets to each task.
//! 3. A task writes the files of its buckets to the directory, and returns a [`Receipt`].
//! 4. The driver [commits](Plan::commit) the receipts: the manifest is written last.
//!
//! Invariants:
//! * A task may run any number of times, even concurrently: each attempt writes in its own
//!   directory, and the same rows make a file of the same name. Files that no manifest names are
//!   ignored, and the next commit removes them.
//! * All rows of a key reach one task, so it detects duplicates, however many tasks there are. A
//!   bucket in two receipts is refused.
//!
//! Absent: the engine, and the order of rows. [`Duplicates::First`](crate::Duplicates::First) and
//! [`Last`](crate::Duplicates::Last) mean the order in which a task gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::build::lock;
use crate::gather::{Places, gather};
use crate::generation::check_file;
use crate::manifest::{FileEntry, Gathered, Manifest};
use crate::plan::{Plan, sync_dir};
use crate::scatter::Scatter;
use crate::sums::{Sums, hex32};
use crate::target::Target;
use crate::{BuildError, BuildOptions, Depth, MANIFEST_FILE, RUNS_DIR};

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
    dir: PathBuf,
    /// Its runs. Deleted with the attempt, like `unnamed`.
    scratch: TempDir,
    /// The directory of its files until they get their names.
    unnamed: TempDir,
    scatter: Scatter,
}

impl Task {
    /// Begins an attempt. `dir` is the directory of the generation, which all machines share;
    /// `scratch` is the place for temporary rows.
    ///
    /// # Errors
    /// [`BuildError::BadShape`]: no [`Plan::for_tasks`] made this plan. [`BuildError::Io`].
    pub fn begin(plan: Plan, dir: &Path, scratch: &Path) -> Result<Self, BuildError> {
        plan.check().map_err(|what| BuildError::BadShape { what })?;
        let runs = dir.join(RUNS_DIR);
        std::fs::create_dir_all(&runs).map_err(BuildError::io("create", &runs))?;
        let own = |below: &Path| {
            let made = tempfile::Builder::new().prefix("torc-").tempdir_in(below);
            made.map_err(BuildError::io("create a directory in", below))
        };
        let (scratch, unnamed) = (own(scratch)?, own(&runs)?);
        // Files take half of a task's memory.
        let memory = plan.file_bytes.saturating_mul(2);
        let nothing = (0, Sums::default(), Vec::new());
        Ok(Self {
            scatter: Scatter::open(scratch.path(), &plan, nothing, memory)?,
            plan,
            dir: dir.to_owned(),
            scratch,
            unnamed,
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
        self.scatter.push(&self.plan, (key, value), placed)
    }

    /// Writes the files of all rows.
    ///
    /// # Errors
    /// As [`Build::finish`](crate::Build::finish).
    pub fn finish(self) -> Result<Receipt, BuildError> {
        let Self {
            plan,
            dir,
            scratch,
            unnamed,
            scatter,
        } = self;
        let read = scatter.sums;
        let places = Places {
            runs: scratch.path(),
            dir: &dir,
            temporary: unnamed.path().join("part"),
        };
        let mut buckets = BTreeMap::new();
        for bucket in scatter.write_out()? {
            buckets.insert(bucket, gather(&places, &plan, bucket)?);
        }
        sync_dir(&dir).map_err(BuildError::io("sync", &dir))?;
        // Compares the sums.
        Manifest::of(&plan, &dir, &read, buckets.values().cloned())?;
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

    /// Prepares a directory for tasks, unless it is already prepared. An existing generation stays
    /// until a commit `replaces` it.
    ///
    /// # Errors
    /// [`BuildError::Complete`], [`BuildError::NotEmpty`], [`BuildError::OtherPlan`], [`BuildError::Io`]:
    /// existing files were not changed.
    pub fn begin(&self, dir: &Path, replaces: bool) -> Result<(), BuildError> {
        let _lock = lock(dir)?;
        if !replaces && dir.join(MANIFEST_FILE).exists() {
            return Err(BuildError::Complete {
                dir: dir.to_owned(),
            });
        }
        let Some(found) = Self::read(dir)? else {
            Self::check_empty(dir)?;
            return self.write(dir);
        };
        match found.difference(self).filter(|_| !replaces) {
            None => Ok(()),
            Some(what) => Err(BuildError::OtherPlan {
                dir: dir.to_owned(),
                what,
            }),
        }
    }

    /// Writes the manifest of all tasks' files, and removes other files of tasks.
    ///
    /// # Errors
    /// [`BuildError::OtherReceipt`], [`BuildError::BucketTwice`], [`BuildError::NoGeneration`] where a file of a
    /// receipt is missing, [`BuildError::Complete`], [`BuildError::SumsDiffer`], [`BuildError::Io`]: no manifest was
    /// written, except if the action "make durable" failed. The same commit may be repeated.
    pub fn commit(
        &self,
        dir: &Path,
        receipts: &[Receipt],
        replaces: bool,
    ) -> Result<Manifest, BuildError> {
        let _lock = lock(dir)?;
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
        let manifest = Manifest::of(self, dir, &read, gathered)?;
        for file in &manifest.files {
            check_file(dir, file, Depth::Names)?;
        }
        if !replaces && dir.join(MANIFEST_FILE).exists() && Manifest::read(dir)? != manifest {
            return Err(BuildError::Complete {
                dir: dir.to_owned(),
            });
        }
        self.write(dir)?;
        manifest.write(dir)?;
        sweep(dir, &manifest);
        Ok(manifest)
    }
}

/// Removes files of failed or repeated attempts. Ignores failures, which only cost space.
fn sweep(dir: &Path, manifest: &Manifest) {
    let named: BTreeSet<String> = manifest.files.iter().map(FileEntry::name).collect();
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let is_part = entry.path().extension().is_some_and(|it| it == "part");
        if is_part && name.to_str().is_some_and(|name| !named.contains(name)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let _ = std::fs::remove_dir_all(dir.join(RUNS_DIR));
}
