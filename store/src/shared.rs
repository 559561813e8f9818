//! What the threads of a store and its callers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use torc_record::HybridTime;

use crate::checkpoint::Requests;
use crate::commit::{Offered, Op, Queue};
use crate::counters::Counters;
use crate::directory::Directory;
use crate::health::Health;
use crate::log::SegmentInfo;
use crate::manifest::Manifest;
use crate::overlay::{self, Overlay};
use crate::packed::Packed;
use crate::{Seq, StoreError, StoreOptions};

pub(crate) struct Shared {
    pub(crate) options: StoreOptions,
    pub(crate) dir: Arc<Directory>,
    pub(crate) overlay: Overlay,
    pub(crate) queue: Queue,
    pub(crate) checkpoints: Requests,
    pub(crate) health: Health,
    pub(crate) counters: Counters,
    /// Memory that the overlay may still need for what is in the queue.
    pub(crate) pending_bytes: AtomicU64,
    pub(crate) last_seq: AtomicU64,
    pub(crate) highest_time: AtomicU64,
    pub(crate) log: Mutex<LogState>,
    pub(crate) manifest: Mutex<Manifest>,
    /// Held while a value of the metadata is replaced.
    pub(crate) meta: Mutex<()>,
}

/// The segments that exist.
#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) completed: Vec<SegmentInfo>,
    pub(crate) current: SegmentInfo,
    /// The segment that the last checkpoint, or attempt at one, began with.
    pub(crate) checkpointed_before: u64,
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
    pub(crate) fn apply(&self, seq: Seq, packed: &Packed, fingerprint: u128) {
        let time = packed.ballot().time.0;
        // One thread applies: nothing is lost between the load and the store.
        if time > self.highest_time.load(Ordering::Relaxed) {
            self.highest_time.store(time, Ordering::Relaxed);
        }
        self.overlay.apply(seq, packed, fingerprint);
    }

    pub(crate) fn highest_time(&self) -> HybridTime {
        HybridTime(self.highest_time.load(Ordering::Relaxed))
    }

    /// After everything up to `seq` was applied.
    pub(crate) fn set_last_seq(&self, seq: Seq) {
        self.last_seq.store(seq.0, Ordering::Release);
    }

    pub(crate) fn last_seq(&self) -> Seq {
        Seq(self.last_seq.load(Ordering::Acquire))
    }

    /// Sets memory aside for records that are about to be queued, all or none.
    pub(crate) fn admit(&self, records: &[Offered]) -> Result<Reserved<'_>, StoreError> {
        let limit_bytes = self.options.overlay_limit_bytes;
        let cost: u64 = records.iter().map(|one| overlay::cost(&one.packed)).sum();
        let pending = self.pending_bytes.fetch_add(cost, Ordering::Relaxed) + cost;
        let reserved = Reserved {
            pending_bytes: &self.pending_bytes,
            cost,
        };
        let used = self.overlay.bytes() + pending;
        if used <= limit_bytes || self.fits_nevertheless(records, used) {
            return Ok(reserved);
        }
        self.counters.overlay_refusals.add(1);
        Err(StoreError::OverlayFull { limit_bytes })
    }

    /// Beyond the limit: what makes the overlay no larger is taken, and deletes are, up
    /// to an eighth more.
    fn fits_nevertheless(&self, records: &[Offered], used: u64) -> bool {
        let limit_bytes = self.options.overlay_limit_bytes;
        let for_deletes = limit_bytes.saturating_add(limit_bytes / 8);
        records.iter().all(|offered| {
            let packed = &offered.packed;
            let held = self.overlay.packed(&packed.position());
            let makes_room = held.is_some_and(|held| held.bytes().len() >= packed.bytes().len());
            makes_room || (packed.is_tombstone() && used <= for_deletes)
        })
    }

    /// Gives back what was set aside for an operation that was not done.
    pub(crate) fn release(&self, op: &Op) {
        self.pending_bytes
            .fetch_sub(op.overlay_cost(), Ordering::Relaxed);
    }

    /// Answers all that waits, once and for all.
    pub(crate) fn refuse_all(&self, why: &StoreError) {
        for op in self.queue.end(why) {
            self.release(&op);
            op.refuse(why.clone());
        }
        self.checkpoints.end();
    }

    pub(crate) fn note_log(&self, completed: Option<SegmentInfo>, current: SegmentInfo) {
        let mut log = self.log.lock();
        log.completed.extend(completed);
        log.current = current;
    }

    pub(crate) fn request_checkpoint_if_due(&self) {
        let log = self.log.lock();
        let gathered = log.gathered_since(log.checkpointed_before);
        drop(log);
        let last_one = self.counters.checkpoint_bytes.get();
        if gathered >= self.options.checkpoint_log_bytes.max(last_one) {
            self.checkpoints.want();
        }
    }
}

/// Memory set aside; given back unless it is handed over to the committer.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    pending_bytes: &'a AtomicU64,
    cost: u64,
}

impl Reserved<'_> {
    /// The records are in the queue: the committer gives the memory back.
    pub(crate) fn hand_over(mut self) {
        self.cost = 0;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.pending_bytes.fetch_sub(self.cost, Ordering::Relaxed);
    }
}
