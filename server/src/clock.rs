//! The node's clocks: the only place that reads the wall clock.
//!
//! For tests of real clusters a process that was started with `TORC_TEST_CLOCK_SHIFT=FILE`
//! reads the file every 100 ms: a whole number, the milliseconds by which its wall clock is
//! ahead, negative if it is behind. A file that is missing or malformed changes nothing to
//! what was read last, so write it beside and rename it. The shift is the process's, as a
//! wall clock is; timers, which nobody sets, do not follow it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use torc_record::{HybridClock, HybridTime};

const READ_EVERY: Duration = Duration::from_millis(100);

/// Milliseconds by which a test has set this process's clock ahead.
static SHIFT_MS: AtomicI64 = AtomicI64::new(0);

/// Unix milliseconds, 0 before 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
        .saturating_add_signed(SHIFT_MS.load(Ordering::Relaxed))
}

/// Reads the file now, so that a node begins with the clock it is to have, and then again
/// and again.
pub(crate) fn watch_shift(file: PathBuf) -> impl Future<Output = ()> {
    tracing::warn!(file = %file.display(), "the wall clock is as wrong as this file says");
    read_shift(&file);
    async move {
        let mut every = tokio::time::interval(READ_EVERY);
        loop {
            every.tick().await;
            read_shift(&file);
        }
    }
}

fn read_shift(file: &Path) {
    let shift_ms = std::fs::read_to_string(file).ok();
    let Some(shift_ms) = shift_ms.and_then(|text| text.trim().parse().ok()) else {
        return;
    };
    if SHIFT_MS.swap(shift_ms, Ordering::Relaxed) != shift_ms {
        tracing::warn!(shift_ms, "the wall clock was set");
    }
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
