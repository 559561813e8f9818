//! The first pass: writes rows to buckets on disk.
//!
//! A bucket's *run* is a file of concatenated records in their stored form, in the order of the
//! rows.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a plan has at most 2^32 runs"
)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use torc_record::Digest;

use crate::BuildError;
use crate::plan::{MOST_RUNS, Plan};
use crate::rows::PackedRows;
use crate::sums::Sums;

/// Bounds of a run's buffer in memory, bytes.
const BUFFER_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;

/// Its file is open only while it is written to.
#[derive(Debug)]
struct Run {
    path: PathBuf,
    buffer: Vec<u8>,
    len: u64,
}

/// The first pass of a build.
#[derive(Debug)]
pub(crate) struct Scatter {
    runs: Runs,
    /// The current row.
    packed: PackedRows,
    pub(crate) rows: u64,
    pub(crate) sums: Sums,
    /// Whether a write failed, so that a run or the journal may end with part of it.
    is_stopped: bool,
}

/// The runs of a build. A run begins with its first row.
#[derive(Debug)]
struct Runs {
    dir: PathBuf,
    plan: Plan,
    all: Vec<Option<Run>>,
    begun: u32,
    most_buffered: usize,
}

impl Scatter {
    /// Goes on with the runs that are there, truncated to these lengths.
    pub(crate) fn open(
        dir: &Path,
        plan: &Plan,
        (rows, sums, lens): (u64, Sums, Vec<u64>),
        memory: u64,
    ) -> Result<Self, BuildError> {
        std::fs::create_dir_all(dir).map_err(BuildError::io("create", dir))?;
        let kept = |run: u32| {
            let path = run_path(dir, run);
            let len = lens.get(run as usize).copied().unwrap_or(0);
            let is_there = len > 0 || path.exists();
            is_there.then(|| Run::open(path, len)).transpose()
        };
        let runs: Vec<_> = (0..plan.runs()).map(kept).collect::<Result<_, _>>()?;
        let share = memory / 4 / u64::from(plan.runs().min(MOST_RUNS));
        Ok(Self {
            runs: Runs {
                dir: dir.to_owned(),
                plan: plan.clone(),
                begun: runs.iter().flatten().count() as u32,
                all: runs,
                most_buffered: (share as usize).clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end()),
            },
            packed: PackedRows::new(plan.shape, plan.target),
            rows,
            sums,
            is_stopped: false,
        })
    }

    /// The result of a write, after which nothing is written if it failed.
    pub(crate) fn noting<T>(&mut self, written: Result<T, BuildError>) -> Result<T, BuildError> {
        self.is_stopped |= written.is_err();
        written
    }

    const fn check(&self) -> Result<(), BuildError> {
        if self.is_stopped {
            Err(BuildError::Stopped)
        } else {
            Ok(())
        }
    }

    /// Takes a row. `placed`: the bucket to which it must belong, if known.
    pub(crate) fn push(
        &mut self,
        (key, value): (Bytes, Bytes),
        placed: Option<u32>,
    ) -> Result<(), BuildError> {
        self.check()?;
        let row = self.rows + 1;
        let bad = |what: String| BuildError::BadRow { row, what };
        self.packed.clear();
        self.packed.push(key, value).map_err(bad)?;
        let first = self.packed.iter().next();
        let first = first.unwrap_or(Err("there is no row"));
        let (packed, bytes) = first.map_err(|what| bad(what.to_owned()))?;
        let bucket = self.runs.plan.bucket(&packed.digest());
        if placed.is_some_and(|placed| placed != bucket) {
            return Err(BuildError::OtherBucket { row, bucket });
        }
        let sums = packed.sums();
        let taken = self.runs.take(&packed.digest(), bytes);
        self.noting(taken)?;
        self.rows = row;
        self.sums.merge(&sums);
        Ok(())
    }

    /// Takes rows.
    pub(crate) fn push_rows(&mut self, rows: &PackedRows) -> Result<(), BuildError> {
        self.check()?;
        let row = self.rows + 1;
        let bad = |what: &str| BuildError::BadRow {
            row,
            what: what.to_owned(),
        };
        let plan = &self.runs.plan;
        if (rows.shape, rows.target) != (plan.shape, plan.target) {
            return Err(bad("it is packed for another build"));
        }
        let mut sums = Sums::default();
        let taken = rows.iter().try_for_each(|row| {
            let (row, bytes) = row.map_err(bad)?;
            sums.merge(&row.sums());
            self.runs.take(&row.digest(), bytes)
        });
        self.noting(taken)?;
        self.rows += rows.len();
        self.sums.merge(&sums);
        Ok(())
    }

    /// Writes all rows so far to the runs. Returns their lengths.
    pub(crate) fn write_all(&mut self) -> Result<Vec<u64>, BuildError> {
        self.check()?;
        let mut runs = self.runs.all.iter_mut().flatten();
        let written = runs.try_for_each(Run::write_out);
        self.noting(written)?;
        let len = |run: &Option<Run>| run.as_ref().map_or(0, |run| run.len);
        Ok(self.runs.all.iter().map(len).collect())
    }

    /// Writes all rows so far to the runs. Returns the buckets with rows.
    #[cfg(any(feature = "objects", test))]
    pub(crate) fn write_out(mut self) -> Result<Vec<u32>, BuildError> {
        self.check()?;
        let mut buckets = Vec::new();
        let plan = &self.runs.plan;
        for (run, number) in self.runs.all.iter_mut().zip(0..) {
            if let Some(run) = run {
                run.write_out()?;
                buckets.push(plan.bucket_of_run(number));
            }
        }
        buckets.dedup();
        Ok(buckets)
    }
}

