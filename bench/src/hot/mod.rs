//! Balance of a skewed workload's gets over the nodes, with and without the client's relief of hot
//! keys.
//!
//! Three and five kvd processes with three replicas of each key; 64 tasks of one client get keys at
//! random, key i with a probability that falls with i^-1.2. The report shows the nodes' counts of
//! answered gets. All processes and the client share the machine's cores, so the rate says little.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;
use torc_client::Client;
use torc_testkit::Kvd;

use crate::kvd::{self, Readings, load};
use crate::options::Options;
use crate::records::{self, Random};
use crate::report::{Metric, Prediction, Report, TORC};
use crate::sketch::streams::Zipf;

const BUSIEST: Metric = Metric::new("busiest_node", "%");
const PEAK: Metric = Metric::new("peak_to_mean", "ratio");
const REQUESTS: Metric = Metric::new("requests_to_gets", "ratio");
const RATE: Metric = Metric::new("rate", "gets/s");

const PREDICTIONS: &[Prediction] = &[
    Prediction {
        case: "3 nodes, mitigated",
        metric: "peak_to_mean",
        expected: "at most 1.1",
    },
    Prediction {
        case: "5 nodes, mitigated",
        metric: "peak_to_mean",
        expected: "at most 1.3",
    },
];

const EXPONENT: f64 = 1.2;
const TASKS: u64 = 64;
/// How long nodes count before they report hot keys.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time in which all nodes report and the client learns of it.
const WARMING: Duration = Duration::from_secs(6);

/// What to measure of hot keys.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Args {
    /// Gets that are counted in each case
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    gets: u64,
}

/// Measures hot keys.
///
/// # Errors
/// kvd does not build, start or respond.
pub(crate) fn run(args: Args, options: &Options) -> Result<Report> {
    let program = kvd::program(options)?;
    let mut report = Report::new("hot", PREDICTIONS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    for round in 0..options.rounds() {
        for nodes in [3, 5] {
            let measuring = measure(
                &mut report,
                args,
                options,
                &program,
                nodes,
                u64::from(round),
            );
            runtime.block_on(measuring)?;
        }
    }
    report.note("busiest_node: share of the gets that the busiest node answers; peak_to_mean: that over an even share");
    report.note("requests_to_gets: below 1, because gets that wait for a hot key share requests");
    Ok(report)
}

async fn measure(
    report: &mut Report,
    args: Args,
    options: &Options,
    program: &Path,
    count: usize,
    round: u64,
) -> Result<()> {
    let scratch = options.scratch()?;
    let interval = format!("--hot-keys-interval-s={}", INTERVAL.as_secs());
    let nodes = kvd::found(program, scratch.path(), count, &[interval]).await?;
    let keys = options.records_or(100_000);
    load(&client(&nodes, true).await?, keys).await?;
    for (mitigated, name) in [(false, "plain"), (true, "mitigated")] {
        let client = client(&nodes, mitigated).await?;
        let work = Arc::new(Work {
            client,
            zipf: Zipf::new(keys, EXPONENT),
            seed: round,
            next: AtomicU64::new(0),
        });
        let warm = Instant::now() + WARMING;
        work.run(move |_| Instant::now() < warm).await?;
        let before = served(&nodes).await?;
        let (first, began) = (work.next.load(Ordering::Relaxed), Instant::now());
        let gets = if options.quick {
            args.gets / 50
        } else {
            args.gets
        };
        work.run(move |number| number < first + gets).await?;
        let took = began.elapsed().as_secs_f64();
        let after = served(&nodes).await?;
        let of_node: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        let all: f64 = of_node.iter().sum();
        let busiest = of_node.iter().copied().fold(0.0, f64::max);
        ensure!(all > 0.0, "the nodes have not counted any get");
        let case = format!("{count} nodes, {name}");
        report.add(&case, BUSIEST, TORC, 100.0 * busiest / all);
        report.add(&case, PEAK, TORC, busiest * count as f64 / all);
        report.add(&case, REQUESTS, TORC, all / gets as f64);
        report.add(&case, RATE, TORC, gets as f64 / took);
    }
    Ok(())
}

async fn client(nodes: &[Kvd], mitigated: bool) -> Result<Client> {
    let builder = Client::builder()
        .endpoints(nodes.iter().map(Kvd::endpoint))
        .deadline(Duration::from_secs(30))
        .mitigate_hot_keys(mitigated);
    Ok(builder.connect().await?)
}

/// Gets that each node has answered.
async fn served(nodes: &[Kvd]) -> Result<Vec<f64>> {
    let mut served = Vec::new();
    for node in nodes {
        let readings = Readings::of(node).await?;
        served.push(readings.value(r#"operation_seconds_count{operation="get"}"#)?);
    }
    Ok(served)
}

/// An endless sequence of gets.
struct Work {
    client: Client,
    zipf: Zipf,
    seed: u64,
    /// Number of the next get.
    next: AtomicU64,
}

impl Work {
    /// Sends gets, one in flight per task, while `goes_on` accepts their numbers.
    async fn run(
        self: &Arc<Self>,
        goes_on: impl Fn(u64) -> bool + Clone + Send + 'static,
    ) -> Result<()> {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (work, goes_on) = (Arc::clone(self), goes_on.clone());
            tasks.spawn(async move {
                loop {
                    let number = work.next.load(Ordering::Relaxed);
                    if !goes_on(number) {
                        return anyhow::Ok(());
                    }
                    let number = work.next.fetch_add(1, Ordering::Relaxed);
                    let mut random = Random::of(work.seed << 40 | number);
                    let key = records::key(work.zipf.draw(&mut random));
                    work.client.get(key).await?.context("a record is lost")?;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }
}
