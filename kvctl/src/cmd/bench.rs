//! `kvctl bench`: measures the cluster's speed as this client sees it.
//!
//! A closed loop: each of `--concurrency` workers sends its next request when the last
//! one was answered. When the cluster stalls, so do the workers, and latencies omit the
//! requests that they would have sent meanwhile (coordinated omission). Compare only
//! runs of equal concurrency.
//!
//! With `--rate`, an open loop: requests are due at even intervals, and a latency counts from
//! when its request was due, even if all workers were busy then. So latencies show a stall in
//! full.

mod chart;
mod drive;
mod keys;
mod report;
mod schedule;
mod tally;
mod workload;
mod ycsb;
mod zipf;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use torc_client::{Client, Error, ErrorKind};

use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};
use drive::Driver;
use keys::{Added, Law, Popularity};
use report::{Report, Run};
use schedule::Schedule;
use tally::Tally;
use workload::{Mix, Workload};
use ycsb::Core;

/// Measure the cluster's throughput, latencies and errors.
///
/// Stores keys `bench-000000000000` and up in the namespace, then gets and puts them at
/// random, `--concurrency` requests at a time. Keeps the keys unless you pass
/// `--clean-up`. Exit code 0 if any operation succeeded.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// YCSB core workload to run instead of --mix.
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["mix", "batch"])]
    workload: Option<Core>,
    /// Operations per run; each operation of a batch counts. [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Start no request after this time, for example 30s or 10m. Without --operations, their number
    /// is then unlimited. With several rates, this is the time of each run.
    #[arg(long, value_name = "TIME", value_parser = crate::args::positive_duration)]
    duration: Option<Duration>,
    /// Operations per second, sent at even intervals without waiting for earlier answers, up to
    /// --concurrency at a time. Latencies then count from the time when a request was due. Several
    /// rates, such as 1000,2000,4000, run one after the other; each gets a report.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: Vec<u64>,
    /// Distribution of the requests over keys. [default: uniform, or as the workload says]
    #[arg(long, value_enum, value_name = "LAW")]
    popularity: Option<Law>,
    /// Concurrent requests.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// Length of the values, bytes. [default: 100, or 1000 with --workload]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    value_size: Option<u32>,
    /// Number of keys.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    keys: u64,
    /// Ratio of gets to puts.
    #[arg(long, value_name = "GETS/PUTS", default_value = "50/50")]
    mix: Mix,
    /// Operations per request; 1 sends plain gets and puts.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Client threads; one usually suffices.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Seed of the sequence of keys.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// SVG file to draw: latency by percentile, or latency against load with several rates.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Do not store the keys first. Gets may then find nothing.
    #[arg(long)]
    no_prepare: bool,
    /// Delete the keys afterwards.
    #[arg(long)]
    clean_up: bool,
}

const OPERATIONS: u64 = 100_000;
const VALUE_BYTES: u32 = 100;

impl Args {
    fn operations(&self) -> u64 {
        let unbounded = self.duration.map(|_| u64::MAX / 2);
        self.operations.or(unbounded).unwrap_or(OPERATIONS)
    }

    fn workload(&self) -> Workload {
        let law = self.popularity.or(self.workload.map(Core::law));
        let core_bytes = self.workload.map(|_| ycsb::VALUE_BYTES);
        let value_bytes = self.value_size.or(core_bytes).unwrap_or(VALUE_BYTES);
        Workload {
            name: self.workload.map(Core::name),
            seed: self.seed,
            keys: self.keys,
            popularity: Popularity::new(law.unwrap_or(Law::Uniform), self.keys),
            mix: self.workload.map_or(self.mix, Core::mix),
            operations: self.operations(),
            batch: self.batch,
            value: workload::value(self.seed, value_bytes as usize),
        }
    }

