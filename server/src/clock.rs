//! The node's clocks: the only place that reads the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use torc_record::{HybridClock, HybridTime};

/// Unix milliseconds, 0 before 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// The hybrid clock that issues ballots, shared by all requests.
#[derive(Debug)]
pub(crate) struct Clock(Mutex<HybridClock>);

impl Clock {
    /// Continues after the highest time in the store.
    pub(crate) fn resume(last: HybridTime) -> Self {
        Self(Mutex::new(HybridClock::resume(last)))
    }

    /// A time later than every one before, and later than `seen`.
    pub(crate) fn tick_after(&self, seen: HybridTime) -> HybridTime {
        let mut clock = self.0.lock();
        let unix_ms = unix_ms();
        // What our own store holds is followed however far ahead it is: order comes first.
        let tick = clock.tick(unix_ms);
        if tick > seen {
            return tick;
        }
        *clock = HybridClock::resume(seen);
        clock.tick(unix_ms)
    }

    /// Follows a peer's time unless it is too far ahead.
    pub(crate) fn observe(&self, seen: HybridTime) {
        if let Err(error) = self.0.lock().observe(seen, unix_ms()) {
            tracing::warn!(%error, "a peer's time was not followed");
        }
    }

    pub(crate) fn last(&self) -> HybridTime {
        self.0.lock().last()
    }
}
