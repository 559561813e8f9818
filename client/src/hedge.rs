//! When a get is worth sending twice. Pure.
//!
//! A get that takes much longer than others do lately is sent to a second replica too, and
//! the first answer counts ("hedged requests": Dean and Barroso, "The tail at scale",
//! 2013). What is lately is told by a histogram of powers of the fourth root of two, whose
//! counts are halved now and then.
//!
//! Invariants:
//! * In the long run there is at most one hedge in ten gets, after a few to begin with: slow
//!   nodes are not helped by twice the load.
//! * A get is not hedged earlier than after [`LEAST_WAIT`].

use std::time::Duration;

/// However fast others are, this long is no reason to hedge.
const LEAST_WAIT: Duration = Duration::from_millis(10);
/// Longer than what 99 of 100 gets take, this many times.
const TIMES_P99: u32 = 3;
/// Gets of which the counts are halved.
const WINDOW: u32 = 1_024;
/// Hedges that a get earns, in hundredths.
const EARNED: u32 = 10;
/// Hedges that may be saved, in hundredths.
const MOST_SAVED: u32 = 1_600;
const ONE_HEDGE: u32 = 100;
/// Buckets an octave.
const FINENESS: f64 = 4.0;
/// Up to 2^24 us, 16 s.
const BUCKETS: usize = 96;

/// How long gets take lately, and how many hedges they have earned.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    buckets: [u32; BUCKETS],
    count: u32,
    saved: u32,
    wait: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            count: 0,
            saved: MOST_SAVED,
            wait: LEAST_WAIT,
        }
    }
}

impl Pace {
    /// How long to wait for an answer before hedging.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Notes what one get took, from when it was sent to whoever answered first.
    pub(crate) fn took(&mut self, time: Duration) {
        let octaves = (time.as_micros().max(1) as f64).log2();
        let bucket = ((octaves * FINENESS) as usize).min(BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.count += 1;
        self.saved = (self.saved + EARNED).min(MOST_SAVED);
        if self.count.is_multiple_of(64) {
            self.wait = (self.p99() * TIMES_P99).max(LEAST_WAIT);
        }
        if self.count >= WINDOW {
            self.buckets.iter_mut().for_each(|count| *count /= 2);
            self.count = self.buckets.iter().sum();
        }
    }

    /// Takes a hedge, if one has been earned.
    pub(crate) fn may_hedge(&mut self) -> bool {
        let left = self.saved.checked_sub(ONE_HEDGE);
        self.saved = left.unwrap_or(self.saved);
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
        let mut pace = Pace::default();
        assert_eq!(pace.wait(), ms(10));
        for _ in 0..5_000 {
            pace.took(Duration::from_micros(300));
        }
        assert_eq!(pace.wait(), ms(10));
    }

    #[test]
    fn slow_gets_are_hedged_after_three_times_what_nearly_all_take() {
        let mut pace = Pace::default();
        for number in 0..6_400 {
            // Fewer than one in 100, which is what hedges are for.
            pace.took(if number % 200 == 0 { ms(900) } else { ms(20) });
        }
        assert!((ms(60)..ms(75)).contains(&pace.wait()), "{:?}", pace.wait());
        for _ in 0..20_000 {
            pace.took(ms(1));
        }
        assert_eq!(pace.wait(), ms(10), "what was long ago counts no more");
    }

    #[test]
    fn one_get_in_ten_is_hedged_at_most() {
        let mut pace = Pace::default();
        let mut hedges = 0;
        for _ in 0..10_000 {
            hedges += u32::from(pace.may_hedge());
            pace.took(ms(1));
        }
        assert!((1_000..=1_016).contains(&hedges), "{hedges}");
    }
}
