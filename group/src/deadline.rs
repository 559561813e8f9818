//! When a caller stops waiting.

use std::time::Duration;

use tokio::time::Instant;

/// When a caller stops waiting: an instant, or a time from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    pub(crate) const fn instant(self) -> Instant {
        self.0
    }

    pub(crate) fn passed(self) -> bool {
        Instant::now() >= self.0
    }

    /// Zero once it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Self {
        Self(instant)
    }
}

impl From<std::time::Instant> for Deadline {
    fn from(instant: std::time::Instant) -> Self {
        Self(Instant::from_std(instant))
    }
}

impl From<Duration> for Deadline {
    fn from(from_now: Duration) -> Self {
        /// As good as for ever, without overflowing an instant.
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
        Self(Instant::now() + from_now.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_when_its_time_is_over() {
        let over = Deadline::from(Instant::now());
        assert!(over.passed());
        assert_eq!(over.remaining(), Duration::ZERO);
        let later = Deadline::from(Duration::from_secs(3600));
        assert!(!later.passed() && later > over);
        assert!(later.remaining() > Duration::from_secs(1800));
    }

    #[test]
    fn an_endless_wait_does_not_overflow() {
        assert!(!Deadline::from(Duration::MAX).passed());
    }
}
