//! Three nodes, each record on all of them, beside three nodes of etcd.
//!
//! All processes and the client share the machine's cores. Gets are linearizable and puts are
//! synced by a majority, at both. Then Torc alone: with one node that runs a hundredth of the
//! time, with many more requests in flight than nodes take on, and with one node dead.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use torc_client::Client;

use super::case::Work;
use super::closed_loop::{Sample, closed_loop, latencies};
use super::data::Data;
use super::etcd;
use super::subject::Subject;
use super::{P50, P99, RATE};
use crate::cli::Options;
use crate::kvd::{self, Node, load};
use crate::records::Random;
use crate::report::{Metric, Prediction, Report, TORC};

const FAILED: Metric = Metric::new("failed", "operations");
const P99_RATIO: Metric = Metric::new("p99_to_normal", "ratio");
const GOODPUT: Metric = Metric::new("goodput_to_peak", "ratio");
const PEAK: Metric = Metric::new("peak", "keys/s");
const IN_FLIGHT: Metric = Metric::new("in_flight", "gets");

const PREDICTIONS: &[Prediction] = &[
    Prediction {
        case: "one node slow: get, 8 in flight",
        metric: "p99_to_normal",
        expected: "at most 1.5",
    },
    Prediction {
        case: "overload: get",
        metric: "goodput_to_peak",
        expected: "at least 0.8",
    },
    Prediction {
        case: "one node dead: get, 64 in flight",
        metric: "failed",
        expected: "0",
    },
];

const CASES: [(&str, Work); 4] = [
    ("get, 64 in flight", Work::Get { in_flight: 64 }),
    ("get, 256 in flight", Work::Get { in_flight: 256 }),
    ("put, 64 in flight", Work::Put { in_flight: 64 }),
    ("put, 256 in flight", Work::Put { in_flight: 256 }),
];
const FEW: Work = Work::Get { in_flight: 8 };
const USUAL: usize = 64;
/// Gets in flight among which the peak is looked for.
const PEAKS: [usize; 3] = [256, 1_024, 4_096];
/// How many times what the peak was reached with is an overload.
const OVERLOAD: usize = 5;
/// A slow node runs so long, then stands still for 99 times as long.
const RUNS: Duration = Duration::from_millis(1);
/// When nobody may be waiting any more for a node that died.
const NOTICED: Duration = Duration::from_secs(1);

/// Measures three replicas.
///
/// # Errors
/// kvd does not build or start; etcd is installed and does not work.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let program = kvd::program(options)?;
    let mut report = Report::new("replicas", PREDICTIONS);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(measure(&mut report, options, &program))?;
    report.note("three processes a subject; gets are linearizable, puts are synced by a majority");
    Ok(report)
}

struct Torc {
    nodes: Vec<Node>,
    client: Client,
}

async fn measure(report: &mut Report, options: &Options, program: &Path) -> Result<()> {
    let scratch = options.scratch()?;
    let data = Data::new(options.records_or(20_000));
    let nodes = kvd::found(program, scratch.path(), 3, &[]).await?;
    let client = Client::builder().endpoints(nodes.iter().map(Node::endpoint));
    let client = client.connect().await?;
    let mut torc = Torc { nodes, client };
    torc.load(&data).await?;
    let peer = etcd::start_members(scratch.path(), 3).await?;
    match &peer {
        Some(peer) => peer.load(&data).await?,
        None => report.skip(etcd::NAME, "not installed"),
    }
    let time = Duration::from_millis(if options.quick { 200 } else { 3_000 });
    for _ in 0..options.rounds() {
        for (case, work) in CASES {
            for subject in [Some(&torc as &dyn Subject), peer.as_deref()]
                .into_iter()
                .flatten()
            {
                let sample = timed(subject, work, &data, time).await?;
                add(report, case, subject.name(), &sample);
            }
        }
    }
    drop(peer);
    for _ in 0..options.rounds() {
        slow_node(report, &torc, &data, time).await?;
        overload(report, &torc, &data, time).await?;
    }
    dead_node(report, &mut torc, &data, time).await
}

/// After a tenth of the time to warm up.
async fn timed(subject: &dyn Subject, work: Work, data: &Data, time: Duration) -> Result<Sample> {
    let what = "no such work";
    subject.run(work, data, time / 10).await?.context(what)?;
    subject.run(work, data, time).await?.context(what)
}

fn add(report: &mut Report, case: &str, name: &'static str, sample: &Sample) {
    let us = |quantile| sample.latencies_ns.value_at_quantile(quantile) as f64 / 1e3;
    report.add(case, RATE, name, rate(sample));
    report.add(case, P50, name, us(0.5));
    report.add(case, P99, name, us(0.99));
}

fn rate(sample: &Sample) -> f64 {
    sample.operations as f64 / sample.took.as_secs_f64()
}

async fn slow_node(report: &mut Report, torc: &Torc, data: &Data, time: Duration) -> Result<()> {
    let case = "one node slow: get, 8 in flight";
    let p99 = |sample: &Sample| sample.latencies_ns.value_at_quantile(0.99) as f64;
    let normal = p99(&timed(torc, FEW, data, time).await?);
    let slow = Slowed::start(torc.nodes[0].id()?)?;
    let slowed = timed(torc, FEW, data, time).await;
    drop(slow);
    let slowed = slowed?;
    add(report, case, TORC, &slowed);
    report.add(case, P99_RATIO, TORC, p99(&slowed) / normal);
    Ok(())
}

