//! The rate that all hostile clients share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Limits requests per second; `None` means no limit.
///
/// Unused requests are lost: there is no burst after a pause.
#[derive(Debug)]
pub(super) struct RateLimit {
    interval: Option<Duration>,
    next: Mutex<Instant>,
}

impl RateLimit {
    pub(super) fn new(requests_per_second: Option<u64>) -> Self {
        let interval = requests_per_second
            .map(|rate| Duration::from_secs(1) / rate.clamp(1, u32::MAX.into()) as u32);
        Self {
            interval,
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits for the turn of one request.
    pub(super) async fn turn(&self) {
        if let Some(turn) = self.take(1, Instant::now()) {
            sleep_until(turn).await;
        }
    }

    /// Accounts for requests that were made already.
    pub(super) fn charge(&self, requests: u64) {
        self.take(requests, Instant::now());
    }

    /// The first of `requests` turns; `None` if there is no limit.
    fn take(&self, requests: u64, now: Instant) -> Option<Instant> {
        let interval = self.interval?;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = (*next).max(now);
        *next = turn + interval * u32::try_from(requests).unwrap_or(u32::MAX);
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_an_interval_apart_and_a_pause_allows_no_burst() {
        let rate = RateLimit::new(Some(10));
        let begun = Instant::now();
        let first = rate.take(1, begun).unwrap();
        rate.take(4, begun);
        let sixth = rate.take(1, begun).unwrap();
        assert_eq!(
            sixth - first,
            Duration::from_millis(500),
            "five turns were taken"
        );
        let later = begun + Duration::from_secs(60);
        assert_eq!(rate.take(1, later), Some(later));
        let next = later + Duration::from_millis(100);
        assert_eq!(rate.take(1, later), Some(next), "a minute was not used");
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let rate = RateLimit::new(None);
        assert_eq!(rate.take(1_000_000, Instant::now()), None);
    }
}
