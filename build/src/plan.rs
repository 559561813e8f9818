//! The decisions at the start of a build, which never change.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use torc_record::Digest;

use crate::shape::Shape;
use crate::target::Target;
use crate::{BuildError, LOCK_FILE, PLAN_FILE};

/// Most runs of a build, and most buckets of a task: each has a buffer. More and shorter runs cost more than they save.
pub(crate) const MOST_RUNS: u32 = 256;

/// Which of several rows with the same key to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplicates {
    /// None: a duplicate key is an error.
    #[default]
    Error,
    /// The first row.
    First,
    /// The last row.
    Last,
}

/// The decisions. In `plan.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    format: u32,
    pub(crate) target: Target,
    /// The caller's description of the source: the same text means the same rows in the same order.
    pub(crate) source: String,
    pub(crate) shape: Shape,
    pub(crate) duplicates: Duplicates,
    /// False positive rate of the gates.
    pub(crate) gate_rate: f64,
    /// A power of two, at most the number of partitions.
    pub(crate) buckets: u32,
    /// Runs of all buckets: a power of two, at most the number of partitions. 0: one for each bucket.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) runs: u32,
    /// Limit of a file of slices, bytes.
    pub(crate) file_bytes: u64,
    /// Limit of a worker's memory, bytes, if a build continues with another one than it began with: that of a file is
    /// kept. 0: the same.
    #[serde(skip)]
    pub(crate) other_memory: u64,
}

const FORMAT: u32 = 2;

/// Checks a false positive rate of gates. Written so that it refuses NaN.
pub(crate) fn check_rate(rate: f64) -> Result<(), &'static str> {
    if (0.0001..=0.5).contains(&rate) {
        return Ok(());
    }
    Err("the false positive rate of the gates must be 0.0001 to 0.5")
}

impl Plan {
    /// Checks a plan that was read.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.shape.check()?;
        check_rate(self.gate_rate)?;
        let (buckets, most) = (self.buckets, self.target.partitions.count());
        if !buckets.is_power_of_two() || buckets > most || self.file_bytes == 0 {
            return Err("the plan has an impossible number of buckets, or no memory");
        }
        if !self.runs().is_power_of_two() || self.runs() > most {
            return Err("the plan has an impossible number of runs");
        }
        Ok(())
    }

    pub(crate) fn new(
        target: Target,
        source: String,
        shape: Shape,
        duplicates: Duplicates,
        gate_rate: f64,
        (buckets, file_bytes): (u32, u64),
    ) -> Self {
        let most = target.partitions.count();
        Self {
            format: FORMAT,
            target,
            source,
            shape,
            duplicates,
            gate_rate,
            buckets: buckets.clamp(1, most).next_power_of_two().min(most),
            runs: 0,
            file_bytes,
            other_memory: 0,
        }
    }

    /// The same with about this many runs, at least one for each bucket.
    pub(crate) fn with_runs(self, runs: u32) -> Self {
        let most = self.target.partitions.count();
        let runs = runs.clamp(1, MOST_RUNS).next_power_of_two().min(most);
        Self { runs, ..self }
    }

    /// The same, with the memory limit of another plan.
    pub(crate) fn with_memory_of(self, other: &Self) -> Self {
        Self {
            other_memory: other.file_bytes,
            ..self
        }
    }

    /// Limit of a worker's memory, bytes.
    pub(crate) const fn memory(&self) -> u64 {
        if self.other_memory == 0 {
            self.file_bytes
        } else {
            self.other_memory
        }
    }

    /// Number of runs.
    pub(crate) fn runs(&self) -> u32 {
        self.runs.max(self.buckets)
    }

    /// The run of a digest: a part of its bucket.
    pub(crate) fn run(&self, digest: &Digest) -> u32 {
        range_of(digest, self.runs())
    }

    /// The runs of a bucket, in the order of their partitions.
    pub(crate) fn runs_of(&self, bucket: u32) -> Range<u32> {
        let each = self.runs() / self.buckets;
        bucket * each..(bucket + 1) * each
    }

    /// The bucket that a run is a part of.
    pub(crate) fn bucket_of_run(&self, run: u32) -> u32 {
        run / (self.runs() / self.buckets)
    }

    /// The bucket of a digest: like a partition, a range of tokens.
    pub(crate) fn bucket(&self, digest: &Digest) -> u32 {
        range_of(digest, self.buckets)
    }

    /// Refuses a directory with other files, because a build removes its temporary files at the
    /// end.
    pub(crate) fn check_empty(dir: &Path) -> Result<(), BuildError> {
        // Files of an attempt that ended before it had a plan.
        const OURS: [&str; 2] = [LOCK_FILE, "plan.tmp"];
        for entry in std::fs::read_dir(dir).map_err(BuildError::io("read", dir))? {
            let name = entry.map_err(BuildError::io("read", dir))?.file_name();
            if !OURS.iter().any(|ours| name == *ours) {
                return Err(BuildError::NotEmpty {
                    dir: dir.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The plan of a build in this directory, if any.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, BuildError> {
        let path = dir.join(PLAN_FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BuildError::io("read", &path)(error)),
        };
        let invalid = |error: Box<dyn std::error::Error + Send + Sync>| {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
            BuildError::io("read", &path)(error)
        };
        let plan: Self = serde_json::from_slice(&bytes).map_err(|error| invalid(error.into()))?;
        if plan.format != FORMAT {
            return Err(BuildError::OtherPlan {
                dir: dir.to_owned(),
                what: "format, of another release",
            });
        }
        plan.check().map_err(|what| invalid(what.into()))?;
        Ok(Some(plan))
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), BuildError> {
        let path = dir.join(PLAN_FILE);
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        let mut text = text.map_err(BuildError::io("write", &path))?;
        text.push(b'\n');
        write_durably(&path, &text)
    }

    /// The first difference to `wanted`, ignoring numbers that a build chooses by itself.
    pub(crate) fn difference(&self, wanted: &Self) -> Option<&'static str> {
        let parts = [
            (self.target == wanted.target, "target"),
            (self.source == wanted.source, "source"),
            (self.shape == wanted.shape, "shape"),
            (self.duplicates == wanted.duplicates, "rule for duplicates"),
            (
                (self.gate_rate - wanted.gate_rate).abs() < f64::EPSILON,
                "gate rate",
            ),
        ];
        let differs = parts.into_iter().find(|(is_same, _)| !is_same);
        differs.map(|(_, what)| what)
    }
}

/// Which of `ranges` ranges of tokens a digest is in; they are a power of two.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it is less than the number of ranges"
)]
fn range_of(digest: &Digest, ranges: u32) -> u32 {
    let bits = ranges.trailing_zeros();
    digest.high().checked_shr(u64::BITS - bits).unwrap_or(0) as u32
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Writes a file atomically. If the action "make durable" failed, it was written and may be lost
/// again.
pub(crate) fn write_durably(path: &Path, text: &[u8]) -> Result<(), BuildError> {
    let temporary = path.with_extension("tmp");
    let created = std::fs::File::create(&temporary);
    let written = created.and_then(|mut file| {
        std::io::Write::write_all(&mut file, text)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    });
    written.map_err(BuildError::io("write", path))?;
    let synced = sync_dir(path.parent().unwrap_or(Path::new(".")));
    synced.map_err(BuildError::io("make durable", path))
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    std::fs::File::open(dir)?.sync_all()
}
