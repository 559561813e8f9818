//! The log of slow operations: kind, duration, outcome and trace id, but never keys.
//!
//! If everything is slow, the node logs 20 lines per second and the number of further slow
//! operations.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use torc_proto::{Fault, TraceContext};
use torc_record::to_millis;
use torc_ring::Partition;

use crate::operation::Operation;

const LINES_A_SECOND: u32 = 20;

/// An operation that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// Its kind.
    pub operation: Operation,
    /// Its duration.
    pub took: Duration,
    /// `None` if it succeeded.
    pub fault: Option<&'a Fault>,
    /// Its trace, whether or not it is sampled.
    pub trace: Option<TraceContext>,
}

/// The log of one node.
#[derive(Debug)]
pub struct SlowLog {
    /// `None` if the log is off.
    limit: Option<Duration>,
    slow: Counter,
    told: Mutex<Told>,
}

/// The lines of the current second.
#[derive(Debug)]
struct Told {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Told {
    /// Returns the number of lines left out before this one; `None` if this one is left out too.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines == LINES_A_SECOND {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl SlowLog {
    /// Logs operations that take `limit` or longer, and counts them in `slow`.
    #[must_use]
    pub fn new(limit: Option<Duration>, slow: Counter) -> Self {
        let told = Told {
            since: Instant::now(),
            lines: 0,
            left_out: 0,
        };
        Self {
            limit,
            slow,
            told: Mutex::new(told),
        }
    }

    /// Whether the log is on.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.limit.is_some()
    }

    /// Logs the operation if it was slow, and only then asks for the partition: `None` for several
    /// partitions or an unknown one.
    pub fn note(&self, ended: Ended<'_>, partition: impl FnOnce() -> Option<Partition>) {
        if self.limit.is_none_or(|limit| ended.took < limit) {
            return;
        }
        self.slow.inc();
        let Some(left_out) = self.told.lock().take(Instant::now()) else {
            return;
        };
        let outcome = ended.fault.map_or("OK", |fault| fault.reason.as_str_name());
        tracing::warn!(
            operation = ended.operation.name(),
            partition = partition().map(|partition| partition.0),
            took_ms = to_millis(ended.took),
            outcome,
            trace_id = ended.trace.map(|trace| trace.trace_id_text()),
            left_out,
            "slow operation"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_longer_than_the_limit_is_slow() {
        let ms = Duration::from_millis;
        for (limit, took, expected) in [(None, 9_000, 0), (Some(10), 9, 0), (Some(10), 10, 1)] {
            let slow = Counter::default();
            let ended = Ended {
                operation: Operation::Put,
                took: ms(took),
                fault: None,
                trace: None,
            };
            let log = SlowLog::new(limit.map(ms), slow.clone());
            let mut is_asked = false;
            log.note(ended, || {
                is_asked = true;
                None
            });
            assert_eq!(slow.get(), expected, "{limit:?} {took}");
            assert!(!is_asked || expected == 1, "asking costs a digest");
        }
    }

    #[test]
    fn lines_are_bounded_and_those_left_out_are_told() {
        let since = Instant::now();
        let mut told = Told {
            since,
            lines: 0,
            left_out: 0,
        };
        let written = (0..100).filter(|_| told.take(since) == Some(0)).count();
        assert_eq!(written, 20);
        let later = since + Duration::from_secs(1);
        assert_eq!(told.take(later), Some(80));
        assert_eq!(told.take(later), Some(0));
    }
}
