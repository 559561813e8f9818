//! Counts the outcomes of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use torc_client::{Error, ErrorKind};

use super::workload::Kind;

/// Latencies of requests of one kind, microseconds, to three digits.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Option<Histogram<u64>>);

impl Latencies {
    /// Longer latencies count as this: one hour.
    pub(super) const MAX_US: u64 = 3_600_000_000;

    fn took(&mut self, time: Duration) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
        }
    }

    /// `None` without requests.
    pub(super) fn histogram(&self) -> Option<&Histogram<u64>> {
        self.0.as_ref().filter(|histogram| !histogram.is_empty())
    }
}

impl Default for Latencies {
    fn default() -> Self {
        // These bounds are valid, so there always is a histogram.
        Self(Histogram::new_with_bounds(1, Self::MAX_US, 3).ok())
    }
}

/// Results of the requests of one kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) latencies: Latencies,
    /// Operations that succeeded.
    pub(super) done: u64,
    /// Operations that found no value.
    pub(super) not_found: u64,
    /// Records that scans returned.
    pub(super) records: u64,
}

/// Results of all workers' requests.
#[derive(Debug, Default)]
pub(super) struct Tally {
    kinds: BTreeMap<Kind, Counts>,
    pub(super) errors: BTreeMap<&'static str, u64>,
    /// The first error message of each kind.
    pub(super) messages: BTreeMap<&'static str, String>,
    /// Requests sent.
    pub(super) requests: u64,
}

/// A successful operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Written, or a value was found.
    Done,
    /// There was no value.
    NotFound,
    /// A scan's records.
    Records(u64),
}

impl Tally {
    /// Records a request and the outcome of each of its operations. Returns its first error.
    pub(super) fn note(
        &mut self,
        kind: Kind,
        took: Duration,
        outcomes: impl IntoIterator<Item = Result<Outcome, Error>>,
    ) -> Option<Error> {
        self.requests += 1;
        let counts = self.kinds.entry(kind).or_default();
        counts.latencies.took(took);
        let mut first_error = None;
        for outcome in outcomes {
            match outcome {
                Ok(outcome) => counts.succeeded(outcome),
                Err(error) => {
                    let kind = name(error.kind());
                    *self.errors.entry(kind).or_default() += 1;
                    let said = || error.to_string();
                    self.messages.entry(kind).or_insert_with(said);
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error
    }

    /// The results of a kind; `None` without requests of this kind.
    pub(super) fn of(&self, kind: Kind) -> Option<&Counts> {
        self.kinds.get(&kind)
    }

    /// Operations of all kinds that succeeded.
    pub(super) fn done(&self) -> u64 {
        self.kinds.values().map(|counts| counts.done).sum()
    }
}

impl Counts {
    fn succeeded(&mut self, outcome: Outcome) {
        self.done += 1;
        match outcome {
            Outcome::Done => {}
            Outcome::NotFound => self.not_found += 1,
            Outcome::Records(records) => self.records += records,
        }
    }
}

fn name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Deadline => "deadline",
        ErrorKind::ConditionNotMet => "condition_not_met",
        ErrorKind::OutcomeUnknown => "outcome_unknown",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Refused => "refused",
        ErrorKind::NoSuchNamespace => "no_such_namespace",
        ErrorKind::NoSuchNode => "no_such_node",
        ErrorKind::Overloaded => "overloaded",
        ErrorKind::OutOfSpace => "out_of_space",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Internal => "internal",
        _ => "other",
    }
}
