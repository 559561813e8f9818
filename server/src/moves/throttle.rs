//! A limit on bytes per second that all transfers share.

#![expect(clippy::cast_precision_loss, reason = "a rate")]

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Schedules transfers one after another: each caller waits until the bytes before its own have had
/// their time.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_s: u64,
    free_at: Mutex<Instant>,
}

impl Throttle {
    pub(crate) fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(1),
            free_at: Mutex::new(now),
        }
    }

    /// Waits until `bytes` may be sent.
    pub(crate) async fn take(&self, bytes: u64) {
        let begin = self.book(bytes, Instant::now());
        tokio::time::sleep_until(begin.into()).await;
    }

    /// Reserves the time that `bytes` need; returns when it begins.
    fn book(&self, bytes: u64, now: Instant) -> Instant {
        let needs = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        let mut free_at = self.free_at.lock();
        let begin = now.max(*free_at);
        *free_at = begin + needs;
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takers_queue_for_the_time_their_bytes_need() {
        let now = Instant::now();
        let throttle = Throttle::new(1_000, now);
        assert_eq!(throttle.book(500, now), now);
        assert_eq!(throttle.book(500, now), now + Duration::from_millis(500));
        let later = now + Duration::from_secs(60);
        assert_eq!(
            throttle.book(1, later),
            later,
            "unused time is not saved up"
        );
    }
}
