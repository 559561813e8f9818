//! The options of a build, and the plan that follows from them.

use crate::BuildError;
use crate::plan::{Duplicates, MOST_RUNS, Plan, check_rate};
use crate::shape::Shape;
use crate::target::Target;

/// Buckets if the amount of data is unknown.
const BUCKETS_UNKNOWN: u32 = 64;
/// Bytes of rows that a run is meant to have.
const RUN_BYTES: u64 = 4 << 20;

/// How to build.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildOptions {
    /// A description of the source: a caller that continues a build must pass the same rows in the
    /// same order, and asserts that by passing the same text.
    pub source: String,
    /// Whether to continue an unfinished build; otherwise its rows are discarded.
    pub resume: bool,
    /// What to keep of each row.
    pub shape: Shape,
    /// Which of several rows with the same key to keep.
    pub duplicates: Duplicates,
    /// False positive rate of the Bloom gates, 0.0001 to 0.5.
    pub gate_rate: f64,
    /// Approximate limit of the build's memory, bytes; at least 64 MiB.
    pub memory: u64,
    /// Threads that gather, at least 1.
    pub workers: usize,
    /// Total size of the rows, bytes, if known: affects only the speed. [`row_bytes`](Self::row_bytes) is that
    /// of a row.
    pub expected_bytes: Option<u64>,
    /// Bytes of rows after which the progress is noted: at most this much is read again after a kill.
    pub checkpoint_bytes: u64,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            source: String::new(),
            resume: true,
            shape: Shape::Values,
            duplicates: Duplicates::Error,
            gate_rate: 0.01,
            memory: 1 << 30,
            workers: 2,
            expected_bytes: None,
            checkpoint_bytes: 1 << 30,
        }
    }
}

impl BuildOptions {
    const LEAST_MEMORY: u64 = 64 << 20;

    /// Checks what no build can do.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let checked = self.shape.check().and_then(|()| check_rate(self.gate_rate));
        checked.map_err(|what| BuildError::BadShape { what })
    }

    /// Bytes that a row with a key and a value of these lengths takes on its way through a build, as
    /// [`expected_bytes`](Self::expected_bytes) counts it. It takes about as many bytes of disk: once the slices
    /// of a bucket are written, its rows are removed.
    #[must_use]
    pub const fn row_bytes(&self, key: u64, value: u64) -> u64 {
        let head = self.shape.head_len() as u64;
        match self.shape {
            Shape::Values => head + key + value,
            Shape::Ids => head + key,
            Shape::Keyless { .. } => head,
        }
    }

    pub(crate) fn memory(&self) -> u64 {
        self.memory.max(Self::LEAST_MEMORY)
    }

    pub(crate) fn workers(&self) -> u64 {
        self.workers.max(1) as u64
    }

    /// Bytes of rows that a worker holds and sorts at a time: the output takes about the same again.
    fn file_bytes(&self) -> u64 {
        self.memory() / self.workers() / 2
    }

    pub(crate) fn plan(&self, target: Target) -> Plan {
        let buckets = self.expected_bytes.map_or(BUCKETS_UNKNOWN, |bytes| {
            let least = self.workers().next_power_of_two();
            let buckets = (bytes / self.file_bytes() + 1)
                .next_power_of_two()
                .max(least);
            u32::try_from(buckets).map_or(MOST_RUNS, |buckets| buckets.min(MOST_RUNS))
        });
        // So short that a worker sorts one in its cache, and far below its memory: rows may be longer than expected.
        let run_bytes = RUN_BYTES.min(self.file_bytes() / 16);
        let runs = self.expected_bytes.map_or(BUCKETS_UNKNOWN, |bytes| {
            u32::try_from(bytes / run_bytes + 1).unwrap_or(MOST_RUNS)
        });
        self.plan_of(target, buckets).with_runs(runs)
    }

    pub(crate) fn plan_of(&self, target: Target, buckets: u32) -> Plan {
        Plan::new(
            target,
            self.source.clone(),
            self.shape,
            self.duplicates,
            self.gate_rate,
            (buckets, self.file_bytes()),
        )
    }
}