impl Runs {
    /// Adds a row to its run.
    fn take(&mut self, digest: &Digest, row: &[u8]) -> Result<(), BuildError> {
        let number = self.plan.run(digest);
        let (most, dir) = (self.most_buffered, &self.dir);
        // There are as many runs as the plan says.
        let run = match self.all.get_mut(number as usize) {
            Some(Some(run)) => run,
            Some(_) if self.begun == MOST_RUNS => {
                return Err(BuildError::NotPartitioned { most: MOST_RUNS });
            }
            Some(missing) => {
                let begun = Run::open(run_path(dir, number), 0)?;
                self.begun += 1;
                missing.insert(begun)
            }
            None => return Err(BuildError::Stopped),
        };
        if run.buffer.len() + row.len() > most {
            run.write_out()?;
        }
        // At once: a growing list takes up to three times its length.
        run.buffer
            .reserve_exact(most.max(row.len()) - run.buffer.len());
        run.buffer.extend_from_slice(row);
        Ok(())
    }
}

impl Run {
    /// A run in a file that is truncated to `len`.
    fn open(path: PathBuf, len: u64) -> Result<Self, BuildError> {
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        let truncated = opened.and_then(|file| file.set_len(len));
        truncated.map_err(BuildError::io("open", &path))?;
        Ok(Self {
            path,
            buffer: Vec::new(),
            len,
        })
    }

    fn write_out(&mut self) -> Result<(), BuildError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let opened = OpenOptions::new().append(true).open(&self.path);
        let written = opened.and_then(|mut file| file.write_all(&self.buffer));
        written.map_err(BuildError::io("write", &self.path))?;
        self.len += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Whether each run has at least its length. After a crash of the machine a run may be shorter, or missing.
pub(crate) fn are_whole(
    dir: &Path,
    plan: &Plan,
    lens: &[u64],
    is_needed: impl Fn(u32) -> bool,
) -> bool {
    let mut runs = (0..plan.runs()).zip(lens);
    runs.all(|(run, len)| {
        let found = || std::fs::metadata(run_path(dir, run)).map_or(0, |found| found.len());
        *len == 0 || !is_needed(plan.bucket_of_run(run)) || found() >= *len
    })
}

/// The path of a bucket's run.
pub(crate) fn run_path(dir: &Path, bucket: u32) -> PathBuf {
    dir.join(format!("{bucket:05}.run"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::BuildOptions;
    use crate::target::Target;

    #[test]
    fn after_a_failed_write_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let options = BuildOptions::default();
        let plan = options.plan_of(Target::offline([7; 32]), 1);
        let nothing = (0, Sums::default(), Vec::new());
        let mut scatter = Scatter::open(dir.path(), &plan, nothing, 64 << 20).unwrap();
        let push = |scatter: &mut Scatter| {
            let row = ("key".into(), "value".into());
            scatter.push(row, None)
        };
        push(&mut scatter).unwrap();
        scatter.runs.all[0].as_mut().unwrap().path = "/dev/full".into();
        let full = scatter.write_all().unwrap_err();
        assert!(matches!(full, BuildError::Io { .. }), "{full}");
        for again in [push(&mut scatter), scatter.write_all().map(drop)] {
            assert!(matches!(again, Err(BuildError::Stopped)), "{again:?}");
        }
        let last = scatter.write_out();
        assert!(matches!(last, Err(BuildError::Stopped)), "{last:?}");
    }
}