    /// The rates to run at, one after the other; `None`: as fast as answers come.
    fn rates(&self) -> Vec<Option<u64>> {
        match self.rate.as_slice() {
            [] => vec![None],
            rates => rates.iter().copied().map(Some).collect(),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        usize::from(self.threads)
    }
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let workload = Arc::new(args.workload());
    // Report a failure to connect as such, not as the failure of every operation.
    client.topology().await?;
    if !args.no_prepare && workload.mix.reads() {
        prepare(&client, &workload).await?;
    }
    let added = Arc::new(Mutex::new(Added::behind(workload.keys)));
    let (mut runs, mut failed) = (Vec::new(), None);
    for rate in args.rates() {
        let (run, first_error) = measure(&client, &workload, &added, &args, rate).await;
        let report = Report::new(&workload, args.concurrency, &run);
        print(&report, !runs.is_empty(), global, out)?;
        runs.push(run);
        if report.nothing_succeeded() {
            failed = Some(first_error.map_or_else(
                || Failure::Usage("no request began within --duration: allow more time".to_owned()),
                |error| Failure::from(error).after("every operation failed"),
            ));
            break;
        }
        if let Some(error) = first_error {
            note(format_args!("the first operation that failed: {error}"));
        }
    }
    let drawn = args.plot.as_ref().map_or(Ok(()), |path| draw(&runs, path));
    if args.clean_up {
        let keys = added.lock().taken();
        clean_up(&client, keys).await?;
    }
    drawn?;
    failed.map_or(Ok(()), Err)
}

fn print(report: &Report, is_next: bool, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if global.json() {
        out.json(report)?;
    } else {
        let gap = if is_next { "\n" } else { "" };
        out.line(format_args!("{gap}{}", report.describe()))?;
    }
    out.flush()
}

/// Sends all requests. Returns their results and the first error.
async fn measure(
    client: &Client,
    workload: &Arc<Workload>,
    added: &Arc<Mutex<Added>>,
    args: &Args,
    rate: Option<u64>,
) -> (Run, Option<Error>) {
    let bar = bar(args.duration.is_none().then_some(workload.operations));
    let driver = Driver {
        client: client.clone(),
        workload: Arc::clone(workload),
        schedule: Schedule {
            duration: args.duration,
            rate: rate.map(|rate| rate as f64 / f64::from(args.batch)),
        },
        bar: bar.clone(),
        added: Arc::clone(added),
        next: AtomicU64::new(0),
        tally: Mutex::new(Tally::default()),
        started: Instant::now(),
    };
    let done = driver.run(args.concurrency, rate).await;
    bar.finish_and_clear();
    done
}

fn draw(runs: &[Run], path: &Path) -> Result<(), Failure> {
    let drawn = chart::plot(runs).to_string();
    std::fs::write(path, drawn).map_err(|source| Failure::file("write", path, source))
}

/// Stores every key once.
async fn prepare(client: &Client, workload: &Workload) -> Result<(), Failure> {
    const BATCH: u64 = 500;
    const UNDER_WAY: usize = 8;
    note(format_args!(
        "storing {} first",
        crate::text::counted(workload.keys, "key")
    ));
    let batches = (0..workload.keys.div_ceil(BATCH)).map(|batch| {
        let keys = batch * BATCH..((batch + 1) * BATCH).min(workload.keys);
        known(move || {
            let records = keys
                .clone()
                .map(|key| (workload::key(key), workload.value.clone()));
            let storing = client.batch_put(records);
            async { storing.await?.into_iter().collect::<Result<Vec<_>, _>>() }
        })
    });
    let mut batches = futures::stream::iter(batches).buffer_unordered(UNDER_WAY);
    while let Some(stored) = batches.next().await {
        stored.map_err(|error| Failure::from(error).after("nothing was measured"))?;
    }
    Ok(())
}

/// Deletes every key.
async fn clean_up(client: &Client, keys: u64) -> Result<(), Failure> {
    const UNDER_WAY: usize = 256;
    let deletes = (0..keys).map(|key| known(move || client.delete(workload::key(key))));
    let mut deletes = futures::stream::iter(deletes).buffer_unordered(UNDER_WAY);
    while let Some(deleted) = deletes.next().await {
        deleted
            .map_err(|error| Failure::from(error).after("some keys `bench-…` are still there"))?;
    }
    Ok(())
}

/// Repeats writes once if their outcome is unknown: only the bench writes its keys.
async fn known<T, W: Future<Output = Result<T, Error>>>(write: impl Fn() -> W) -> Result<T, Error> {
    match write().await {
        Err(error) if error.kind() == ErrorKind::OutcomeUnknown => write().await,
        done => done,
    }
}

/// A progress bar; hidden if the number of operations is unknown.
fn bar(operations: Option<u64>) -> ProgressBar {
    use std::io::IsTerminal as _;
    let Some(operations) = operations.filter(|_| std::io::stderr().is_terminal()) else {
        return ProgressBar::hidden();
    };
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {per_sec}  {eta} left");
    ProgressBar::new(operations).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
