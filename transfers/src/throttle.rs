//! A limit on bytes per second that all transfers share.

#![expect(clippy::cast_precision_loss, reason = "a rate")]

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// Unused time that is saved up, because timers are coarse.
const SAVED: Duration = Duration::from_millis(50);

/// Schedules transfers one after another: each caller waits until the bytes before its own have had
/// their time. A caller that gives up takes no time.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_s: u64,
    free_at: Mutex<Instant>,
}

impl Throttle {
    /// Callers share this many bytes per second, from `now` on.
    #[must_use]
    pub fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(1),
            free_at: Mutex::new(now),
        }
    }

    /// Waits until `bytes` may be sent. Callers are served in turn.
    pub async fn take(&self, bytes: u64) {
        let needs = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        let mut free_at = self.free_at.lock().await;
        tokio::time::sleep_until((*free_at).into()).await;
        let saved = Instant::now().checked_sub(SAVED);
        *free_at = saved.map_or(*free_at, |saved| saved.max(*free_at)) + needs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::pin::pin;

    #[tokio::test]
    async fn takers_wait_in_turn_and_one_that_gives_up_takes_no_time() {
        let throttle = Throttle::new(1_000, Instant::now());
        throttle.take(3_600_000).await;
        for _ in 0..100 {
            let mut waiting = pin!(throttle.take(3_600_000));
            assert!(
                waiting.as_mut().now_or_never().is_none(),
                "an hour is taken"
            );
        }
        let free_at = *throttle.free_at.lock().await;
        let hour = Duration::from_secs(3_600);
        assert!(free_at <= Instant::now() + hour, "those that gave up count");
    }

    #[tokio::test]
    async fn little_unused_time_is_saved_up() {
        let hour_ago = Instant::now().checked_sub(Duration::from_secs(3_600));
        let throttle = Throttle::new(1_000, hour_ago.unwrap_or_else(Instant::now));
        throttle.take(1_000).await;
        let free_at = *throttle.free_at.lock().await;
        let waits = free_at.saturating_duration_since(Instant::now());
        assert!(waits > Duration::from_millis(500), "{waits:?}");
    }
}
