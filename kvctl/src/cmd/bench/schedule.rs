//! When to send requests. Pure: times count from the start of the run.

use std::time::Duration;

/// When requests start and when the run ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Schedule {
    /// No request starts later.
    pub(super) duration: Option<Duration>,
    /// Requests per second; `None`: each as soon as an earlier one was answered.
    pub(super) rate: Option<f64>,
}

impl Schedule {
    /// When request `number` is due; `None` if it starts as soon as a worker is free.
    pub(super) fn due(&self, number: u64) -> Option<Duration> {
        let seconds = number as f64 / self.rate?;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Whether a free worker may send request `number` now.
    pub(super) fn sends(&self, number: u64, now: Duration) -> bool {
        let Some(end) = self.duration else {
            return true;
        };
        now < end && self.due(number).is_none_or(|due| due < end)
    }

    /// How many of at most `most` requests were due within `elapsed`.
    pub(super) fn all_due(&self, most: u64, elapsed: Duration) -> Option<u64> {
        let seconds = self.duration.unwrap_or(elapsed).as_secs_f64();
        let due = (seconds * self.rate?).ceil() as u64;
        Some(due.min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn requests_are_due_at_even_times_whatever_happens() {
        let open = Schedule {
            duration: Some(2 * SECOND),
            rate: Some(4.0),
        };
        let due: Vec<u64> = (0..4)
            .map(|number| open.due(number).unwrap().as_millis() as u64)
            .collect();
        assert_eq!(due, [0, 250, 500, 750]);
        assert!(open.sends(7, SECOND), "due after 1.75 s");
        assert!(!open.sends(8, SECOND), "due at the end");
        assert!(!open.sends(1, 2 * SECOND), "due long ago, and it is over");
        assert_eq!(open.all_due(u64::MAX, 3 * SECOND), Some(8));
        assert_eq!(open.all_due(5, 3 * SECOND), Some(5));
    }

    #[test]
    fn a_closed_loop_sends_until_its_time_is_over() {
        let closed = Schedule {
            duration: Some(SECOND),
            rate: None,
        };
        assert_eq!((closed.due(1), closed.all_due(9, SECOND)), (None, None));
        assert!(closed.sends(u64::MAX, SECOND / 2) && !closed.sends(0, SECOND));
        let endless = Schedule {
            duration: None,
            ..closed
        };
        assert!(endless.sends(u64::MAX, Duration::MAX));
    }

    #[test]
    fn a_time_beyond_all_times_is_no_panic() {
        let slow = Schedule {
            duration: None,
            rate: Some(1e-9),
        };
        assert_eq!(slow.due(u64::MAX), Some(Duration::MAX));
    }
}
