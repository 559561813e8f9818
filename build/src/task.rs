//! A generation built by tasks on several machines, under an engine that partitions rows and repeats tasks.
//!
//! 1. The driver [begins](Plan::begin) with a [`Plan`], which goes to all tasks as it is.
//! 2. The engine brings all rows of a [bucket](Plan::bucket_of) to one [`Task`], and any number of buckets to each.
//! 3. A task writes the files of its buckets to the directory, and returns a [`Receipt`].
//! 4. The driver [commits](Plan::commit) the receipts: the manifest is written last.
//!
//! Invariants:
//! * A task may be run any number of times, also at once: each attempt writes in a directory of its own, and the file of the same
//!   rows gets the same name. What no manifest names counts for nothing, and goes with the next commit.
//! * All rows of a key meet in one task, so a key that is there twice is noticed whatever the number of tasks. A
//!   bucket in two receipts is refused.
//!
//! Absent: the engine, and the order of rows. [`Duplicates::First`](crate::Duplicates::First) and
//! [`Last`](crate::Duplicates::Last) mean the order in which a task is given them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::build::lock;
use crate::gather::{Gathered, Places, gather};
use crate::generation::check_file;
use crate::manifest::{FileEntry, Manifest};
use crate::plan::{Plan, Target, sync_dir};
use crate::scatter::Scatter;
use crate::sums::{Sums, hex32};
use crate::{BuildError, BuildOptions, Depth, MANIFEST_FILE, RUNS_DIR};

/// What a task has written. Small: about 100 bytes for each slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    #[serde(with = "hex32")]
    plan: [u8; 32],
    /// What its rows came to when they were read.
    read: Sums,
    buckets: BTreeMap<u32, Gathered>,
}

/// One attempt of a task.
#[derive(Debug)]
pub struct Task {
    plan: Plan,
    dir: PathBuf,
    /// Its runs. Goes with the attempt, as the other one.
    scratch: TempDir,
    /// Where its files are until they have their names.
    unnamed: TempDir,
    scatter: Scatter,
}

impl Task {
    /// Begins an attempt. `dir` is the directory of the generation, which all machines see; below `scratch` are its rows
    /// meanwhile.
    ///
    /// # Errors
    /// [`BuildError::Io`].
    pub fn begin(plan: Plan, dir: &Path, scratch: &Path) -> Result<Self, BuildError> {
        let runs = dir.join(RUNS_DIR);
        std::fs::create_dir_all(&runs).map_err(BuildError::io("create", &runs))?;
        let own = |below: &Path| {
            let made = tempfile::Builder::new().prefix("torc-").tempdir_in(below);
            made.map_err(BuildError::io("create a directory in", below))
        };
        let (scratch, unnamed) = (own(scratch)?, own(&runs)?);
        // Files are half of what a task may use.
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

    /// Takes a row. `placed`: the bucket for which the engine brought it here, if that is known.
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
    /// What tasks do for a target. `buckets`: ranges of the ring that are built apart, a power of two or the next above.
    /// A task uses the share that one worker of the options has of their memory.
    ///
    /// # Errors
    /// [`BuildError::BadShape`].
    pub fn for_tasks(
        target: Target,
        options: &BuildOptions,
        buckets: u32,
    ) -> Result<Self, BuildError> {
        let checked = options.shape.check();
        checked.map_err(|what| BuildError::BadShape { what })?;
        Ok(options.plan_of(target, buckets))
    }

    /// Ranges of the ring that are built apart.
    #[must_use]
    pub const fn buckets(&self) -> u32 {
        self.buckets
    }

    /// The bucket of a key: one task gets all rows of it.
    #[must_use]
    pub fn bucket_of(&self, key: &[u8]) -> u32 {
        self.bucket(&self.target.digest(key))
    }

    fn digest(&self) -> [u8; 32] {
        // Of a type without maps: it cannot fail, and its text is one.
        let text = serde_json::to_vec(self).unwrap_or_default();
        *blake3::hash(&text).as_bytes()
    }

    /// Makes a directory ready for tasks, or finds it so. A generation that is there stays until a commit `replaces` it.
    ///
    /// # Errors
    /// [`BuildError::Complete`], [`BuildError::NotEmpty`], [`BuildError::OtherPlan`], [`BuildError::Io`]:
    /// nothing of what is there was changed.
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

    /// Writes the manifest of what all tasks have written, and removes what it does not name.
    ///
    /// # Errors
    /// [`BuildError::OtherReceipt`], [`BuildError::BucketTwice`], [`BuildError::NoGeneration`] where a file of a
    /// receipt is missing, [`BuildError::Complete`], [`BuildError::SumsDiffer`], [`BuildError::Io`]: no manifest was
    /// written.
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
            // A task that was run twice may say so twice.
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

/// Removes what attempts left that failed or were repeated, as far as that can be done: it costs space alone.
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
