//! The results of a benchmark.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::tally::{Counts, Tally};
use super::workload::{Kind, Workload};
use crate::table::{Align, Table};
use crate::text;

/// The result of a benchmark; serialises to what `--output json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    workload: Option<&'static str>,
    seconds: f64,
    concurrency: u32,
    /// The requested rate, operations per second.
    rate: Option<u64>,
    batch: u32,
    keys: u64,
    value_bytes: usize,
    /// Operations that succeeded.
    operations: u64,
    operations_per_s: f64,
    /// Operations that failed.
    failed: u64,
    /// Operations that were due but not sent, because all workers were busy.
    not_sent: Option<u64>,
    gets: Row,
    puts: Row,
    inserts: Option<Row>,
    scans: Option<Row>,
    read_modify_writes: Option<Row>,
    /// Failed operations by kind.
    errors: BTreeMap<&'static str, u64>,
    /// The first error message of each kind.
    messages: BTreeMap<&'static str, String>,
}

/// Requests of one kind. Latencies are per request, failed ones included; null without
/// requests.
#[derive(Debug, Serialize)]
struct Row {
    /// Operations that succeeded.
    operations: u64,
    operations_per_s: f64,
    /// Operations on keys that had no value; null for kinds that do not read.
    not_found: Option<u64>,
    /// Records that scans returned; null for other kinds.
    records: Option<u64>,
    requests: u64,
    mean_us: Option<f64>,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    p999_us: Option<u64>,
    max_us: Option<u64>,
}

