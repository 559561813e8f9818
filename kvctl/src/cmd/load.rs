//! `kvctl load`: stores the records of a file.

pub(super) mod source;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use torc_client::{Client, Condition, Error, ErrorKind, PutOptions, Version};

use super::generation;
use crate::failure::Failure;
use crate::format::{Format, Naming, ReadError, Row};
use crate::global::Global;
use crate::input;
use crate::loading::{self, BatchLimits, LoadEnd, LoadOptions, Report, RetryOptions, Stored};
use crate::out::{Out, note};
use crate::text;
use source::Aside;

/// Keys and values of one batch, bytes. The client library splits a batch by node.
const BATCH_PAYLOAD_BYTES: usize = 1 << 20;
/// The pause before rows that were not stored are sent again.
const PAUSE: Duration = Duration::from_secs(1);

/// Store the records of a file: NDJSON, CSV or TSV
///
/// Rows with the same key are stored in the order of the file, so the last one wins. A
/// malformed or too large row ends the load (exit code 2 or 6): all rows before it are
/// stored and none after it. `--skip-bad` continues instead. You can repeat the load,
/// in whole or with `--from-line`, as long as no other client writes its keys.
///
/// When a node fails, kvctl resends the rows that were not stored. After --timeout,
/// when nodes have dropped the earlier attempt, it also sends rows of unknown outcome
/// again. So a row may take effect twice and overwrite another client's write to its
/// key in between. `--retry-for 0s` sends no row twice.
///
/// With --merge, rows replace what was there before the reservation, and no write or delete that
/// came after it. Then the first row of a key wins. Repeating the load is harmless: rows that
/// are there already count as superseded, too.
///
/// Formats:
///
///   ndjson  {"key":"a","value":"text"} per line. A value that is not a string, such as
///           {"status":200}, is stored as the bytes of its JSON, as they are in the
///           file. Bytes that are not UTF-8 come as "key_base64" or "value_base64".
///           "expires_at_ms" (Unix milliseconds) is optional.
///   csv     A header naming the columns key or key_base64, value or value_base64,
///           and optionally expires_at_ms, in any order; quoted as in RFC 4180.
///   tsv     The same columns separated by tabs; \t \n \r \\ stand for a tab, a line
///           feed, a carriage return and a backslash.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The file, or `-` for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format of the file. Default: by its extension (.ndjson, .jsonl, .json, .csv,
    /// .tsv, .tab).
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// The CSV or TSV file has no header, and two columns: key and value.
    #[arg(long)]
    no_header: bool,
    /// Start at this line, which an interrupted load printed.
    #[arg(long, value_name = "LINE", default_value_t = 1)]
    from_line: u64,
    /// Load into the open merge with this number, which `kvctl generation reserve --merge` printed.
    #[arg(long, value_name = "NUMBER")]
    merge: Option<u32>,
    /// Write malformed and too large rows to this file, each after a line with the
    /// reason, and continue. The file must be new or empty.
    #[arg(long, value_name = "FILE")]
    skip_bad: Option<PathBuf>,
    /// How long to retry rows, from their first failure. Then the load ends and prints the line
    /// to continue from: exit code 5, or 3 if every outcome is known.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    retry_for: Duration,
    /// Rows per request.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// Concurrent requests.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let len = input::len(&args.file)?;
    let format = input::format_of(&args.file, args.format)?;
    let bar = input::bar(len);
    let input = bar.wrap_read(input::open(&args.file)?);
    let mut client = global.client()?;
    let mut condition = None;
    if let Some(number) = args.merge {
        let merge = generation::open_merge(&client, number).await?;
        let named = global.namespace();
        if !["default", &merge.namespace].contains(&named) {
            return Err(Failure::Usage(format!(
                "merge {number} is into `{}`, not into `{named}`",
                merge.namespace
            )));
        }
        condition = Some(Condition::IfOlderThan(merge.version));
        client = client.namespace(merge.namespace);
    }
    let name = input::shown(&args.file);
    let aside = args.skip_bad.as_deref();
    let aside = aside.map(|path| Aside::create(path, &name)).transpose()?;
    let skipped = aside.as_ref().map(Aside::counter).unwrap_or_default();
    let rows = format.read(input, Naming::of(!args.no_header));
    let rows = source::spawn(rows, args.from_line, aside);

    let started = Instant::now();
    let store = move |rows| store(client.clone(), rows, condition);
    let on_progress = |report: &Report| bar.set_message(text::count(report.records));
    let stop = async {
        // Without a signal handler, Ctrl-C just ends the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let (report, end) = loading::load(rows, store, options(&args, global), stop, on_progress).await;
    bar.finish_and_clear();
    let done = Done {
        report,
        skipped: skipped.load(Ordering::Relaxed),
        skipped_to: args
            .skip_bad
            .as_deref()
            .map(input::shown)
            .unwrap_or_default(),
        elapsed: started.elapsed(),
        merge: args.merge,
    };
    done.print(end.is_none(), global, out)?;
    match end {
        None => Ok(()),
        Some(end) => {
            let how = done.how_to_go_on(args.from_line, &end);
            Err(failure_of(end, name).after(how))
        }
    }
}

