//! What a benchmark found.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use torc_client::{Error, ErrorKind};

use super::workload::Workload;
use crate::table::{Align, Table};
use crate::text;

/// Latencies of requests of one kind, microseconds, to three digits.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Option<Histogram<u64>>);

impl Latencies {
    /// Longer ones count as this: one hour.
    const MAX_US: u64 = 3_600_000_000;

    pub(super) fn took(&mut self, time: Duration) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        // These bounds are valid, so there always is a histogram.
        Self(Histogram::new_with_bounds(1, Self::MAX_US, 3).ok())
    }
}

/// What came of the requests of one worker, or of all.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) gets: Latencies,
    pub(super) puts: Latencies,
    got: u64,
    not_found: u64,
    put: u64,
    errors: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Notes a get, found or not; gives the error back.
    pub(super) fn got(&mut self, result: Result<bool, Error>) -> Option<Error> {
        match result {
            Ok(found) => {
                self.got += 1;
                self.not_found += u64::from(!found);
                None
            }
            Err(error) => Some(self.error(error)),
        }
    }

    /// Notes a put; gives the error back.
    pub(super) fn put(&mut self, result: Result<(), Error>) -> Option<Error> {
        match result {
            Ok(()) => {
                self.put += 1;
                None
            }
            Err(error) => Some(self.error(error)),
        }
    }

    fn error(&mut self, error: Error) -> Error {
        *self.errors.entry(name(error.kind())).or_default() += 1;
        error
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

/// The result of a benchmark; serialises to what `--output json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    seconds: f64,
    concurrency: u32,
    batch: u32,
    keys: u64,
    value_bytes: usize,
    /// Operations that succeeded.
    operations: u64,
    operations_per_s: f64,
    /// Operations that failed.
    failed: u64,
    gets: Kind,
    puts: Kind,
    /// Failed operations by kind.
    errors: BTreeMap<&'static str, u64>,
}

/// Requests of one kind. Latencies are of requests, failed ones included; without any,
/// they are null.
#[derive(Debug, Serialize)]
struct Kind {
    /// Operations that succeeded.
    operations: u64,
    operations_per_s: f64,
    /// Gets of keys that had no value; null for puts.
    not_found: Option<u64>,
    requests: u64,
    mean_us: Option<f64>,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    p999_us: Option<u64>,
    max_us: Option<u64>,
}

impl Kind {
    fn new(latencies: &Latencies, operations: u64, not_found: Option<u64>, seconds: f64) -> Self {
        let histogram = latencies
            .0
            .as_ref()
            .filter(|histogram| !histogram.is_empty());
        let quantile = |q| histogram.map(|histogram| histogram.value_at_quantile(q));
        Self {
            operations,
            operations_per_s: operations as f64 / seconds,
            not_found,
            requests: histogram.map_or(0, Histogram::len),
            mean_us: histogram.map(Histogram::mean),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: histogram.map(Histogram::max),
        }
    }

    fn cells(&self, name: &str) -> [String; 8] {
        let latency = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), text::latency_us);
        [
            name.to_owned(),
            text::count(self.operations),
            text::count(self.operations_per_s as u64),
            latency(self.mean_us.map(|us| us.round() as u64)),
            latency(self.p50_us),
            latency(self.p99_us),
            latency(self.p999_us),
            latency(self.max_us),
        ]
    }
}

