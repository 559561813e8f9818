//! Settings of a store.

use std::path::PathBuf;
use std::time::Duration;

use torc_ring::Partitions;

use crate::StoreError;

const MIB: u64 = 1 << 20;

/// Settings of a [`Store`](crate::Store). Start from [`StoreOptions::new`] and change
/// the fields you need.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The data directory; created if missing. One process at a time.
    pub dir: PathBuf,
    /// Number of partitions of the cluster: stored on creation, checked on every later opening.
    pub partitions: Partitions,
    /// Limit of the memtable's memory, overhead included. It is flushed from half of that
    /// on. At the limit, [`Store::room`](crate::Store::room) is false; batches under way may use
    /// an eighth more. A store that already holds more can be opened.
    pub memtable_limit_bytes: u64,
    /// Size of one preallocated segment of the commit log, 1 KiB to 1 GiB.
    pub log_segment_bytes: u64,
    /// A flush starts automatically when this much log has gathered since the last one began, even
    /// if that one failed.
    pub flush_log_bytes: u64,
    /// A flush also starts this long after the last one began, even if that one failed, unless the
    /// memtable holds less than [`flush_least_bytes`](Self::flush_least_bytes).
    pub flush_after: Duration,
    /// A smaller memtable is not flushed by age: its records are in the log and take little memory.
    pub flush_least_bytes: u64,
    /// Maximum write rate of a flush, bytes per second.
    pub flush_bytes_per_s: u64,
    /// Maximum write rate of a compaction, bytes per second.
    pub compact_bytes_per_s: u64,
    /// Maximum number of slices per partition that compaction leaves, 2 to 64.
    pub most_slices: usize,
    /// Bytes that one compaction reads, approximately. Its result needs this much disk space
    /// until its inputs are deleted.
    pub compact_job_bytes: u64,
    /// After this long without writes, each partition is compacted into one slice.
    pub compact_when_idle: Duration,
    /// Whether to compact automatically.
    pub auto_compact: bool,
    /// False positive rate of the Bloom gate of a partition's largest slice, 0.0001 to 0.5.
    pub gate_rate: f64,
    /// Whether to cut a log whose last batch was complete once and is damaged. The writes of that
    /// batch may have been acknowledged, and are then lost. If not set, the store does not open.
    pub cut_damaged_log: bool,
    /// Asks the allocator to return unused memory to the system; by default it does nothing. It is
    /// called after opening, a flush and a compaction by every thread that took part, because
    /// allocators keep memory per thread. It may take a few milliseconds.
    pub release_memory: fn(),
}

impl StoreOptions {
    /// Settings for a node of a few GiB: 4,096 partitions, a memtable of 512 MiB, a flush every
    /// 128 MiB of log, or 5 minutes and 4 MiB, at up to 512 MiB/s, compactions at up to 128 MiB/s into at
    /// most 8 slices per partition and into one after 10 s without writes, gates with 1 % false
    /// positives.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            partitions: Partitions::DEFAULT,
            memtable_limit_bytes: 512 * MIB,
            log_segment_bytes: 64 * MIB,
            flush_log_bytes: 128 * MIB,
            flush_after: Duration::from_secs(300),
            flush_least_bytes: 4 * MIB,
            flush_bytes_per_s: 512 * MIB,
            compact_bytes_per_s: 128 * MIB,
            most_slices: 8,
            compact_job_bytes: 256 * MIB,
            compact_when_idle: Duration::from_secs(10),
            auto_compact: true,
            gate_rate: 0.01,
            cut_damaged_log: false,
            release_memory: || {},
        }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let refuse = |setting, allowed| Err(StoreError::BadOption { setting, allowed });
        if !(1024..=1024 * MIB).contains(&self.log_segment_bytes) {
            return refuse("log_segment_bytes", "1 KiB to 1 GiB");
        }
        if !(2..=64).contains(&self.most_slices) {
            return refuse("most_slices", "2 to 64");
        }
        if !(0.0001..=0.5).contains(&self.gate_rate) {
            return refuse("gate_rate", "0.0001 to 0.5");
        }
        if self.flush_bytes_per_s < MIB || self.compact_bytes_per_s < MIB {
            return refuse(
                "flush_bytes_per_s and compact_bytes_per_s",
                "at least 1 MiB",
            );
        }
        Ok(())
    }
}
