//! The node's wall clock. No other module reads it.
//!
//! For tests of real clusters, a process with `TORC_TEST_CLOCK_SHIFT=FILE` reads the file
//! every 100 ms. It holds the milliseconds by which the wall clock is ahead, negative if it
//! is behind. While the file is missing or malformed, the last value stays, so write
//! another file and rename it. The shift applies to the whole process; timers use the
//! monotonic clock and ignore it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use torc_record::to_millis;

const READ_EVERY: Duration = Duration::from_millis(100);

/// Milliseconds by which a test has set this process's clock ahead.
static SHIFT_MS: AtomicI64 = AtomicI64::new(0);

/// Unix milliseconds, 0 before 1970.
pub fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, to_millis)
        .saturating_add_signed(SHIFT_MS.load(Ordering::Relaxed))
}

/// Unix nanoseconds of a past moment, by the current wall clock.
#[cfg(feature = "otlp")]
pub fn unix_ns_of(moment: std::time::Instant) -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = since.unwrap_or_default().saturating_sub(moment.elapsed());
    let shift_ns = SHIFT_MS.load(Ordering::Relaxed).saturating_mul(1_000_000);
    u64::try_from(at.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_add_signed(shift_ns)
}

/// Reads the file now, so that the node starts with the shifted clock, and again periodically.
pub fn watch_shift(file: PathBuf) -> impl Future<Output = ()> {
    tracing::warn!(file = %file.display(), "the wall clock follows this file");
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
