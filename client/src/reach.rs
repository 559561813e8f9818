//! Which addresses to avoid for a while.
//!
//! Pure: the time comes in as an argument. An address that could not be connected to
//! is avoided for a second, and twice as long after every failed probe, up to half a
//! minute. When that time is over one caller is told to probe, in the background;
//! everyone else goes on avoiding, so that no operation waits for an address that
//! swallows connections.

use std::time::{Duration, Instant};

const FIRST_AVOIDANCE: Duration = Duration::from_secs(1);
const LONGEST_AVOIDANCE: Duration = Duration::from_secs(30);

/// What to do with an address now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Send there.
    Use,
    /// Take another way.
    Avoid,
    /// Take another way, and see in the background whether this one works again.
    AvoidAndProbe,
}

/// What is known of one address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reach {
    failures: u32,
    avoid_until: Option<Instant>,
    probing: bool,
}

impl Reach {
    /// What to do now. Whoever gets [`Advice::AvoidAndProbe`] should probe; if they
    /// never report, another caller is asked to after the same time.
    pub(crate) fn advice(&mut self, now: Instant) -> Advice {
        match self.avoid_until {
            None => Advice::Use,
            Some(until) if now < until => Advice::Avoid,
            Some(_) => {
                self.avoid_until = Some(now + self.avoidance());
                self.probing = true;
                Advice::AvoidAndProbe
            }
        }
    }

    /// A connection could not be made. Many at once count as one.
    pub(crate) fn failed(&mut self, now: Instant) {
        let avoided = self.avoid_until.is_some_and(|until| now < until);
        if avoided && !self.probing {
            return;
        }
        self.probing = false;
        self.failures = self.failures.saturating_add(1);
        self.avoid_until = Some(now + self.avoidance());
    }

    /// Whether there is anything against using it.
    pub(crate) const fn is_avoided(&self) -> bool {
        self.avoid_until.is_some()
    }

    /// A connection was made.
    pub(crate) fn connected(&mut self) {
        *self = Self::default();
    }

    fn avoidance(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1);
        FIRST_AVOIDANCE
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(LONGEST_AVOIDANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn an_address_is_avoided_after_a_failure_then_probed_by_one_caller() {
        let start = Instant::now();
        let mut reach = Reach::default();
        assert_eq!(reach.advice(start), Advice::Use);
        reach.failed(start);
        assert_eq!(reach.advice(after(start, 999)), Advice::Avoid);
        assert_eq!(reach.advice(after(start, 1_000)), Advice::AvoidAndProbe);
        assert_eq!(
            reach.advice(after(start, 1_001)),
            Advice::Avoid,
            "one prober is enough"
        );
        reach.connected();
        assert_eq!(reach.advice(after(start, 1_002)), Advice::Use);
    }

    #[test]
    fn failed_probes_double_the_time_up_to_half_a_minute() {
        let mut now = Instant::now();
        let mut reach = Reach::default();
        reach.failed(now);
        for seconds in [1, 2, 4, 8, 16, 30, 30, 30] {
            let ms = seconds * 1_000;
            assert_eq!(reach.advice(after(now, ms - 1)), Advice::Avoid);
            now = after(now, ms);
            assert_eq!(reach.advice(now), Advice::AvoidAndProbe, "{seconds}");
            reach.failed(now);
        }
    }

    #[test]
    fn a_hundred_failures_at_once_count_as_one() {
        let start = Instant::now();
        let mut reach = Reach::default();
        for _ in 0..100 {
            reach.failed(start);
        }
        assert_eq!(reach.advice(after(start, 1_000)), Advice::AvoidAndProbe);
    }

    #[test]
    fn a_prober_that_never_reports_is_replaced() {
        let start = Instant::now();
        let mut reach = Reach::default();
        reach.failed(start);
        assert_eq!(reach.advice(after(start, 1_000)), Advice::AvoidAndProbe);
        assert_eq!(reach.advice(after(start, 2_000)), Advice::AvoidAndProbe);
    }
}
