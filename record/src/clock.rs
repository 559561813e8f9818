//! The hybrid logical clock that issues ballots.
//!
//! Physical time is an argument. The clock never goes back, whatever the physical clock
//! does, and it refuses to follow a peer whose clock is far ahead: clocks affect
//! progress, never safety.
//!
//! Source: Kulkarni, Demirbas et al., "Logical Physical Clocks", 2014.

use crate::HybridTime;

/// How far ahead of our physical clock a peer's time may be, milliseconds.
pub const MAX_CLOCK_SKEW_MS: u64 = 500;

/// A peer's time that is too far ahead to be followed. Our clock is unchanged;
/// check the clock of the peer, and our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a peer's clock is {ahead_ms} ms ahead, more than {MAX_CLOCK_SKEW_MS} ms: check both clocks"
)]
pub struct ClockError {
    /// How far ahead the peer is, milliseconds.
    pub ahead_ms: u64,
}

/// A clock whose readings strictly increase.
#[derive(Debug, Clone, Default)]
pub struct HybridClock {
    last: HybridTime,
}

impl HybridClock {
    /// A clock that continues after `last`, the highest time found in the store.
    #[must_use]
    pub const fn resume(last: HybridTime) -> Self {
        Self { last }
    }

    /// A time greater than every earlier reading and observation.
    pub fn tick(&mut self, unix_ms: u64) -> HybridTime {
        let next = HybridTime(self.last.0.saturating_add(1));
        self.last = next.max(HybridTime::from_unix_ms(unix_ms));
        self.last
    }

    /// Advances the clock beyond a time from a message.
    ///
    /// # Errors
    /// [`ClockError`] if `seen` is more than [`MAX_CLOCK_SKEW_MS`] ahead of both `unix_ms` and this
    /// clock's last reading; the clock is then unchanged.
    pub fn observe(&mut self, seen: HybridTime, unix_ms: u64) -> Result<(), ClockError> {
        let ours = unix_ms.max(self.last.unix_ms());
        let ahead_ms = seen.unix_ms().saturating_sub(ours);
        if ahead_ms > MAX_CLOCK_SKEW_MS {
            return Err(ClockError { ahead_ms });
        }
        self.last = self.last.max(seen);
        Ok(())
    }

    /// The last reading or observation.
    #[must_use]
    pub const fn last(&self) -> HybridTime {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_peer_far_ahead_is_refused_and_changes_nothing() {
        let mut clock = HybridClock::default();
        let before = clock.tick(10_000);
        let seen = HybridTime::from_unix_ms(10_501);
        assert_eq!(
            clock.observe(seen, 10_000),
            Err(ClockError { ahead_ms: 501 })
        );
        assert_eq!(clock.last(), before);
        assert_eq!(
            clock.observe(HybridTime::from_unix_ms(10_500), 10_000),
            Ok(())
        );
    }

    #[test]
    fn a_clock_that_was_set_back_keeps_its_order() {
        let mut clock = HybridClock::default();
        let first = clock.tick(3_600_000);
        assert!(clock.tick(0) > first, "an hour back on the wall clock");
    }

    proptest! {
        #[test]
        fn readings_strictly_increase(times in proptest::collection::vec(0_u64..1 << 40, 2..50)) {
            let mut clock = HybridClock::default();
            let readings: Vec<_> = times.iter().map(|ms| clock.tick(*ms)).collect();
            prop_assert!(readings.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
