//! What a store reports of itself.

use torc_record::HybridTime;

use crate::Seq;

/// Whether the store takes writes and answers reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreHealth {
    /// Both.
    Ok,
    /// Reads only, until space returns.
    OutOfSpace,
    /// Neither, for good: the reason. It has failed, see
    /// [`StoreError::Failed`](crate::StoreError::Failed), or was closed.
    Failed(String),
}

/// What opening a store found and did.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Recovery {
    /// Whether the directory was empty and a new store was made in it.
    pub created: bool,
    /// Records in memory now, tombstones included.
    pub records: u64,
    /// Records read from the checkpoint.
    pub checkpoint_records: u64,
    /// Entries of the log applied on top.
    pub log_entries_replayed: u64,
    /// Bytes of the log they took.
    pub log_bytes_replayed: u64,
    /// Bytes cut from the end of the log: a batch whose writing was interrupted before
    /// it was acknowledged.
    pub torn_bytes_cut: u64,
    /// Number of the newest entry.
    pub last_seq: Seq,
    /// The highest hybrid time of any record ever stored here: where the node's clock
    /// resumes.
    pub highest_time: HybridTime,
    /// How long it took.
    pub seconds: f64,
}

/// What one partition holds. Two nodes hold the same records of a partition exactly if
/// their summaries are equal (up to a chance of about 2^-128).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionSummary {
    /// Records, tombstones included.
    pub records: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Bytes of keys and values.
    pub payload_bytes: u64,
    /// Sum, modulo 2^128, of a 128-bit hash of every record: namespace, key, digest,
    /// ballot, value, expiry. Independent of the order of arrival.
    pub fingerprint: u128,
}

/// What [`Store::drop_partition`](crate::Store::drop_partition) removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DropReport {
    /// Records removed, tombstones included.
    pub records: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Bytes of keys and values removed.
    pub payload_bytes: u64,
    /// Number of the drop in the log: everything older is gone.
    pub seq: Seq,
}

/// What a checkpoint wrote.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Records written, tombstones included.
    pub records: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Length of the file.
    pub bytes: u64,
    /// The checkpoint holds the effect of every entry up to this one, unless a later one
    /// undid it.
    pub through: Seq,
    /// Segments of the log that are no longer needed and were deleted.
    pub log_segments_removed: u64,
    /// How long it took.
    pub seconds: f64,
}

/// Durations counted in buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Upper bounds of the buckets, seconds, ascending; one more bucket has no bound.
    pub bounds: &'static [f64],
    /// Durations in each bucket (not cumulated): one more than there are bounds.
    pub counts: Vec<u64>,
    /// Sum of all durations, seconds.
    pub sum: f64,
}

/// Counters and sizes of a store. Counters start at zero when it is opened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Records held, tombstones included.
    pub records: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Bytes of keys and values held.
    pub payload_bytes: u64,
    /// Memory of the overlay, estimated, overhead included.
    pub overlay_bytes: u64,
    /// What it may take.
    pub overlay_limit_bytes: u64,
    /// Bytes written to the log segments that still exist.
    pub log_bytes: u64,
    /// Log segments that still exist.
    pub log_segments: u64,
    /// Length of the checkpoint, bytes; 0 without one.
    pub checkpoint_bytes: u64,
    /// Syncs of the log.
    pub fsyncs: u64,
    /// How long they took.
    pub fsync_seconds: Histogram,
    /// Batches written.
    pub batches: u64,
    /// Records in them.
    pub batch_records: u64,
    /// Writes that had to wait for room in the queue.
    pub write_stalls: u64,
    /// Writes refused because the overlay was full.
    pub overlay_refusals: u64,
    /// Writes refused because the disk was full.
    pub space_refusals: u64,
    /// Checkpoints published.
    pub checkpoints: u64,
    /// Checkpoints given up, for want of space or a file that could not be written.
    pub checkpoint_failures: u64,
    /// How long the published ones took, seconds in all.
    pub checkpoint_seconds: f64,
    /// Free space of the file system, if it tells.
    pub free_bytes: Option<u64>,
}