impl Row {
    fn new(kind: Kind, counts: &Counts, seconds: f64) -> Self {
        let histogram = counts.latencies.histogram();
        let quantile = |q| histogram.map(|histogram| histogram.value_at_quantile(q));
        Self {
            operations: counts.done,
            operations_per_s: counts.done as f64 / seconds,
            not_found: matches!(kind, Kind::Get | Kind::Modify).then_some(counts.not_found),
            records: (kind == Kind::Scan).then_some(counts.records),
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
    pub(super) fn new(workload: &Workload, concurrency: u32, run: &Run) -> Self {
        let (tally, seconds) = (&run.tally, run.elapsed.as_secs_f64().max(1e-6));
        let row = |kind| Some(Row::new(kind, tally.of(kind)?, seconds));
        let always =
            |kind| row(kind).unwrap_or_else(|| Row::new(kind, &Counts::default(), seconds));
        let operations = tally.done();
        Self {
            workload: workload.name,
            seconds,
            concurrency,
            rate: run.rate,
            batch: workload.batch,
            keys: workload.keys,
            value_bytes: workload.value.len(),
            operations,
            operations_per_s: operations as f64 / seconds,
            failed: tally.errors.values().sum(),
            not_sent: run.not_sent,
            gets: always(Kind::Get),
            puts: always(Kind::Put),
            inserts: row(Kind::Insert),
            scans: row(Kind::Scan),
            read_modify_writes: row(Kind::Modify),
            errors: tally.errors.clone(),
            messages: tally.messages.clone(),
        }
    }

    pub(super) fn nothing_succeeded(&self) -> bool {
        self.operations == 0
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, &Row)> {
        let rows = [
            (Kind::Get, Some(&self.gets)),
            (Kind::Put, Some(&self.puts)),
            (Kind::Insert, self.inserts.as_ref()),
            (Kind::Scan, self.scans.as_ref()),
            (Kind::Modify, self.read_modify_writes.as_ref()),
        ];
        let rows = rows.into_iter();
        rows.filter_map(|(kind, row)| Some((kind.name(), row.filter(|row| row.requests > 0)?)))
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
        self.rows()
            .for_each(|(name, row)| table.row(row.cells(name)));
        let mut paragraphs = vec![self.head(), table.to_string()];
        if let Some(not_found @ 1..) = self.gets.not_found {
            paragraphs.push(format!(
                "{} found no value",
                text::counted(not_found, "get")
            ));
        }
        if let Some(records) = self.scans.as_ref().and_then(|scans| scans.records) {
            paragraphs.push(format!(
                "scans returned {}",
                text::counted(records, "record")
            ));
        }
        if let Some(not_sent @ 1..) = self.not_sent {
            paragraphs.push(format!(
                "{} operations were due but not sent, because {} requests were in flight. Latencies leave them out: \
                 raise --concurrency or lower --rate",
                text::count(not_sent),
                self.concurrency
            ));
        }
        if self.failed > 0 {
            let kind = |(kind, count): (&&str, &u64)| format!("{} {kind}", text::count(*count));
            let kinds: Vec<String> = self.errors.iter().map(kind).collect();
            let failed = text::counted(self.failed, "operation");
            let first = |(kind, said): (&&str, &String)| format!("\nfirst {kind}: {said}");
            let first: String = self.messages.iter().map(first).collect();
            paragraphs.push(format!("{failed} failed: {}{first}", kinds.join(", ")));
        }
        paragraphs.join("\n\n")
    }

    fn head(&self) -> String {
        let workload = self.workload.map(|name| format!("YCSB {name}: "));
        let asked = self.rate.map(|rate| format!(" of {}", text::count(rate)));
        format!(
            "{}{} in {}: {}{} per second, {} concurrent requests, {} per request, values of {}",
            workload.unwrap_or_default(),
            text::counted(self.operations, "operation"),
            text::duration(Duration::from_secs_f64(self.seconds)),
            text::count(self.operations_per_s as u64),
            asked.unwrap_or_default(),
            self.concurrency,
            self.batch,
            text::bytes(self.value_bytes as u64),
        )
    }
}

/// One run, at one rate.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) rate: Option<u64>,
    pub(super) elapsed: Duration,
    pub(super) tally: Tally,
    /// Operations that were due but not sent; `None` without a rate.
    pub(super) not_sent: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::bench::keys::{Law, Popularity};
    use crate::cmd::bench::tally::{Latencies, Outcome};
    use crate::cmd::bench::workload;

    fn workload() -> Workload {
        Workload {
            name: None,
            popularity: Popularity::new(Law::Uniform, 10),
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
            let found = if *us == 1 {
                Outcome::NotFound
            } else {
                Outcome::Done
            };
            let took = Duration::from_micros(*us);
            assert!(tally.note(Kind::Get, took, [Ok(found)]).is_none());
        }
        for us in puts_us {
            let took = Duration::from_micros(*us);
            assert!(tally.note(Kind::Put, took, [Ok(Outcome::Done)]).is_none());
        }
        tally
    }

    fn run(tally: Tally) -> Run {
        Run {
            rate: None,
            elapsed: Duration::from_millis(500),
            tally,
            not_sent: None,
        }
    }

    fn report(tally: Tally) -> Report {
        Report::new(&workload(), 64, &run(tally))
    }

    #[test]
    fn what_was_noted_adds_up() {
        let report = report(tally(&[100, 1, 300], &[2_000]));
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
        tally.messages.insert("deadline", "too late".to_owned());
        let json = serde_json::to_value(report(tally)).unwrap();
        crate::out::assert_documented_under("`bench`", &json);
        let expected = serde_json::json!({
            "workload": null, "seconds": 0.5, "concurrency": 64, "rate": null, "batch": 1, "keys": 10,
            "value_bytes": 100, "operations": 1, "operations_per_s": 2.0, "failed": 2, "not_sent": null,
            "gets": {
                "operations": 1, "operations_per_s": 2.0, "not_found": 0, "records": null, "requests": 1,
                "mean_us": 100.0, "p50_us": 100, "p99_us": 100, "p999_us": 100, "max_us": 100,
            },
            "puts": {
                "operations": 0, "operations_per_s": 0.0, "not_found": null, "records": null, "requests": 0,
                "mean_us": null, "p50_us": null, "p99_us": null, "p999_us": null, "max_us": null,
            },
            "inserts": null, "scans": null, "read_modify_writes": null,
            "errors": {"deadline": 2}, "messages": {"deadline": "too late"},
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn the_text_shows_rates_latencies_and_errors() {
        let mut tally = tally(&[1, 850], &[2_000]);
        tally.errors.insert("deadline", 2);
        tally.messages.insert("deadline", "too late".to_owned());
        let expected = "\
3 operations in 500 ms: 6 per second, 64 concurrent requests, 1 per request, values of 100 B

     done  a second     mean      p50      p99    p99.9      max
get     2         4   426 us     1 us   850 us   850 us   850 us
put     1         2  2.00 ms  2.00 ms  2.00 ms  2.00 ms  2.00 ms

1 get found no value

2 operations failed: 2 deadline
first deadline: too late";
        assert_eq!(report(tally).describe(), expected);
    }

    #[test]
    fn the_text_of_a_core_workload_says_what_scans_returned_and_what_was_not_sent() {
        let mut tally = Tally::default();
        let took = Duration::from_millis(3);
        tally.note(Kind::Scan, took, [Ok(Outcome::Records(40))]);
        tally.note(Kind::Insert, took, [Ok(Outcome::Done)]);
        let run = Run {
            rate: Some(4_000),
            not_sent: Some(1_500),
            ..run(tally)
        };
        let core = Workload {
            name: Some("e"),
            ..workload()
        };
        let report = Report::new(&core, 8, &run);
        crate::out::assert_documented_under("`bench`", &report);
        let text = report.describe();
        let head = "YCSB e: 2 operations in 500 ms: 4 of 4,000 per second, 8 concurrent requests";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("scans returned 40 records"), "{text}");
        let not_sent = "1,500 operations were due but not sent, because 8 requests were in flight";
        assert!(text.contains(not_sent), "{text}");
    }

    #[test]
    fn a_latency_beyond_an_hour_is_an_hour_or_so() {
        let report = report(tally(&[u64::MAX], &[]));
        assert!(report.gets.max_us >= Some(Latencies::MAX_US));
    }
}