/// Five times the gets in flight with which most are answered a second.
async fn overload(report: &mut Report, torc: &Torc, data: &Data, time: Duration) -> Result<()> {
    let (mut peak, mut best) = (0.0, 0);
    for in_flight in PEAKS {
        let reached = rate(&by_tasks(torc, data, in_flight, time).await?);
        if reached > peak {
            (peak, best) = (reached, in_flight);
        }
    }
    let overloaded = by_tasks(torc, data, OVERLOAD * best, time).await?;
    let case = "overload: get";
    add(report, case, TORC, &overloaded);
    report.add(case, PEAK, TORC, peak);
    report.add(case, IN_FLIGHT, TORC, (OVERLOAD * best) as f64);
    report.add(case, GOODPUT, TORC, rate(&overloaded) / peak);
    Ok(())
}

/// A task for each get in flight, as a service has one for each request: thousands in one task wait for one
/// another.
async fn by_tasks(torc: &Torc, data: &Data, in_flight: usize, time: Duration) -> Result<Sample> {
    let keys: Arc<[Bytes]> = data.all().iter().map(|(key, _)| key.clone()).collect();
    let latencies_ns = Arc::new(Mutex::new(latencies()?));
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for number in 0..in_flight {
        let (client, keys) = (torc.client.clone(), Arc::clone(&keys));
        let latencies_ns = Arc::clone(&latencies_ns);
        workers.spawn(async move {
            let mut random = Random::of(number as u64);
            let mut sent = Instant::now();
            while sent < started + time {
                let key = &keys[random.below(keys.len() as u64) as usize];
                let found = client.get(key.clone()).await?;
                ensure!(found.is_some(), "a key was not found");
                let answered = Instant::now();
                let nanos = (answered - sent).as_nanos() as u64;
                latencies_ns.lock().saturating_record(nanos);
                sent = answered;
            }
            Ok(())
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    let took = started.elapsed();
    let latencies_ns = std::mem::replace(&mut *latencies_ns.lock(), latencies()?);
    Ok(Sample {
        operations: latencies_ns.len(),
        took,
        latencies_ns,
    })
}

async fn dead_node(
    report: &mut Report,
    torc: &mut Torc,
    data: &Data,
    time: Duration,
) -> Result<()> {
    torc.nodes[0].kill_9()?;
    tokio::time::sleep(NOTICED).await;
    for is_put in [false, true] {
        let failed = std::cell::Cell::new(0_u64);
        let sample = closed_loop(0..USUAL, 1, time, async |_, random| {
            let (key, value) = data.any(random).clone();
            let done = if is_put {
                torc.client.put(key, value).await.map(drop)
            } else {
                torc.client.get(key).await.map(drop)
            };
            failed.set(failed.get() + u64::from(done.is_err()));
            Ok(())
        });
        let sample = sample.await?;
        let kind = if is_put { "put" } else { "get" };
        let case = format!("one node dead: {kind}, {USUAL} in flight");
        add(report, &case, TORC, &sample);
        report.add(&case, FAILED, TORC, failed.get() as f64);
    }
    Ok(())
}

/// A process that runs a hundredth of the time, until this is dropped.
struct Slowed {
    process: Pid,
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Slowed {
    fn start(id: u32) -> Result<Self> {
        let process = Pid::from_raw(id.cast_signed()).context("no process has this number")?;
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                // It may have ended: then there is nothing to slow down.
                let _ = kill_process(process, Signal::CONT);
                std::thread::sleep(RUNS);
                let ran = began.elapsed();
                let _ = kill_process(process, Signal::STOP);
                std::thread::sleep(ran * 99);
            }
        });
        Ok(Self {
            process,
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Nothing in it panics.
            let _ = thread.join();
        }
        let _ = kill_process(self.process, Signal::CONT);
    }
}

impl Subject for Torc {
    fn name(&self) -> &'static str {
        TORC
    }

    fn process(&self) -> Result<u32> {
        self.nodes[0].id()
    }

    fn load<'a>(&'a self, data: &'a Data) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(load(&self.client, data.all().len() as u64))
    }

    fn run<'a>(
        &'a self,
        work: Work,
        data: &'a Data,
        time: Duration,
    ) -> LocalBoxFuture<'a, Result<Option<Sample>>> {
        Box::pin(async move {
            let client = &self.client;
            let sample = match work {
                Work::Get { in_flight } => {
                    let request = async |_: &mut usize, random: &mut _| {
                        let found = client.get(data.any(random).0.clone()).await?;
                        ensure!(found.is_some(), "a key was not found");
                        Ok(())
                    };
                    closed_loop(0..in_flight, 1, time, request).await
                }
                Work::Put { in_flight } => {
                    let request = async |_: &mut usize, random: &mut _| {
                        let (key, value) = data.any(random).clone();
                        client.put(key, value).await?;
                        Ok(())
                    };
                    closed_loop(0..in_flight, 1, time, request).await
                }
                _ => return Ok(None),
            };
            sample.map(Some)
        })
    }
}
