//! Reserves memory for records on their way into the memtable; without room, callers wait for a
//! flush.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::StoreError;
use crate::commit::{Changes, Op};
use crate::packed::Packed;
use crate::partition_table;
use crate::shared::Shared;

/// The reserved memory, and the callers that wait.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Memory that the memtable may still need for the operations in the queue.
    pending_bytes: AtomicU64,
    freed: Notify,
    failed_flushes: AtomicU64,
}

/// Reserved memory; released on drop, unless it was handed over to the committer.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    room: &'a Room,
    cost: u64,
}

impl Room {
    /// A flush has ended.
    pub(crate) fn note_flush(&self, was_done: bool) {
        if !was_done {
            self.failed_flushes.fetch_add(1, Ordering::Relaxed);
        }
        self.freed.notify_waiters();
    }

    /// Releases the memory of an operation that was carried out or refused.
    pub(crate) fn release(&self, bytes: u64) {
        self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Shared {
    /// Reserves memory for records that are about to be queued, all or none; waits for a flush if
    /// there is no room.
    ///
    /// # Errors
    /// [`StoreError::MemtableFull`] if the flush fails; the store's own error once it has stopped.
    pub(crate) async fn admit(&self, records: &[Packed]) -> Result<Reserved<'_>, StoreError> {
        let cost: u64 = records.iter().map(partition_table::cost).sum();
        if let Some(reserved) = self.try_admit(records, cost) {
            return Ok(reserved);
        }
        self.counters.flush_waits.add(1);
        let failed = self.room.failed_flushes.load(Ordering::Relaxed);
        loop {
            let mut freed = std::pin::pin!(self.room.freed.notified());
            freed.as_mut().enable();
            if let Some(reserved) = self.try_admit(records, cost) {
                return Ok(reserved);
            }
            self.health.check()?;
            if self.flushes.is_stopping() {
                return Err(StoreError::Closed);
            }
            if self.room.failed_flushes.load(Ordering::Relaxed) != failed {
                self.counters.memtable_refusals.add(1);
                let limit_bytes = self.options.memtable_limit_bytes;
                return Err(StoreError::MemtableFull { limit_bytes });
            }
            self.flushes.want_unless_working();
            freed.await;
        }
    }

    /// Whether new records would find room without waiting; requests a flush if not.
    pub(crate) fn has_room(&self) -> bool {
        let pending = self.room.pending_bytes.load(Ordering::Relaxed);
        let has_room = self.table.memtable_bytes() + pending < self.options.memtable_limit_bytes
            && !self.health.is_out_of_space();
        if !has_room {
            self.flushes.want_unless_working();
        }
        has_room
    }

    /// Reserves memory without waiting, beyond the limit if necessary, so callers that checked for
    /// room always find it. Refuses changes that find none.
    pub(crate) fn admit_now(&self, parts: &mut [Changes]) {
        let wanted = parts.iter().map(Changes::cost).sum();
        let pending = self.room.pending_bytes.fetch_add(wanted, Ordering::Relaxed);
        let mut used = self.table.memtable_bytes() + pending;
        let limit_bytes = self.options.memtable_limit_bytes;
        let beyond = limit_bytes.saturating_add(limit_bytes / 8);
        let mut admit = |cost| {
            if cost > 0 && used > 0 && used + cost > beyond {
                return Err(StoreError::NoRoom { limit_bytes });
            }
            used += cost;
            Ok(())
        };
        for part in parts.iter_mut() {
            part.reserve(&mut admit);
        }
        let reserved: u64 = parts.iter().map(|part| part.reserved_bytes).sum();
        if reserved < wanted {
            self.room.release(wanted - reserved);
            self.counters.memtable_refusals.add(1);
            self.flushes.want_unless_working();
        }
    }

    fn try_admit(&self, records: &[Packed], cost: u64) -> Option<Reserved<'_>> {
        let pending = self.room.pending_bytes.fetch_add(cost, Ordering::Relaxed);
        let reserved = Reserved {
            room: &self.room,
            cost,
        };
        let used = self.table.memtable_bytes() + pending;
        let limit_bytes = self.options.memtable_limit_bytes;
        // An operation larger than all the room may use it alone.
        let fits = used == 0 || used + cost <= limit_bytes;
        let for_deletes = limit_bytes.saturating_add(limit_bytes / 8);
        let is_delete = records.iter().all(Packed::is_tombstone);
        (fits || (is_delete && used + cost <= for_deletes)).then_some(reserved)
    }

    /// Releases the memory of an operation that was not carried out.
    pub(crate) fn release(&self, op: &Op) {
        self.room.release(op.reserved_bytes());
    }
}

impl Reserved<'_> {
    /// The records are queued: the committer releases the memory.
    pub(crate) fn hand_over(mut self) {
        self.cost = 0;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.room.release(self.cost);
    }
}
