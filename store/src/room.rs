//! Reserves memory for records on their way into the memtable.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::StoreError;
use crate::commit::Changes;

/// The reserved memory.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Memory that the memtable may still need for the operations in the queue.
    pending_bytes: AtomicU64,
}

impl Room {
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// Reserves memory without waiting, beyond the limit if necessary, so callers that checked for
    /// room always find it. Refuses changes that find none; returns whether it refused any.
    pub(crate) fn admit_now(
        &self,
        parts: &mut [Changes],
        memtable_bytes: impl FnOnce() -> u64,
        limit_bytes: u64,
    ) -> bool {
        let wanted = parts.iter().map(Changes::cost).sum();
        let pending = self.pending_bytes.fetch_add(wanted, Ordering::Relaxed);
        let mut used = memtable_bytes() + pending;
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
            self.release(wanted - reserved);
        }
        reserved < wanted
    }

    /// Releases the memory of an operation that was carried out or refused.
    pub(crate) fn release(&self, bytes: u64) {
        self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
