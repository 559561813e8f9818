//! State that a store's threads and its callers share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use torc_record::HybridTime;
use torc_ring::Partition;

use crate::commit::{Changes, Op, Queue};
use crate::counters::Counters;
use crate::directory::Directory;
use crate::health::Health;
use crate::ingest::Ingests;
use crate::log::SegmentInfo;
use crate::manifest::Manifest;
use crate::packed::Packed;
use crate::partition_table::PartitionTable;
use crate::requests::Requests;
use crate::room::Room;
use crate::stored::Stored;
use crate::{CompactionReport, FlushReport, Seq, StoreError, StoreOptions};

/// Interval between reports that keys share a digest.
const REPORT_SHARED: Duration = Duration::from_secs(60);

pub(crate) struct Shared {
    pub(crate) options: StoreOptions,
    pub(crate) dir: Arc<Directory>,
    pub(crate) table: PartitionTable,
    pub(crate) queue: Queue,
    pub(crate) room: Room,
    pub(crate) flushes: Requests<FlushReport>,
    pub(crate) compactions: Requests<CompactionReport>,
    pub(crate) ingests: Ingests,
    pub(crate) health: Health,
    pub(crate) counters: Counters,
    pub(crate) last_seq: AtomicU64,
    pub(crate) highest_time: AtomicU64,
    pub(crate) node_ceiling: AtomicU64,
    pub(crate) stored: Stored,
    pub(crate) log: Mutex<LogState>,
    pub(crate) manifest: Mutex<Manifest>,
    /// Number of the next segment of slices.
    pub(crate) next_segment: AtomicU64,
    /// Partitions whose slices must not be compacted now, with the number of holders of each.
    pub(crate) held: Mutex<BTreeMap<Partition, u32>>,
    /// Held while a metadata value is replaced.
    pub(crate) meta: Mutex<()>,
}

/// Prints the directory, never user data.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Shared");
        out.field("dir", &self.options.dir).finish_non_exhaustive()
    }
}

/// The segments of the log.
#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) completed: Vec<SegmentInfo>,
    pub(crate) current: SegmentInfo,
    /// The segment with which the last flush, or attempt, began.
    pub(crate) flushed_before: u64,
}

impl LogState {
    pub(crate) fn bytes(&self) -> u64 {
        self.gathered_since(0)
    }

    fn gathered_since(&self, first: u64) -> u64 {
        let completed = self
            .completed
            .iter()
            .filter(|segment| segment.number >= first);
        completed.map(|segment| segment.bytes).sum::<u64>() + self.current.bytes
    }
}

impl Shared {
    /// Makes a durable record visible.
    pub(crate) fn apply(&self, seq: Seq, packed: &Packed) {
        self.note_time(packed.ballot().time);
        self.table.apply(seq, packed);
    }

    /// Records the time of a stored record.
    pub(crate) fn note_time(&self, time: HybridTime) {
        // Usually not the highest, and a load is cheaper than an update.
        if time.0 > self.highest_time.load(Ordering::Relaxed) {
            self.highest_time.fetch_max(time.0, Ordering::Relaxed);
        }
    }

    pub(crate) fn highest_time(&self) -> HybridTime {
        HybridTime(self.highest_time.load(Ordering::Relaxed))
    }

    pub(crate) fn node_ceiling(&self) -> HybridTime {
        HybridTime(self.node_ceiling.load(Ordering::Acquire))
    }

    /// Raises the durable ceiling.
    pub(crate) fn raise_ceiling(&self, time: HybridTime) {
        self.node_ceiling.fetch_max(time.0, Ordering::AcqRel);
    }

    /// Must be called after everything up to `seq` was applied.
    pub(crate) fn set_last_seq(&self, seq: Seq) {
        self.last_seq.store(seq.0, Ordering::Release);
    }

    pub(crate) fn last_seq(&self) -> Seq {
        Seq(self.last_seq.load(Ordering::Acquire))
    }

    /// Whether new records would find room without waiting; requests a flush if not.
    pub(crate) fn has_room(&self) -> bool {
        let pending = self.room.pending_bytes();
        let has_room = self.table.memtable_bytes() + pending < self.options.memtable_limit_bytes
            && !self.health.is_out_of_space();
        if !has_room {
            self.flushes.want_unless_working();
        }
        has_room
    }

    /// Reserves memory for changes, as [`Room::admit_now`]; requests a flush if some find none.
    pub(crate) fn admit_now(&self, parts: &mut [Changes]) {
        let memtable_bytes = || self.table.memtable_bytes();
        let limit_bytes = self.options.memtable_limit_bytes;
        if self.room.admit_now(parts, memtable_bytes, limit_bytes) {
            self.counters.memtable_refusals.add(1);
            self.flushes.want_unless_working();
        }
    }

    /// Releases the memory of an operation that was not carried out.
    pub(crate) fn release(&self, op: &Op) {
        self.room.release(op.reserved_bytes());
    }

    /// Refuses all waiting callers, for good.
    pub(crate) fn refuse_all(&self, why: &StoreError) {
        for op in self.queue.end(why) {
            self.release(&op);
            op.refuse(why.clone());
        }
        self.flushes.end();
        self.compactions.end();
        self.ingests.stop();
    }

    /// Reports, once per minute, that records of a partition share a digest with other keys.
    pub(crate) fn note_shared_digests(&self, partition: Partition, records: usize) {
        if records == 0 {
            return;
        }
        let mut last = self.counters.shared_digests.lock();
        if last.is_none_or(|last| last.elapsed() >= REPORT_SHARED) {
            *last = Some(Instant::now());
            tracing::error!(
                partition = partition.0,
                records,
                "two keys have the same digest: a record was stored under the digest of another key"
            );
        }
    }

    /// Called by the flush thread after a flush. The committer had allocated most of the freed
    /// memory.
    pub(crate) fn release_memory(&self) {
        (self.options.release_memory)();
        // Fails if the queue has ended, and the committer with it.
        drop(self.queue.push(Op::ReleaseMemory));
    }

    pub(crate) fn note_log(&self, completed: Option<SegmentInfo>, current: SegmentInfo) {
        let mut log = self.log.lock();
        log.completed.extend(completed);
        log.current = current;
    }

    /// A flush is due when enough log has gathered, or when the memtable is half full: writes
    /// during the flush use the other half.
    pub(crate) fn request_flush_if_due(&self) {
        let log = self.log.lock();
        let gathered = log.gathered_since(log.flushed_before);
        drop(log);
        let half = self.options.memtable_limit_bytes / 2;
        if gathered >= self.options.flush_log_bytes || self.table.memtable_bytes() >= half {
            self.flushes.want_unless_working();
        }
    }

    /// Stops the background threads except the committer.
    pub(crate) fn stop_upkeep(&self) {
        self.flushes.stop();
        self.compactions.stop();
        self.ingests.stop();
    }

    pub(crate) fn next_segment(&self) -> u64 {
        self.next_segment.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_held(&self, partition: Partition) -> bool {
        self.held.lock().contains_key(&partition)
    }

    pub(crate) fn hold(&self, partition: Partition) {
        *self.held.lock().entry(partition).or_default() += 1;
    }

    pub(crate) fn release_hold(&self, partition: Partition) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&partition) {
            *count -= 1;
            if *count == 0 {
                held.remove(&partition);
            }
        }
    }
}
