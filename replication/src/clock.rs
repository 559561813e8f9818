//! The clock from which a coordinator takes ballots and rounds.
//!
//! No reading is ever issued twice, not even after a restart with the wall clock set
//! back: readings stay below a durable ceiling, and a restarted clock starts above it.
//! Two writes with the same ballot would make replicas differ forever.

use torc_record::{ClockError, HybridClock, HybridTime, MAX_CLOCK_SKEW_MS};

use crate::Now;

/// A hybrid clock whose readings are reserved durably ahead of use.
#[derive(Debug, Clone)]
pub struct ReservedClock {
    clock: HybridClock,
    ceiling: HybridTime,
    asked: HybridTime,
    /// Monotonic time at which the last reservation became durable.
    reserved_at_ms: u64,
}

impl ReservedClock {
    /// How far ahead the clock reserves readings, milliseconds: one disk write per half of it. Must
    /// be less than the skew that peers tolerate, or they would refuse a restarted node.
    pub const AHEAD_MS: u64 = 200;

    /// A clock that continues above the ceiling its node had reserved.
    #[must_use]
    pub const fn resume(ceiling: HybridTime) -> Self {
        Self {
            clock: HybridClock::resume(ceiling),
            ceiling,
            asked: ceiling,
            reserved_at_ms: 0,
        }
    }

    /// A new reading; `None` while the reservation is not durable yet.
    ///
    /// A slow disk may take longer than the reserved time, so the wall clock may pass the ceiling
    /// before it is durable. Waiting callers then get one of the last readings below it, which is
    /// later than their request; otherwise no caller would ever get a reading.
    pub fn tick(&mut self, now: Now) -> Option<HybridTime> {
        let mut wall_ms = now.unix_ms;
        if wall_ms == self.reserved_at_ms {
            // One millisecond has 65,536 readings.
            wall_ms = wall_ms.min(self.ceiling.unix_ms().saturating_sub(1));
        }
        let mut trial = self.clock.clone();
        let reading = trial.tick(wall_ms);
        if reading > self.ceiling {
            return None;
        }
        self.clock = trial;
        Some(reading)
    }

    /// The ceiling to make durable now, if any, ahead of need. Call
    /// [`reserved`](Self::reserved) when it is durable.
    pub fn to_reserve(&mut self, now: Now) -> Option<HybridTime> {
        let ours = self.clock.last().max(HybridTime::from_unix_ms(now.unix_ms));
        let half = HybridTime(ours.0.saturating_add((Self::AHEAD_MS / 2) << 16));
        if half <= self.asked {
            return None;
        }
        self.asked = HybridTime(ours.0.saturating_add(Self::AHEAD_MS << 16));
        Some(self.asked)
    }

    /// The reservation is durable.
    pub fn reserved(&mut self, now: Now, ceiling: HybridTime) {
        self.ceiling = self.ceiling.max(ceiling);
        self.reserved_at_ms = now.unix_ms;
    }

    /// The reservation failed: request it again.
    pub const fn unreserved(&mut self) {
        self.asked = self.ceiling;
    }

    /// Whether readings are so far ahead of the wall clock that peers refuse them (R10), because it
    /// was set back.
    #[must_use]
    pub fn is_ahead(&self, now: Now) -> bool {
        let furthest = now.unix_ms.saturating_add(MAX_CLOCK_SKEW_MS);
        self.clock.last() > HybridTime::from_unix_ms(furthest)
    }

    /// Moves past a time seen in a message (R10).
    ///
    /// # Errors
    /// [`ClockError`] when it is too far ahead; the clock stays as it was.
    pub fn observe(&mut self, seen: HybridTime, now: Now) -> Result<(), ClockError> {
        self.clock.observe(seen, now.unix_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_with_the_wall_clock_set_back_repeats_no_reading() {
        let mut clock = ReservedClock::resume(HybridTime::default());
        let noon = Now {
            elapsed_ms: 0,
            unix_ms: 43_200_000,
        };
        assert_eq!(clock.tick(noon), None, "nothing is reserved yet");
        let ceiling = clock.to_reserve(noon).expect("asked for");
        assert_eq!(clock.to_reserve(noon), None, "asked for once");
        clock.reserved(noon, ceiling);
        let before = clock.tick(noon).expect("reserved");
        let mut clock = ReservedClock::resume(ceiling);
        let morning = Now {
            elapsed_ms: 0,
            unix_ms: 1_000,
        };
        let ceiling = clock.to_reserve(morning).expect("asked for");
        clock.reserved(morning, ceiling);
        assert!(clock.tick(morning).expect("reserved") > before);
        assert!(clock.is_ahead(morning) && !clock.is_ahead(noon));
    }

    #[test]
    fn a_disk_that_takes_longer_than_is_reserved_does_not_stop_the_clock() {
        let mut clock = ReservedClock::resume(HybridTime::default());
        let mut now = Now {
            elapsed_ms: 0,
            unix_ms: 43_200_000,
        };
        let mut last = HybridTime::default();
        for _ in 0..5 {
            let asked = HybridTime::from_unix_ms(now.unix_ms);
            let ceiling = clock.to_reserve(now).expect("asked for");
            now.unix_ms += 3 * ReservedClock::AHEAD_MS;
            assert_eq!(clock.tick(now), None, "it is not durable yet");
            clock.reserved(now, ceiling);
            for _ in 0..1_000 {
                let reading = clock.tick(now).expect("reserved");
                assert!(reading > last && reading > asked && reading <= ceiling);
                last = reading;
            }
            // A later caller has not waited for the reservation, and its reading would be too far
            // in the past.
            now.unix_ms += 1;
            assert_eq!(clock.tick(now), None);
        }
    }
}
