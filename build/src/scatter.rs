//! The first pass: rows to buckets on disk.
//!
//! A bucket's *run* is a file of records in their stored form, one after the other, in the order of
//! the rows.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::plan::{Plan, sync_dir};
use crate::sums::Sums;
use crate::{BuildError, RUNS_DIR};

/// Least and most bytes that a bucket gathers in memory.
const BUFFER_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=4 << 20;

#[derive(Debug)]
struct Run {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    len: u64,
}

/// The runs of a build, as far as they have come.
#[derive(Debug)]
pub(crate) struct Scatter {
    runs: Vec<Run>,
    most_buffered: usize,
    /// The row that is being taken.
    packed: Vec<u8>,
    pub(crate) rows: u64,
    pub(crate) sums: Sums,
}

impl Scatter {
    /// Opens the runs, cut to what is known to be durable: their lengths, if any step was.
    pub(crate) fn open(
        dir: &Path,
        plan: &Plan,
        (rows, sums, lens): (u64, Sums, Vec<u64>),
        memory: u64,
    ) -> Result<Self, BuildError> {
        let runs_dir = dir.join(RUNS_DIR);
        std::fs::create_dir_all(&runs_dir).map_err(BuildError::io("create", &runs_dir))?;
        let open = |bucket: u32| {
            let path = run_path(dir, bucket);
            let len = lens.get(bucket as usize).copied().unwrap_or(0);
            let opened = OpenOptions::new().create(true).append(true).open(&path);
            let file = opened.and_then(|file| {
                let found = file.metadata()?.len();
                if found < len {
                    let what = format!("it has {found} bytes, where {len} were written");
                    return Err(std::io::Error::other(what));
                }
                file.set_len(len)?;
                Ok(file)
            });
            Ok(Run {
                file: file.map_err(BuildError::io("open", &path))?,
                path,
                buffer: Vec::new(),
                len,
            })
        };
        let runs: Result<Vec<_>, BuildError> = (0..plan.buckets).map(open).collect();
        let share = memory / 2 / u64::from(plan.buckets);
        Ok(Self {
            runs: runs?,
            most_buffered: (share as usize).clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end()),
            packed: Vec::new(),
            rows,
            sums,
        })
    }

    /// Takes a row.
    pub(crate) fn push(&mut self, plan: &Plan, key: Bytes, value: Bytes) -> Result<(), BuildError> {
        let row = self.rows + 1;
        let bad = |what: String| BuildError::BadRow { row, what };
        self.packed.clear();
        let packed = plan.shape.pack(&plan.target, key, value, &mut self.packed);
        packed.map_err(bad)?;
        let packed = plan.shape.row(&self.packed);
        let packed = packed.map_err(|what| bad(what.to_owned()))?;
        // There are as many runs as buckets.
        let Some(run) = self.runs.get_mut(plan.bucket(&packed.digest())) else {
            return Err(bad("no bucket takes it".to_owned()));
        };
        self.sums.merge(&packed.sums());
        self.rows = row;
        run.buffer.extend_from_slice(&self.packed);
        if run.buffer.len() >= self.most_buffered {
            run.write_out()?;
        }
        Ok(())
    }

    /// Makes all rows so far durable. Returns the lengths of the runs.
    pub(crate) fn sync(&mut self, dir: &Path) -> Result<Vec<u64>, BuildError> {
        for run in &mut self.runs {
            run.write_out()?;
            let synced = run.file.sync_data();
            synced.map_err(BuildError::io("sync", &run.path))?;
        }
        let runs_dir = dir.join(RUNS_DIR);
        sync_dir(&runs_dir).map_err(BuildError::io("sync", &runs_dir))?;
        Ok(self.runs.iter().map(|run| run.len).collect())
    }
}

impl Run {
    fn write_out(&mut self) -> Result<(), BuildError> {
        let written = self.file.write_all(&self.buffer);
        written.map_err(BuildError::io("write", &self.path))?;
        self.len += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Where the run of a bucket is.
pub(crate) fn run_path(dir: &Path, bucket: u32) -> PathBuf {
    dir.join(RUNS_DIR).join(format!("{bucket:05}.run"))
}
