//! `kvctl bench`: how fast the cluster answers, as seen from here.
//!
//! A closed loop: each of `--concurrency` workers sends its next request when the
//! last one was answered. When the cluster stalls, the workers stop asking, so that
//! the latencies are those of requests that were sent, not of those that would have
//! been; compare runs of equal concurrency only.
//!
//! With `--rate` an open loop: requests are due at even times, and a latency counts from when its
//! request was due, also if all workers were busy then. So a stall shows in full.

mod report;
mod workload;
mod zipf;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use torc_client::{Client, Error};

use crate::cli::Global;
use crate::failure::Failure;
use crate::out::{Out, note};
use report::{Report, Tally};
use workload::{Mix, Popularity, Request, Workload};
use zipf::Zipf;

/// Measure how fast the cluster answers: rate, latencies, errors by kind.
///
/// Works on keys `bench-000000000000` and up of the namespace: stores them, then gets
/// and puts them at random, as many requests under way as `--concurrency` says. The
/// keys stay unless `--clean-up` is given. Exit code 0 if any operation succeeded.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Gets and puts altogether; a batch counts as many as it holds. [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Begin no request after this time, for example 30s or 10m; without --operations their number has no
    /// bound.
    #[arg(long, value_name = "TIME", value_parser = crate::args::positive_duration)]
    duration: Option<Duration>,
    /// Operations a second, sent at even times whether or not earlier ones were answered, as far as
    /// --concurrency allows. Latencies then count from when a request was due.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: Option<u64>,
    /// How often each key is asked for.
    #[arg(long, value_enum, value_name = "LAW", default_value_t = Law::Uniform)]
    popularity: Law,
    /// Requests under way at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// Length of the values, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    value_size: u32,
    /// Different keys.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    keys: u64,
    /// Gets to puts.
    #[arg(long, value_name = "GETS/PUTS", default_value = "50/50")]
    mix: Mix,
    /// Operations in one request; 1 sends plain gets and puts.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Threads to send from; one is enough for most machines.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Which sequence of keys.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Do not store the keys first; gets may then find nothing.
    #[arg(long)]
    no_prepare: bool,
    /// Delete the keys afterwards.
    #[arg(long)]
    clean_up: bool,
}

/// Exponent of YCSB's Zipf distribution.
const EXPONENT: f64 = 0.99;
const OPERATIONS: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Law {
    /// All alike.
    Uniform,
    /// By Zipf's law with exponent 0.99, as in YCSB: one key of a million gets 7 % of all.
    Zipf,
}

/// When requests are sent.
#[derive(Debug, Clone, Copy)]
struct Pace {
    started: Instant,
    duration: Option<Duration>,
    /// Requests a second.
    rate: Option<f64>,
}

impl Pace {
    /// When the request of a number is due; now where only answers are waited for.
    fn due(&self, number: u64) -> Instant {
        match self.rate {
            Some(rate) => self.started + Duration::from_secs_f64(number as f64 / rate),
            None => Instant::now(),
        }
    }

    /// Whether a request that is due then is still sent.
    fn sends(&self, due: Instant) -> bool {
        let is_in_time = |duration| due.saturating_duration_since(self.started) < duration;
        self.duration.is_none_or(is_in_time)
            && self
                .duration
                .is_none_or(|duration| self.started.elapsed() < duration)
    }
}

impl Args {
    fn operations(&self) -> u64 {
        let unbounded = self.duration.map(|_| u64::MAX / 2);
        self.operations.or(unbounded).unwrap_or(OPERATIONS)
    }

    pub(crate) fn threads(&self) -> usize {
        usize::from(self.threads)
    }
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let workload = Arc::new(Workload {
        seed: args.seed,
        keys: args.keys,
        popularity: match args.popularity {
            Law::Uniform => Popularity::Uniform,
            Law::Zipf => Popularity::Zipf(Zipf::new(args.keys, EXPONENT)),
        },
        mix: args.mix,
        operations: args.operations(),
        batch: args.batch,
        value: workload::value(args.seed, args.value_size as usize),
    });
    // Whoever cannot connect should be told so, not that every operation failed.
    client.topology().await?;
    if !args.no_prepare && workload.mix.gets > 0 {
        prepare(&client, &workload).await?;
    }
    let bar = bar(args.duration.is_none().then_some(workload.operations));
    let pace = Pace {
        started: Instant::now(),
        duration: args.duration,
        rate: args.rate.map(|rate| rate as f64 / f64::from(args.batch)),
    };
    let (tally, first_error) = measure(&client, &workload, args.concurrency, pace, &bar).await;
    let elapsed = pace.started.elapsed();
    bar.finish_and_clear();
    let report = Report::new(&workload, args.concurrency, elapsed, &tally);
    if global.json() {
        out.json(&report)?;
    } else {
        out.line(report.describe())?;
    }
    if args.clean_up {
        clean_up(&client, &workload).await?;
    }
    match first_error {
        Some(error) if report.nothing_succeeded() => {
            Err(Failure::from(error).after("every operation failed"))
        }
        _ => Ok(()),
    }
}

