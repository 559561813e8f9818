//! The hedge budget: decides when a get may be sent twice. Pure.
//!
//! A get that takes much longer than recent ones is also sent to a second replica, and the
//! first answer counts ("hedged requests": Dean and Barroso, "The tail at scale", 2013). A
//! histogram with bounds at powers of the fourth root of two holds recent latencies; its
//! counts are halved periodically.
//!
//! Invariants:
//! * In the long run at most one get in ten is hedged, plus a few at the start: doubling the
//!   load would not help slow nodes.
//! * No get is hedged within its first [`LEAST_DELAY`].

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "estimates of times, and `as` saturates"
)]

use std::time::Duration;

/// Never hedge earlier, however fast other gets are.
const LEAST_DELAY: Duration = Duration::from_millis(10);
/// The delay is this multiple of the 99th percentile.
const TIMES_P99: u32 = 3;
/// Gets after which the counts are halved.
const WINDOW: u32 = 1_024;
/// What a get adds to the budget, in hundredths of a hedge.
const EARNED: u32 = 10;
/// Limit of the budget, in hundredths of a hedge.
const CAPACITY: u32 = 1_600;
const ONE_HEDGE: u32 = 100;
/// Buckets per octave.
const FINENESS: f64 = 4.0;
/// Up to 2^24 us, 16 s.
const BUCKETS: usize = 96;

/// Latencies of recent gets, and the hedges that they have earned.
#[derive(Debug, Clone)]
pub(crate) struct HedgeBudget {
    buckets: [u32; BUCKETS],
    count: u32,
    /// Hundredths of a hedge.
    balance: u32,
    delay: Duration,
}

impl Default for HedgeBudget {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            count: 0,
            balance: CAPACITY,
            delay: LEAST_DELAY,
        }
    }
}

impl HedgeBudget {
    /// How long to wait for an answer before hedging.
    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    /// Records the latency of one get, counted from its sending to the replica that
    /// answered first.
    pub(crate) fn record(&mut self, time: Duration) {
        let octaves = (time.as_micros().max(1) as f64).log2();
        let bucket = ((octaves * FINENESS) as usize).min(BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.count += 1;
        self.balance = (self.balance + EARNED).min(CAPACITY);
        if self.count.is_multiple_of(64) {
            self.delay = (self.p99() * TIMES_P99).max(LEAST_DELAY);
        }
        if self.count >= WINDOW {
            self.buckets.iter_mut().for_each(|count| *count /= 2);
            self.count = self.buckets.iter().sum();
        }
    }

    /// Spends one hedge, if the budget has one.
    pub(crate) fn try_spend(&mut self) -> bool {
        let left = self.balance.checked_sub(ONE_HEDGE);
        self.balance = left.unwrap_or(self.balance);
        left.is_some()
    }

    /// The upper end of the bucket that 99 of 100 gets are within.
    fn p99(&self) -> Duration {
        let beyond = self.count / 100;
        let mut slower = 0;
        for (bucket, count) in self.buckets.iter().enumerate().rev() {
            slower += count;
            if slower > beyond {
                let octaves = (bucket + 1) as f64 / FINENESS;
                return Duration::from_micros(octaves.exp2() as u64);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn fast_gets_are_hedged_after_ten_milliseconds() {
        let mut budget = HedgeBudget::default();
        assert_eq!(budget.delay(), ms(10));
        for _ in 0..5_000 {
            budget.record(Duration::from_micros(300));
        }
        assert_eq!(budget.delay(), ms(10));
    }

    #[test]
    fn slow_gets_are_hedged_after_three_times_what_nearly_all_take() {
        let mut budget = HedgeBudget::default();
        for number in 0..6_400 {
            // Fewer than one in 100, which is what hedges are for.
            budget.record(if number % 200 == 0 { ms(900) } else { ms(20) });
        }
        assert!(
            (ms(60)..ms(75)).contains(&budget.delay()),
            "{:?}",
            budget.delay()
        );
        for _ in 0..20_000 {
            budget.record(ms(1));
        }
        assert_eq!(budget.delay(), ms(10), "old latencies have no weight");
    }

    #[test]
    fn one_get_in_ten_is_hedged_at_most() {
        let mut budget = HedgeBudget::default();
        let mut hedges = 0;
        for _ in 0..10_000 {
            hedges += u32::from(budget.try_spend());
            budget.record(ms(1));
        }
        assert!((1_000..=1_016).contains(&hedges), "{hedges}");
    }
}