fn options(args: &Args, global: &Global) -> LoadOptions {
    LoadOptions {
        limits: BatchLimits {
            rows: usize::from(args.batch),
            payload_bytes: BATCH_PAYLOAD_BYTES,
        },
        concurrency: usize::from(args.concurrency),
        retry: retry(args.retry_for, global),
    }
}

/// Retries rows that were not stored for this long, and prints the first failure.
pub(super) fn retry(retry_for: Duration, global: &Global) -> RetryOptions {
    RetryOptions {
        retry_for,
        attempt: global.timeout(),
        pause: PAUSE,
        on_wait: |failure| note(format_args!("{failure}; retrying")),
    }
}

/// Stores rows of different keys if the condition holds. Returns one result per row, in order.
pub(super) async fn store(
    client: Client,
    rows: Vec<Row>,
    condition: Option<Condition>,
) -> Vec<Stored> {
    let expiries: Vec<_> = rows.iter().map(|row| row.expires_at_ms).collect();
    let rows = rows.into_iter().map(|row| {
        let options = PutOptions {
            condition,
            expires_at_ms: row.expires_at_ms,
            ..PutOptions::default()
        };
        (row.key, row.value, options)
    });
    let results = match client.batch_put_with(rows).await {
        Ok(results) => results,
        Err(error) => vec![Err(error); expiries.len()],
    };
    let results = results.into_iter().zip(expiries);
    results
        .map(|(result, expires_at_ms)| stored(result, expires_at_ms))
        .collect()
}

/// Whether the row has expired is judged by the time of its version, not by the clock of this machine.
fn stored(result: Result<Version, Error>, expires_at_ms: Option<u64>) -> Stored {
    match result {
        Ok(version) if expires_at_ms.is_some_and(|at| at <= version.time.unix_ms()) => {
            Stored::Expired
        }
        Ok(_) => Stored::Yes,
        Err(error) if error.kind() == ErrorKind::ConditionNotMet => Stored::Superseded,
        Err(error) if error.maybe_applied() => Stored::Unknown(error.into()),
        Err(error) if error.is_retryable() => Stored::NotYet(error.into()),
        Err(error) => Stored::No(error.into()),
    }
}

