//! A circuit breaker: avoids an address for a while.
//!
//! Pure: the time is an argument. A failure opens the breaker for one second. Every
//! failed probe doubles this time, up to half a minute. Afterwards the breaker is
//! half-open for one caller, which probes in the background; all others still find it
//! open, so no operation waits for an address that swallows connections. Unlike in the
//! textbook, a half-open breaker admits the probe but no operation.
//!
//! Source: Nygard, "Release It!", 2007, "Circuit Breaker".

use std::time::{Duration, Instant};

const FIRST_OPEN_TIME: Duration = Duration::from_secs(1);
const LONGEST_OPEN_TIME: Duration = Duration::from_secs(30);

/// What a caller may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Send there.
    Closed,
    /// Send elsewhere.
    Open,
    /// Send elsewhere, and probe this address in the background.
    HalfOpen,
}

/// Whether to send to one address.
#[derive(Debug, Clone, Default)]
pub(crate) struct CircuitBreaker {
    failures: u32,
    /// None: closed.
    open_until: Option<Instant>,
    probing: bool,
}

impl CircuitBreaker {
    /// The state for this caller. A caller that gets [`BreakerState::HalfOpen`] should
    /// probe; if it never reports, another caller gets the probe after the same time.
    pub(crate) fn state(&mut self, now: Instant) -> BreakerState {
        match self.open_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open,
            Some(_) => {
                self.open_until = Some(now + self.open_time());
                self.probing = true;
                BreakerState::HalfOpen
            }
        }
    }

    /// Records a failure. Many at once count as one.
    pub(crate) fn failed(&mut self, now: Instant) {
        let is_open = self.open_until.is_some_and(|until| now < until);
        if is_open && !self.probing {
            return;
        }
        self.probing = false;
        self.failures = self.failures.saturating_add(1);
        self.open_until = Some(now + self.open_time());
    }

    /// Whether it is open or half-open.
    pub(crate) const fn is_tripped(&self) -> bool {
        self.open_until.is_some()
    }

    /// Closes it: the address works.
    pub(crate) fn close(&mut self) {
        *self = Self::default();
    }

    fn open_time(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1);
        FIRST_OPEN_TIME
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(LONGEST_OPEN_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn a_failure_opens_it_and_later_one_caller_probes() {
        let start = Instant::now();
        let mut breaker = CircuitBreaker::default();
        assert_eq!(breaker.state(start), BreakerState::Closed);
        breaker.failed(start);
        assert_eq!(breaker.state(after(start, 999)), BreakerState::Open);
        assert_eq!(breaker.state(after(start, 1_000)), BreakerState::HalfOpen);
        assert_eq!(
            breaker.state(after(start, 1_001)),
            BreakerState::Open,
            "one prober is enough"
        );
        breaker.close();
        assert_eq!(breaker.state(after(start, 1_002)), BreakerState::Closed);
    }

    #[test]
    fn failed_probes_double_the_open_time_up_to_half_a_minute() {
        let mut now = Instant::now();
        let mut breaker = CircuitBreaker::default();
        breaker.failed(now);
        for seconds in [1, 2, 4, 8, 16, 30, 30, 30] {
            let ms = seconds * 1_000;
            assert_eq!(breaker.state(after(now, ms - 1)), BreakerState::Open);
            now = after(now, ms);
            assert_eq!(breaker.state(now), BreakerState::HalfOpen, "{seconds}");
            breaker.failed(now);
        }
    }

    #[test]
    fn a_hundred_failures_at_once_count_as_one() {
        let start = Instant::now();
        let mut breaker = CircuitBreaker::default();
        for _ in 0..100 {
            breaker.failed(start);
        }
        assert_eq!(breaker.state(after(start, 1_000)), BreakerState::HalfOpen);
    }

    #[test]
    fn a_prober_that_never_reports_is_replaced() {
        let start = Instant::now();
        let mut breaker = CircuitBreaker::default();
        breaker.failed(start);
        assert_eq!(breaker.state(after(start, 1_000)), BreakerState::HalfOpen);
        assert_eq!(breaker.state(after(start, 2_000)), BreakerState::HalfOpen);
    }
}
