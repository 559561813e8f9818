//! A limit on bytes per second that all transfers share.

#![expect(clippy::cast_precision_loss, reason = "a rate")]

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// Unused time that is saved up, because timers are coarse.
const SAVED: Duration = Duration::from_millis(50);

/// Schedules transfers one after another: each caller waits until the bytes before its own, and its own, have
/// had their time. So no caller owes time, and a throttle may be dropped and made again. A caller that gives
/// up takes no time.
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
        let mut free_at = self.free_at.lock().await;
        let until = self.until(*free_at, Instant::now(), bytes);
        tokio::time::sleep_until(until.into()).await;
        *free_at = until;
    }

    /// The end of the time of `bytes`, if the bytes before them have theirs until `free_at`.
    fn until(&self, free_at: Instant, now: Instant, bytes: u64) -> Instant {
        let needs = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        let saved = now.checked_sub(SAVED);
        saved.map_or(free_at, |saved| saved.max(free_at)) + needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::pin::pin;

    #[tokio::test]
    async fn takers_wait_in_turn_and_one_that_gives_up_takes_no_time() {
        let begun = Instant::now();
        let throttle = Throttle::new(1_000, begun);
        for _ in 0..100 {
            let mut waiting = pin!(throttle.take(3_600_000));
            assert!(
                waiting.as_mut().now_or_never().is_none(),
                "also the first one waits for an hour"
            );
        }
        let free_at = *throttle.free_at.lock().await;
        assert_eq!(free_at, begun, "those that gave up take no time");
        throttle.take(20).await;
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn bytes_never_exceed_the_rate() {
        let begun = Instant::now();
        let throttle = Throttle::new(1_000, begun);
        let s = Duration::from_secs;
        let mut free_at = begun;
        for taken in 1..=10 {
            // Each caller comes when the one before it is done.
            free_at = throttle.until(free_at, free_at, 8_000);
            assert_eq!(free_at, begun + s(8 * taken), "{taken} times 8,000 bytes");
        }
        let late = throttle.until(begun, begun + s(3_600), 1_000);
        assert_eq!(late + SAVED, begun + s(3_601), "little time is saved up");
    }

    /// A request to write a part of a backup has a throttle of its own.
    #[test]
    fn a_new_throttle_forgives_nothing() {
        let begun = Instant::now();
        let mut now = begun;
        for _ in 0..16 {
            let throttle = Throttle::new(1_000, now);
            now = throttle.until(now, now, 500);
        }
        assert_eq!(now, begun + Duration::from_secs(8));
    }
}
