//! A fourth node joins three serving nodes: duration, moved data, and the effect on clients.
//!
//! Three kvd processes are loaded, one is killed and restarted, then a fourth joins under steady
//! traffic of gets and puts. The peer is a plain copy of the same number of bytes over a loopback
//! connection: the cost of the transfer alone. All processes and the client share the machine's
//! cores.

mod bulk;
mod cluster;
mod copy;
mod traffic;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use torc_client::{Client, Transition};

use crate::kvd::{self, REPLICAS_NOTE, Replicas};
use crate::options::Options;
use crate::report::{Metric, Prediction, Report};
use cluster::Cluster;
use traffic::{Kind, Phase, Traffic};

const MIB: f64 = 1_048_576.0;
const RATE: Metric = Metric::new("rate", "records/s");
const TIME: Metric = Metric::new("time", "s");
const BANDWIDTH: Metric = Metric::new("rate", "MiB/s");
const RATIO: &str = "ratio";

const PREDICTIONS: &[Prediction] = &[
    Prediction {
        case: "join",
        metric: "moved_to_minimum",
        expected: "at most 1.05",
    },
    Prediction {
        case: "join",
        metric: "moved_to_planned_bytes",
        expected: "1, and what was put meanwhile",
    },
    Prediction {
        case: bulk::CASE,
        metric: "copying_to_copy_to_disk",
        expected: "at least 0.8",
    },
    Prediction {
        case: "gets",
        metric: "failed",
        expected: "none",
    },
    Prediction {
        case: "puts",
        metric: "failed",
        expected: "none",
    },
];

/// What to measure of joins.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Args {
    /// Instead: one node of 12,000,000 sealed records, and a second one that takes all of
    /// them, 2 GiB of slices; half of them with one replica
    #[arg(long)]
    bulk: bool,
}

/// Measures joins.
///
/// # Errors
/// kvd does not build, start or respond; a record is lost.
pub(crate) fn run(args: Args, options: &Options) -> Result<Report> {
    let program = kvd::program(options)?;
    let mut report = Report::new("join", PREDICTIONS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    if args.bulk {
        for _ in 0..options.rounds() {
            for replicas in Replicas::ALL {
                runtime.block_on(bulk::round(&mut report, options, &program, replicas))?;
            }
        }
        report.note(REPLICAS_NOTE);
        for note in bulk::NOTES {
            report.note(*note);
        }
        return Ok(report);
    }
    for _ in 0..options.rounds() {
        for replicas in Replicas::ALL {
            let bytes = runtime.block_on(round(&mut report, options, &program, replicas))?;
            if replicas == Replicas::Default {
                copy::measure(&mut report, "join", bytes, &options.scratch()?)?;
            }
        }
    }
    report.note(REPLICAS_NOTE);
    report.note(format!(
        "traffic: {} gets and {} puts a second, each timed from its sending; every get is compared with what was stored",
        traffic::GETS_PER_S,
        traffic::PUTS_PER_S
    ));
    report.note("tcp copy: from memory to memory; tcp copy to disk: into a file, with an fdatasync at the end");
    Ok(report)
}

/// Destination of the figures of one cluster.
struct Figures<'a> {
    report: &'a mut Report,
    subject: &'static str,
}

impl Figures<'_> {
    fn add(&mut self, case: &str, metric: Metric, value: f64) {
        self.report.add(case, metric, self.subject, value);
    }
}

/// Runs one cluster; returns the bytes that had to move.
async fn round(
    report: &mut Report,
    options: &Options,
    program: &std::path::Path,
    replicas: Replicas,
) -> Result<u64> {
    let records = options.records_or(1_000_000);
    let scratch = options.scratch()?;
    let mut cluster = Cluster::found(program, scratch.path(), replicas).await?;
    let client = cluster.client().await?;
    let report = &mut Figures {
        report,
        subject: replicas.subject(),
    };
    load(report, &cluster, &client, records).await?;
    let restarted = cluster.restart_one().await?.as_secs_f64();
    report.add("restart after kill -9", TIME, restarted);
    cluster.all_ready(&client).await?;
    let bytes = join(report, options, &mut cluster, &client, records).await?;
    kvd::check(&client, records).await?;
    Ok(bytes)
}

async fn load(
    report: &mut Figures<'_>,
    cluster: &Cluster,
    client: &Client,
    records: u64,
) -> Result<()> {
    let empty = cluster.resident_bytes()?;
    let started = Instant::now();
    kvd::load(client, records).await?;
    let took = started.elapsed();
    report.add("load", RATE, records as f64 / took.as_secs_f64());
    let full = cluster.resident_bytes()?;
    let per_node = full as f64 / cluster::FOUNDERS as f64 / MIB;
    report.add("load", Metric::new("ram_per_node", "MiB"), per_node);
    let per_record = full.saturating_sub(empty) as f64 / records as f64;
    report.add("load", Metric::new("ram_per_record", "bytes"), per_record);
    Ok(())
}

async fn join(
    report: &mut Figures<'_>,
    options: &Options,
    cluster: &mut Cluster,
    client: &Client,
    records: u64,
) -> Result<u64> {
    let address = cluster.spare().await?;
    let plan = client.plan_join(&address).await?;
    let traffic = Traffic::start(client, records)?;
    let quiet = Duration::from_secs(if options.quick { 1 } else { 10 });
    tokio::time::sleep(quiet).await;
    traffic.enter(Phase::During);
    let started = Instant::now();
    let change = client.join(&address, None).await?;
    let number = change.transition.context("nothing to join")?;
    let done = cluster::finished(client, number).await?;
    let took = started.elapsed();
    let seen = traffic.stop().await?;
    tell_of_join(report, took, &done, plan.bytes, plan.minimum_moved);
    for kind in [Kind::Get, Kind::Put] {
        tell_of_traffic(report, kind, &seen);
    }
    if let Some(failure) = seen.first_failure() {
        report
            .report
            .note(format!("a request failed during the join: {failure}"));
    }
    Ok(plan.bytes)
}

fn tell_of_join(
    report: &mut Figures<'_>,
    took: Duration,
    done: &Transition,
    planned: u64,
    minimum: f64,
) {
    let seconds = took.as_secs_f64();
    let moved = done.bytes_moved as f64;
    report.add("join", TIME, seconds);
    report.add("join", BANDWIDTH, moved / MIB / seconds);
    report.add("join", Metric::new("moved", "MiB"), moved / MIB);
    let to_planned = moved / planned.max(1) as f64;
    report.add(
        "join",
        Metric::new("moved_to_planned_bytes", RATIO),
        to_planned,
    );
    let to_minimum = f64::from(done.partitions_total) / minimum;
    report.add("join", Metric::new("moved_to_minimum", RATIO), to_minimum);
}

fn tell_of_traffic(report: &mut Figures<'_>, kind: Kind, seen: &traffic::Seen) {
    let case = kind.name();
    let (before, during) = (seen.of(kind, Phase::Before), seen.of(kind, Phase::During));
    for (quantile, names) in [
        (0.5, ["p50_before", "p50_during"]),
        (0.99, ["p99_before", "p99_during"]),
        (1.0, ["slowest_before", "slowest_during"]),
    ] {
        for (name, latencies) in names.into_iter().zip([before, during]) {
            let ms = latencies.latencies_ns.value_at_quantile(quantile) as f64 / 1e6;
            report.add(case, Metric::new(name, "ms"), ms);
        }
    }
    report.add(
        case,
        Metric::new("answered", "requests"),
        during.latencies_ns.len() as f64,
    );
    let failed = before.failed + during.failed;
    report.add(case, Metric::new("failed", "requests"), failed as f64);
}