impl Report {
    pub(super) fn new(
        workload: &Workload,
        concurrency: u32,
        elapsed: Duration,
        tally: &Tally,
    ) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-6);
        let operations = tally.got + tally.put;
        Self {
            seconds,
            concurrency,
            batch: workload.batch,
            keys: workload.keys,
            value_bytes: workload.value.len(),
            operations,
            operations_per_s: operations as f64 / seconds,
            failed: tally.errors.values().sum(),
            gets: Kind::new(&tally.gets, tally.got, Some(tally.not_found), seconds),
            puts: Kind::new(&tally.puts, tally.put, None, seconds),
            errors: tally.errors.clone(),
        }
    }

    pub(super) fn nothing_succeeded(&self) -> bool {
        self.operations == 0
    }

    pub(super) fn describe(&self) -> String {
        let mut table = Table::new(&[
            ("", Align::Left),
            ("done", Align::Right),
            ("a second", Align::Right),
            ("mean", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
            ("p99.9", Align::Right),
            ("max", Align::Right),
        ]);
        for (name, kind) in [("get", &self.gets), ("put", &self.puts)] {
            if kind.requests > 0 {
                table.row(kind.cells(name));
            }
        }
        let head = format!(
            "{} operations in {}: {} a second, {} requests under way, {} a request, values of {}",
            text::count(self.operations),
            text::duration(Duration::from_secs_f64(self.seconds)),
            text::count(self.operations_per_s as u64),
            self.concurrency,
            self.batch,
            text::bytes(self.value_bytes as u64),
        );
        let mut paragraphs = vec![head, table.to_string()];
        if let Some(not_found @ 1..) = self.gets.not_found {
            paragraphs.push(format!("{} gets found no value", text::count(not_found)));
        }
        if self.failed > 0 {
            let kind = |(kind, count): (&&str, &u64)| format!("{} {kind}", text::count(*count));
            let kinds: Vec<String> = self.errors.iter().map(kind).collect();
            let failed = text::count(self.failed);
            paragraphs.push(format!("{failed} operations failed: {}", kinds.join(", ")));
        }
        paragraphs.join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::bench::workload;

    fn workload() -> Workload {
        Workload {
            popularity: super::super::workload::Popularity::Uniform,
            seed: 1,
            keys: 10,
            mix: "1/1".parse().unwrap(),
            operations: 4,
            batch: 1,
            value: workload::value(1, 100),
        }
    }

    fn tally(gets_us: &[u64], puts_us: &[u64]) -> Tally {
        let mut tally = Tally::default();
        for us in gets_us {
            tally.gets.took(Duration::from_micros(*us));
            assert!(tally.got(Ok(*us != 1)).is_none());
        }
        for us in puts_us {
            tally.puts.took(Duration::from_micros(*us));
            assert!(tally.put(Ok(())).is_none());
        }
        tally
    }

    fn report(tally: &Tally) -> Report {
        Report::new(&workload(), 64, Duration::from_millis(500), tally)
    }

    #[test]
    fn what_was_noted_adds_up() {
        let report = report(&tally(&[100, 1, 300], &[2_000]));
        assert_eq!(
            (
                report.operations,
                report.gets.operations,
                report.puts.operations
            ),
            (4, 3, 1)
        );
        assert_eq!(report.gets.not_found, Some(1));
        assert_eq!(
            (report.gets.p50_us, report.gets.max_us),
            (Some(100), Some(300))
        );
        assert!((report.operations_per_s - 8.0).abs() < 1e-9);
    }

    #[test]
    fn the_json_keeps_its_fields() {
        let mut tally = tally(&[100], &[]);
        tally.errors.insert("deadline", 2);
        let json = serde_json::to_value(report(&tally)).unwrap();
        crate::out::assert_documented(&json);
        let expected = serde_json::json!({
            "seconds": 0.5, "concurrency": 64, "batch": 1, "keys": 10, "value_bytes": 100,
            "operations": 1, "operations_per_s": 2.0, "failed": 2,
            "gets": {
                "operations": 1, "operations_per_s": 2.0, "not_found": 0, "requests": 1,
                "mean_us": 100.0, "p50_us": 100, "p99_us": 100, "p999_us": 100, "max_us": 100,
            },
            "puts": {
                "operations": 0, "operations_per_s": 0.0, "not_found": null, "requests": 0,
                "mean_us": null, "p50_us": null, "p99_us": null, "p999_us": null, "max_us": null,
            },
            "errors": {"deadline": 2},
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn the_text_shows_rates_latencies_and_errors() {
        let mut tally = tally(&[1, 850], &[2_000]);
        tally.errors.insert("deadline", 2);
        let expected = "\
3 operations in 500 ms: 6 a second, 64 requests under way, 1 a request, values of 100 B

     done  a second     mean      p50      p99    p99.9      max
get     2         4   426 us     1 us   850 us   850 us   850 us
put     1         2  2.00 ms  2.00 ms  2.00 ms  2.00 ms  2.00 ms

1 gets found no value

2 operations failed: 2 deadline";
        assert_eq!(report(&tally).describe(), expected);
    }

    #[test]
    fn a_latency_beyond_an_hour_is_an_hour_or_so() {
        let report = report(&tally(&[u64::MAX], &[]));
        assert!(report.gets.max_us >= Some(Latencies::MAX_US));
    }
}
