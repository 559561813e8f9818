//! Reports and statistics of a store.

use torc_record::HybridTime;

use crate::Seq;

/// Whether the store accepts writes and reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreHealth {
    /// It accepts both.
    Ok,
    /// Reads only, until there is disk space.
    OutOfSpace,
    /// It accepts neither until it is reopened, for this reason: it has failed, see
    /// [`StoreError::Failed`](crate::StoreError::Failed), or was closed.
    Failed(String),
}

/// The result of opening a store.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Recovery {
    /// Whether the directory was empty and a new store was created in it.
    pub created: bool,
    /// Current records, tombstones included.
    pub records: u64,
    /// Records in slices, which opening does not read.
    pub sealed_records: u64,
    /// Log entries applied on top.
    pub log_entries_replayed: u64,
    /// Their bytes in the log.
    pub log_bytes_replayed: u64,
    /// How the log ended. After a cut, compare with other replicas before this one votes.
    pub log_tail: LogTail,
    /// Number of the newest log entry.
    pub last_seq: Seq,
    /// The highest hybrid time of any record ever stored here: the node's clock
    /// continues from it.
    pub highest_time: HybridTime,
    /// Duration, seconds.
    pub seconds: f64,
}

/// How the log ended when the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogTail {
    /// It ended with a complete batch.
    #[default]
    Whole,
    /// An incomplete batch was cut. It was never acknowledged, unless the disk lost synced
    /// data.
    Torn {
        /// Bytes up to the last one that is not zero.
        bytes: u64,
    },
    /// A batch that was complete once and is damaged was cut. It may have been
    /// acknowledged.
    Damaged {
        /// Bytes up to the last one that is not zero.
        bytes: u64,
    },
}

impl LogTail {
    /// Whether a batch was cut.
    #[must_use]
    pub const fn was_cut(self) -> bool {
        !matches!(self, Self::Whole)
    }
}

/// Summary of one partition. Two nodes hold the same records of a partition exactly if
/// their summaries are equal (up to a chance of about 2^-128).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionSummary {
    /// Records, tombstones included.
    pub records: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Bytes of keys and values.
    pub payload_bytes: u64,
    /// Sum of the records' [`entry_sum`](torc_record::entry_sum), over keys and versions.
    pub fingerprint: u128,
}

/// What a flush wrote.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FlushReport {
    /// Records written, tombstones included.
    pub records: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Slices written: one for each partition with records, more if keys share a digest.
    pub slices: u64,
    /// Length of the segment; 0 if there was nothing to flush.
    pub bytes: u64,
    /// The slices include every entry up to this one, unless a later one undid it.
    pub through: Seq,
    /// Segments of the log that are no longer needed and were deleted.
    pub log_segments_removed: u64,
    /// Duration, seconds.
    pub seconds: f64,
}

/// What a compaction read and wrote.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct CompactionReport {
    /// Slices that it rewrote or copied.
    pub slices_read: u64,
    /// Slices that were searched for collected records without finding any.
    pub slices_swept: u64,
    /// Slices that it wrote.
    pub slices_written: u64,
    /// Records written, tombstones included.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Duration, seconds.
    pub seconds: f64,
}

/// Statistics of the slices of a store and of reads.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct SliceStats {
    /// Live slices.
    pub slices: u64,
    /// The maximum per partition.
    pub most_slices: u64,
    /// Segments they are in.
    pub segments: u64,
    /// Bytes of these segments on disk, including slices that are no longer live.
    pub segment_bytes: u64,
    /// Keys, counted once per slice.
    pub keys: u64,
    /// Bytes of the slices.
    pub slice_bytes: u64,
    /// RAM of their headers and places, without the three below.
    pub header_bytes: u64,
    /// RAM of their Bloom gates.
    pub gate_bytes: u64,
    /// RAM of their minimal perfect hash functions.
    pub mphf_bytes: u64,
    /// RAM of their record offsets.
    pub offset_bytes: u64,
    /// Sealed records with the digest of another key. If not 0, some caller has stored records
    /// under wrong digests.
    pub shared_digests: u64,
    /// Slices with known damage.
    pub damaged: u64,
    /// Single and batched gets.
    pub gets: u64,
    /// Gets answered by the memtable.
    pub memtable_hits: u64,
    /// Times that a gate excluded a key.
    pub gate_negatives: u64,
    /// Times that a gate passed an absent key.
    pub gate_false_positives: u64,
    /// Sealed records read by gets.
    pub record_reads: u64,
    /// Gets whose record was not in the page cache, on threads that do not wait for the disk.
    pub cold_reads: u64,
}

/// Durations counted in buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Upper bounds of the buckets, seconds, ascending; one more bucket has no bound.
    pub bounds: &'static [f64],
    /// Durations in each bucket (not cumulative): one more than there are bounds.
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
    /// Estimated memory of the memtable, overhead included.
    pub memtable_bytes: u64,
    /// Limit on that memory.
    pub memtable_limit_bytes: u64,
    /// Bytes written to the log segments that still exist.
    pub log_bytes: u64,
    /// Log segments that still exist.
    pub log_segments: u64,
    /// Syncs of the log.
    pub fsyncs: u64,
    /// Durations of these syncs.
    pub fsync_seconds: Histogram,
    /// Batches written.
    pub batches: u64,
    /// Records in them.
    pub batch_records: u64,
    /// Calls whose changes were refused in part or whole because the memtable was full.
    pub memtable_refusals: u64,
    /// Writes refused because the disk was full.
    pub space_refusals: u64,
    /// Flushes published.
    pub flushes: u64,
    /// Flushes that failed, because of a full disk or a file that could not be written.
    pub flush_failures: u64,
    /// Records they wrote.
    pub flushed_records: u64,
    /// Their total duration, seconds.
    pub flush_seconds: f64,
    /// Compactions published.
    pub compactions: u64,
    /// Compactions that failed.
    pub compaction_failures: u64,
    /// Records they wrote.
    pub compacted_records: u64,
    /// Their total duration, seconds.
    pub compaction_seconds: f64,
    /// The slices and the reads from them.
    pub sliced: SliceStats,
    /// Free space of the file system, if known.
    pub free_bytes: Option<u64>,
}
