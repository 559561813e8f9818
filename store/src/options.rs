//! What a store is opened with.

use std::path::PathBuf;
use std::time::Duration;

use torc_ring::Partitions;

use crate::StoreError;

const MIB: u64 = 1 << 20;

/// Settings of a [`Store`](crate::Store). Start from [`StoreOptions::new`] and change
/// the fields that matter.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The data directory; created when it is missing. One process at a time.
    pub dir: PathBuf,
    /// Number of partitions of the cluster: recorded on creation, checked ever after.
    pub partitions: Partitions,
    /// Most bytes of memory the memtable takes, overhead included; from half of it on it is
    /// flushed. Beyond it writes wait for that; deletes have an eighth more. A store that
    /// holds more can be opened.
    pub memtable_limit_bytes: u64,
    /// Size of one preallocated segment of the commit log, 1 KiB to 1 GiB.
    pub log_segment_bytes: u64,
    /// A flush starts by itself when this much log has gathered since the last one began.
    pub flush_log_bytes: u64,
    /// And when this much time has passed since the last one ended, unless the memtable holds
    /// less than 4 MiB.
    pub flush_after: Duration,
    /// Bytes per second that a flush writes at most.
    pub flush_bytes_per_s: u64,
    /// Bytes per second that a compaction writes at most.
    pub compact_bytes_per_s: u64,
    /// Most slices of a partition that compaction leaves, 2 to 64.
    pub most_slices: usize,
    /// Bytes that one compaction reads, about: what its result needs on the disk before it gives
    /// the room of its inputs back.
    pub compact_job_bytes: u64,
    /// After so long without writes, partitions are compacted into one slice each.
    pub compact_when_idle: Duration,
    /// Whether to compact without being asked.
    pub auto_compact: bool,
    /// Share of strangers that the gate of a partition's largest slice lets through, 0.0001
    /// to 0.5.
    pub gate_rate: f64,
    /// Most bytes of writes that wait for the committer; more of them wait in
    /// [`Store::write`](crate::Store::write) for room. At least 1 MiB.
    pub queue_limit_bytes: u64,
    /// Whether a log whose last batch was whole once and is damaged is cut before it. The writes of
    /// that batch may have been acknowledged, and are lost then. If not, the store does not open.
    pub cut_damaged_log: bool,
    /// Asks the allocator to give unused memory back to the system; does nothing unless it is
    /// set. Called after opening, a flush and a compaction by every thread that took part, because
    /// allocators keep memory per thread. It may take some milliseconds.
    pub release_memory: fn(),
}

impl StoreOptions {
    /// Settings for a node of a few GiB: 4,096 partitions, 512 MiB of memtable, a flush every 128
    /// MiB of log or 5 minutes at up to 512 MiB/s, compactions at up to 128 MiB/s into at most 8
    /// slices a partition and into one after 10 s without writes, gates of 1 %, 32 MiB of
    /// queue.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            partitions: Partitions::DEFAULT,
            memtable_limit_bytes: 512 * MIB,
            log_segment_bytes: 64 * MIB,
            flush_log_bytes: 128 * MIB,
            flush_after: Duration::from_secs(300),
            flush_bytes_per_s: 512 * MIB,
            compact_bytes_per_s: 128 * MIB,
            most_slices: 8,
            compact_job_bytes: 256 * MIB,
            compact_when_idle: Duration::from_secs(10),
            auto_compact: true,
            gate_rate: 0.01,
            queue_limit_bytes: 32 * MIB,
            cut_damaged_log: false,
            release_memory: || {},
        }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let refuse = |setting, allowed| Err(StoreError::BadOption { setting, allowed });
        if !(1024..=1024 * MIB).contains(&self.log_segment_bytes) {
            return refuse("log_segment_bytes", "1 KiB to 1 GiB");
        }
        if !(MIB..=1024 * MIB).contains(&self.queue_limit_bytes) {
            return refuse("queue_limit_bytes", "1 MiB to 1 GiB");
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
