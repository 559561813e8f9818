//! The rate at which a data set is stored: by `kvctl load` of a file, and by the client library.
//!
//! Every load uses a newly founded cluster; all processes share the machine. Three nodes with three
//! replicas of each key are compared with clusters with one replica, in the same round. If the
//! processors are the limit, the processor times of nodes and loader explain the rate.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use torc_client::Client;
use torc_testkit::Kvd;

use super::SERVER;
use crate::kvd::{self, REPLICAS_NOTE, Replicas};
use crate::options::Options;
use crate::process;
use crate::report::{Metric, Prediction, Report, TORC};

const RATE: Metric = Metric::new("rate", "records/s");
const TO_ONE: Metric = Metric::new("rate_to_one_replica", "ratio");
const LOADER: Metric = Metric::new("loader_cpu", "us/key");

/// The program that loads.
#[derive(Debug, Clone, Copy)]
enum Loader {
    Kvctl,
    Library,
}

impl Loader {
    const ALL: [Self; 2] = [Self::Kvctl, Self::Library];

    const fn name(self) -> &'static str {
        match self {
            Self::Kvctl => "kvctl load",
            Self::Library => "client library",
        }
    }
}

/// A subject's name, nodes and replicas; the first is compared with each of the others.
const SUBJECTS: [(&str, usize, Replicas); 3] = [
    (TORC, 3, Replicas::Default),
    ("3 nodes, 1 replica", 3, Replicas::One),
    ("1 node, 1 replica", 1, Replicas::One),
];

const PREDICTIONS: &[Prediction] = &[
    Prediction {
        case: Loader::Kvctl.name(),
        metric: RATE.name,
        expected: "at least 60,000",
    },
    Prediction {
        case: Loader::Library.name(),
        metric: RATE.name,
        expected: "at least 60,000",
    },
    Prediction {
        case: Loader::Kvctl.name(),
        metric: TO_ONE.name,
        expected: "at least 0.3",
    },
    Prediction {
        case: Loader::Library.name(),
        metric: TO_ONE.name,
        expected: "at least 0.3",
    },
];

/// What to leave out.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Args {
    /// Only cases with this in their names: `kvctl load` or `client library`
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Measures loads.
///
/// # Errors
/// kvd or kvctl does not build or start; a record is not stored.
pub(crate) fn run(args: &Args, options: &Options) -> Result<Report> {
    let records = options.records_or(1_000_000);
    let scratch = options.scratch()?;
    let suite = Suite {
        kvd: kvd::program(options)?,
        kvctl: kvd::kvctl(options)?,
        file: scratch.path().join("records.ndjson"),
        records,
    };
    kvd::write_file(&suite.file, records)?;
    let mut report = Report::new("load", PREDICTIONS);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let outcome = runtime.block_on(async {
        for _ in 0..options.rounds() {
            let loaders = Loader::ALL.into_iter();
            for loader in loaders.filter(|loader| loader.name().contains(&args.only)) {
                suite.round(&mut report, options, loader).await?;
            }
        }
        anyhow::Ok(())
    });
    report.ended(outcome);
    report.note(format!("{REPLICAS_NOTE}, on three nodes"));
    report.note("server_cpu: of all nodes together; rate_to_one_replica: of torc, in the column of what it is compared with, in the same round");
    report.note("a record is acknowledged when a majority of its replicas has synced it; nodes flush meanwhile");
    Ok(report)
}

struct Suite {
    kvd: PathBuf,
    kvctl: PathBuf,
    file: PathBuf,
    records: u64,
}

impl Suite {
    async fn round(&self, report: &mut Report, options: &Options, loader: Loader) -> Result<()> {
        let mut rates = Vec::new();
        for (name, count, replicas) in SUBJECTS {
            let scratch = options.scratch()?;
            let nodes = self.found(scratch.path(), count, replicas).await?;
            let before = (cpu_time(&nodes)?, process::cpu_time_with_children()?);
            let rate = self.load(loader, &nodes).await?;
            let after = (cpu_time(&nodes)?, process::cpu_time_with_children()?);
            let cost = |before, after: Duration| {
                after.saturating_sub(before).as_secs_f64() * 1e6 / self.records as f64
            };
            report.add(loader.name(), RATE, name, rate);
            report.add(loader.name(), SERVER, name, cost(before.0, after.0));
            // No node has ended meanwhile, so the difference is the loader's.
            report.add(loader.name(), LOADER, name, cost(before.1, after.1));
            rates.push((name, rate));
        }
        let (_, ours) = *rates.first().context("no subject")?;
        for (name, rate) in rates.into_iter().skip(1) {
            report.add(loader.name(), TO_ONE, name, ours / rate);
        }
        Ok(())
    }

    async fn found(&self, dir: &Path, count: usize, replicas: Replicas) -> Result<Vec<Kvd>> {
        kvd::found(&self.kvd, dir, count, &replicas.settings()).await
    }

    /// Records per second.
    async fn load(&self, loader: Loader, nodes: &[Kvd]) -> Result<f64> {
        match loader {
            Loader::Kvctl => kvd::load_file(&self.kvctl, nodes, &self.file, self.records),
            Loader::Library => {
                let client = Client::builder().endpoints(nodes.iter().map(Kvd::endpoint));
                let client = client.deadline(Duration::from_secs(60)).connect().await?;
                let started = Instant::now();
                kvd::load(&client, self.records).await?;
                Ok(self.records as f64 / started.elapsed().as_secs_f64())
            }
        }
    }
}

fn cpu_time(nodes: &[Kvd]) -> Result<Duration> {
    nodes
        .iter()
        .map(|node| process::cpu_time(node.pid()?))
        .sum()
}