fn failure_of(end: LoadEnd, path: String) -> Failure {
    match end {
        LoadEnd::Input(error) => Failure::Input { path, error },
        LoadEnd::Store(failure) | LoadEnd::Unknown(failure) => failure,
        LoadEnd::Interrupted => Failure::Interrupted,
    }
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Summary {
    complete: bool,
    records: u64,
    payload_bytes: u64,
    expired: u64,
    superseded: u64,
    skipped: u64,
    unknown: u64,
    failed: u64,
    retried: u64,
    seconds: f64,
    records_per_s: f64,
    resume_line: u64,
}

/// A load that has ended.
struct Done {
    report: Report,
    /// Bad rows that were set aside.
    skipped: u64,
    /// The file of the bad rows.
    skipped_to: String,
    elapsed: Duration,
    /// The merge that it was part of.
    merge: Option<u32>,
}

impl Done {
    fn summary(&self, complete: bool) -> Summary {
        let report = &self.report;
        // Avoid dividing by a time too short to measure.
        let seconds = self.elapsed.as_secs_f64().max(1e-6);
        Summary {
            complete,
            records: report.records,
            payload_bytes: report.payload_bytes,
            expired: report.expired,
            superseded: report.superseded,
            skipped: self.skipped,
            unknown: report.unknown,
            failed: report.failed,
            retried: report.retried,
            seconds,
            records_per_s: report.records as f64 / seconds,
            resume_line: report.resume_line,
        }
    }

    fn print(&self, complete: bool, global: &Global, out: &mut Out) -> Result<(), Failure> {
        match (global.json(), complete) {
            (true, _) => out.json(&self.summary(complete)),
            (false, true) => out.line(self.text()),
            // The failure already reports everything.
            (false, false) => Ok(()),
        }
    }

    fn text(&self) -> String {
        let stored = format!(
            "stored {} ({}) in {}: {} records/s",
            text::counted(self.report.records, "record"),
            text::bytes(self.report.payload_bytes),
            text::duration(self.elapsed),
            text::count(self.summary(true).records_per_s as u64),
        );
        let expired = (self.report.expired > 0).then(|| {
            let expired = text::count(self.report.expired);
            format!("{expired} had expired")
        });
        let superseded = (self.report.superseded > 0).then(|| {
            let superseded = text::count(self.report.superseded);
            format!("{superseded} superseded by newer versions")
        });
        let skipped = (self.skipped > 0).then(|| self.skipped_text());
        let open = self.merge.map(|number| {
            format!("merge {number} stays open: end it with `kvctl generation drop {number}`")
        });
        let parts: Vec<String> = [Some(stored), expired, superseded, skipped, open]
            .into_iter()
            .flatten()
            .collect();
        parts.join("; ")
    }

    fn skipped_text(&self) -> String {
        match self.skipped {
            1 => format!("skipped 1 bad row: see {}", self.skipped_to),
            some => format!(
                "skipped {} bad rows: see {}",
                text::count(some),
                self.skipped_to
            ),
        }
    }

    fn how_to_go_on(&self, from_line: u64, end: &LoadEnd) -> String {
        let report = &self.report;
        if report.records + report.superseded + report.unknown + report.failed + self.skipped == 0
            && report.resume_line <= from_line
        {
            return if from_line <= 1 {
                "stored nothing".to_owned()
            } else {
                format!("stored nothing: rerun with --from-line {from_line}")
            };
        }
        let some =
            |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", text::count(count)));
        let stored = match (report.records, report.unknown) {
            (0, 0) => Some("stored nothing".to_owned()),
            (0, _) => None,
            (count, _) => Some(format!("stored {}", text::counted(count, "record"))),
        };
        let counts = [
            stored,
            some(report.superseded, "superseded by newer versions"),
            some(report.unknown, "may or may not be stored"),
            some(report.failed, "not stored"),
            (self.skipped > 0).then(|| self.skipped_text()),
        ];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        let line = report.resume_line.max(from_line);
        let how = match end {
            LoadEnd::Input(ReadError::Bad(row)) if row.problem.is_of_one_row() => {
                "correct it, or pass --skip-bad FILE, and rerun"
            }
            _ => "rerun",
        };
        format!(
            "{}; line {line} is the first row left: {how} with --from-line {line}",
            counts.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::assert_documented;

    const REPORT: Report = Report {
        records: 1_234,
        payload_bytes: 162_888,
        expired: 2,
        superseded: 0,
        unknown: 0,
        failed: 0,
        retried: 0,
        resume_line: 1_237,
    };

    fn done(report: Report, skipped: u64) -> Done {
        Done {
            report,
            skipped,
            skipped_to: "bad.csv".to_owned(),
            elapsed: Duration::from_millis(500),
            merge: None,
        }
    }

    #[test]
    fn the_summary_says_how_much_how_fast_and_what_was_left_out() {
        assert_eq!(
            done(REPORT, 0).text(),
            "stored 1,234 records (159 KiB) in 500 ms: 2,468 records/s; 2 had expired"
        );
        let text = done(REPORT, 1).text();
        assert!(text.ends_with("; skipped 1 bad row: see bad.csv"), "{text}");
    }

    #[test]
    fn the_json_is_documented() {
        assert_documented(&done(REPORT, 3).summary(true));
    }

    #[test]
    fn a_load_that_stopped_says_how_to_go_on() {
        let stopped = Report {
            unknown: 3,
            failed: 1,
            ..REPORT
        };
        assert_eq!(
            done(stopped, 2).how_to_go_on(1, &LoadEnd::Interrupted),
            "stored 1,234 records, 3 may or may not be stored, 1 not stored, skipped 2 bad rows: see bad.csv; \
             line 1237 is the first row left: rerun with --from-line 1237"
        );
        let nothing = done(Report::default(), 0);
        let how = nothing.how_to_go_on(40, &LoadEnd::Interrupted);
        assert_eq!(how, "stored nothing: rerun with --from-line 40");
        let at_once = nothing.how_to_go_on(1, &LoadEnd::Interrupted);
        assert_eq!(at_once, "stored nothing");
    }
}
