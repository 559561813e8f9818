//! Reserves memory for records on their way into the memtable.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::StoreError;
use crate::commit::{Changes, Op};
use crate::shared::Shared;

/// The reserved memory.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Memory that the memtable may still need for the operations in the queue.
    pending_bytes: AtomicU64,
}

impl Room {
    /// Releases the memory of an operation that was carried out or refused.
    pub(crate) fn release(&self, bytes: u64) {
        self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Shared {
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

    /// Releases the memory of an operation that was not carried out.
    pub(crate) fn release(&self, op: &Op) {
        self.room.release(op.reserved_bytes());
    }
}