/// Sends all requests; what came of them, and the first error.
async fn measure(
    client: &Client,
    workload: &Arc<Workload>,
    concurrency: u32,
    pace: Pace,
    bar: &ProgressBar,
) -> (Tally, Option<Error>) {
    let next = Arc::new(AtomicU64::new(0));
    // One for all: its histograms take hundreds of kilobytes, and there may be thousands of workers.
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut workers = JoinSet::new();
    for _ in 0..u64::from(concurrency).min(workload.requests()) {
        let (client, workload) = (client.clone(), Arc::clone(workload));
        let (next, bar, tally) = (Arc::clone(&next), bar.clone(), Arc::clone(&tally));
        workers.spawn(async move {
            let mut first_error = None;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let due = pace.due(number);
                let request = workload.request(number).filter(|_| pace.sends(due));
                let Some(request) = request else {
                    break;
                };
                if pace.rate.is_some() {
                    tokio::time::sleep_until(due.into()).await;
                }
                let operations = request.operations();
                let error = send(&client, request, due, &tally).await;
                first_error = first_error.or(error);
                bar.inc(operations);
            }
            first_error
        });
    }
    let mut first_error = None;
    while let Some(done) = workers.join_next().await {
        match done {
            Ok(error) => first_error = first_error.or(error),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    let tally = std::mem::take(&mut *tally.lock());
    (tally, first_error)
}

/// Sends a request and notes what came of it, and how long that took since it was due; its first error.
async fn send(
    client: &Client,
    request: Request,
    sent: Instant,
    tally: &Mutex<Tally>,
) -> Option<Error> {
    match request {
        Request::Get(key) => {
            let result = client.get(key).await.map(|found| found.is_some());
            let took = sent.elapsed();
            let mut tally = tally.lock();
            tally.gets.took(took);
            tally.got(result)
        }
        Request::Put(key, value) => {
            let result = client.put(key, value).await.map(drop);
            let took = sent.elapsed();
            let mut tally = tally.lock();
            tally.puts.took(took);
            tally.put(result)
        }
        Request::BatchGet(keys) => {
            let count = keys.len();
            let results = client.batch_get(keys).await;
            let took = sent.elapsed();
            let mut tally = tally.lock();
            tally.gets.took(took);
            let each = each(results, count).map(|result| result.map(|found| found.is_some()));
            each.filter_map(|result| tally.got(result)).next_and_rest()
        }
        Request::BatchPut(records) => {
            let count = records.len();
            let results = client.batch_put(records).await;
            let took = sent.elapsed();
            let mut tally = tally.lock();
            tally.puts.took(took);
            let each = each(results, count).map(|result| result.map(drop));
            each.filter_map(|result| tally.put(result)).next_and_rest()
        }
    }
}

/// The results of a batch; if it failed as a whole, that failure for each.
fn each<T>(
    results: Result<Vec<Result<T, Error>>, Error>,
    count: usize,
) -> impl Iterator<Item = Result<T, Error>> {
    let (results, failure) = match results {
        Ok(results) => (results, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let failed = failure
        .into_iter()
        .flat_map(move |error| std::iter::repeat_with(move || Err(error.clone())).take(count));
    results.into_iter().chain(failed)
}

/// Takes the first item and runs through the rest for their effects.
trait NextAndRest: Iterator + Sized {
    fn next_and_rest(mut self) -> Option<Self::Item> {
        let first = self.next();
        self.for_each(drop);
        first
    }
}

impl<I: Iterator> NextAndRest for I {}

/// Stores every key once.
async fn prepare(client: &Client, workload: &Workload) -> Result<(), Failure> {
    const BATCH: u64 = 500;
    const UNDER_WAY: usize = 8;
    note(format_args!(
        "storing {} keys first",
        crate::text::count(workload.keys)
    ));
    let batches = (0..workload.keys.div_ceil(BATCH)).map(|batch| {
        let keys = batch * BATCH..((batch + 1) * BATCH).min(workload.keys);
        let records: Vec<_> = keys
            .map(|key| (workload::key(key), workload.value.clone()))
            .collect();
        async move {
            client
                .batch_put(records)
                .await?
                .into_iter()
                .collect::<Result<Vec<_>, _>>()
        }
    });
    let mut batches = futures::stream::iter(batches).buffer_unordered(UNDER_WAY);
    while let Some(stored) = batches.next().await {
        stored.map_err(|error| Failure::from(error).after("nothing was measured"))?;
    }
    Ok(())
}

/// Deletes every key.
async fn clean_up(client: &Client, workload: &Workload) -> Result<(), Failure> {
    const UNDER_WAY: usize = 256;
    let deletes = (0..workload.keys).map(|key| client.delete(workload::key(key)));
    let mut deletes = futures::stream::iter(deletes).buffer_unordered(UNDER_WAY);
    while let Some(deleted) = deletes.next().await {
        deleted
            .map_err(|error| Failure::from(error).after("some keys `bench-…` are still there"))?;
    }
    Ok(())
}

/// A bar for so many operations; nothing where their number is not known.
fn bar(operations: Option<u64>) -> ProgressBar {
    use std::io::IsTerminal as _;
    let Some(operations) = operations.filter(|_| std::io::stderr().is_terminal()) else {
        return ProgressBar::hidden();
    };
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {per_sec}  {eta} left");
    ProgressBar::new(operations).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
