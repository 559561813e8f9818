//! Three nodes, each record on all of them, beside three nodes of etcd.
//!
//! All processes and the client share the machine's cores, and all data is on one disk. Both make
//! the same promises: gets are linearizable, and a put is acknowledged when a majority has synced
//! it. They take turns within a case; ratios are of the same round. Further cases measure Torc
//! alone: with one node that runs a hundredth of the time, with many more requests in flight than
//! nodes accept, and with one node dead.

use std::path::{Path, PathBuf};
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
use torc_testkit::Kvd;

use super::case::Work;
use super::closed_loop::{Sample, closed_loop, latencies};
use super::data::Data;
use super::etcd;
use super::subject::Subject;
use super::timed::Timed;
use crate::kvd::{self, REPLICAS_NOTE, load};
use crate::options::Options;
use crate::process;
use crate::records::{self, Random};
use crate::report::{Metric, Prediction, Report, TORC};

/// Records stored, unless set otherwise.
const RECORDS: u64 = 50_000;
const FAILED: Metric = Metric::new("failed", "operations");
const P99_RATIO: Metric = Metric::new("p99_to_normal", "ratio");
const GOODPUT: Metric = Metric::new("goodput_to_peak", "ratio");
const PEAK: Metric = Metric::new("peak", "keys/s");
const IN_FLIGHT: Metric = Metric::new("in_flight", "gets");

const TO_ETCD: &str = "rate_to_etcd";

const fn to_etcd(case: &'static str, expected: &'static str) -> Prediction {
    Prediction {
        case,
        metric: TO_ETCD,
        expected,
    }
}

const PREDICTIONS: &[Prediction] = &[
    to_etcd("get, 64 in flight", "at least 8"),
    to_etcd("get, 256 in flight", "at least 8"),
    to_etcd("put, 64 in flight", "at least 5"),
    to_etcd("put, 256 in flight", "at least 5"),
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
/// Gets in flight among which the peak is searched.
const PEAKS: [usize; 3] = [256, 1_024, 4_096];
/// An overload is this many times the gets in flight at the peak.
const OVERLOAD: usize = 5;
/// A slow node runs for this time, then pauses for 99 times as long.
const RUNS: Duration = Duration::from_millis(1);
/// After this time, no request may still wait for a dead node.
const NOTICED: Duration = Duration::from_secs(1);

const SLOW: &str = "one node slow: get, 8 in flight";
const OVERLOADED: &str = "overload: get";
const DEAD: [(&str, bool); 2] = [
    ("one node dead: get, 64 in flight", false),
    ("one node dead: put, 64 in flight", true),
];

/// What to compare with, and what to leave out.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Args {
    /// The etcd to compare with; without it, the one that is installed
    #[arg(long, value_name = "FILE")]
    etcd: Option<PathBuf>,
    /// Only cases with this in their names, for example `in flight`, `put` or `one node dead`
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

impl Args {
    fn wants(&self, case: &str) -> bool {
        case.contains(&self.only)
    }
}

/// Measures three replicas.
///
/// # Errors
/// kvd does not build or start; etcd is installed but does not work.
pub(crate) fn run(args: &Args, options: &Options) -> Result<Report> {
    let program = kvd::program(options)?;
    let etcd = etcd::program(args.etcd.as_deref())?;
    let mut report = Report::new("replicas", PREDICTIONS);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let mut suite = Suite {
        args,
        options,
        report: &mut report,
    };
    let outcome = runtime.block_on(suite.measure(&program, etcd.as_deref()));
    report.ended(outcome);
    report.note(format!(
        "{REPLICAS_NOTE}, on three nodes; all share the cores with the client"
    ));
    report.note("torc and etcd: a get is linearizable, a put is acknowledged when a majority has synced it; all on one disk");
    report.note(format!(
        "{} records of {} bytes, key and value; server_cpu: of the three processes together",
        options.records_or(RECORDS),
        records::LEN
    ));
    match etcd {
        Some(etcd) => report.note(etcd::version(&etcd)?),
        None => report.skip(etcd::NAME, "not installed, and not named by --etcd FILE"),
    }
    Ok(report)
}

struct Torc {
    nodes: Vec<Kvd>,
    client: Client,
}

struct Suite<'a> {
    args: &'a Args,
    options: &'a Options,
    report: &'a mut Report,
}

impl Suite<'_> {
    async fn measure(&mut self, kvd: &Path, etcd: Option<&Path>) -> Result<()> {
        let scratch = self.options.scratch()?;
        let data = Data::new(self.options.records_or(RECORDS));
        let nodes = kvd::found(kvd, scratch.path(), 3, &[]).await?;
        let client = Client::builder().endpoints(nodes.iter().map(Kvd::endpoint));
        let client = client.connect().await?;
        let mut torc = Torc { nodes, client };
        torc.load(&data).await?;
        self.beside_etcd(&torc, etcd, scratch.path(), &data).await?;
        for _ in 0..self.options.rounds() {
            if self.args.wants(SLOW) {
                self.slow_node(&torc, &data).await?;
            }
            if self.args.wants(OVERLOADED) {
                self.overload(&torc, &data).await?;
            }
        }
        self.dead_node(&mut torc, &data).await
    }

    /// The cases of both, until etcd is stopped.
    async fn beside_etcd(
        &mut self,
        torc: &Torc,
        etcd: Option<&Path>,
        dir: &Path,
        data: &Data,
    ) -> Result<()> {
        let cases = CASES.iter().filter(|(case, _)| self.args.wants(case));
        let cases: Vec<_> = cases.collect();
        if cases.is_empty() {
            return Ok(());
        }
        let peer = match etcd {
            Some(program) => Some(etcd::start_members(program, dir, 3).await?),
            None => None,
        };
        if let Some(peer) = &peer {
            peer.load(data).await?;
        }
        for _ in 0..self.options.rounds() {
            for (case, work) in &cases {
                let ours = self.one(case, torc, *work, data).await?;
                if let Some(peer) = &peer {
                    let theirs = self.one(case, &**peer, *work, data).await?;
                    let ratio = Metric::new(TO_ETCD, "ratio");
                    self.report.add(case, ratio, TORC, ours / theirs);
                }
            }
        }
        Ok(())
    }

    /// Runs one case of one subject; returns its rate.
    async fn one(
        &mut self,
        case: &str,
        subject: &dyn Subject,
        work: Work,
        data: &Data,
    ) -> Result<f64> {
        let timed = timed(subject, work, data, self.time()).await?;
        timed.tell(self.report, case, subject.name());
        Ok(timed.sample.rate())
    }

    /// Duration of a case.
    const fn time(&self) -> Duration {
        Duration::from_millis(if self.options.quick { 200 } else { 3_000 })
    }

    async fn slow_node(&mut self, torc: &Torc, data: &Data) -> Result<()> {
        let p99 = |timed: &Timed| timed.sample.latencies_ns.value_at_quantile(0.99) as f64;
        let normal = p99(&timed(torc, FEW, data, self.time()).await?);
        let slow = Slowed::start(torc.nodes[0].pid()?)?;
        let slowed = timed(torc, FEW, data, self.time()).await;
        drop(slow);
        let slowed = slowed?;
        slowed.sample.tell(self.report, SLOW, TORC);
        let ratio = p99(&slowed) / normal;
        self.report.add(SLOW, P99_RATIO, TORC, ratio);
        Ok(())
    }

    /// Five times the gets in flight that give the highest rate.
    async fn overload(&mut self, torc: &Torc, data: &Data) -> Result<()> {
        let (mut peak, mut best) = (0.0, 0);
        for in_flight in PEAKS {
            let reached = by_tasks(torc, data, in_flight, self.time()).await?.rate();
            if reached > peak {
                (peak, best) = (reached, in_flight);
            }
        }
        let overloaded = by_tasks(torc, data, OVERLOAD * best, self.time()).await?;
        let report = &mut *self.report;
        overloaded.tell(report, OVERLOADED, TORC);
        report.add(OVERLOADED, PEAK, TORC, peak);
        report.add(OVERLOADED, IN_FLIGHT, TORC, (OVERLOAD * best) as f64);
        report.add(OVERLOADED, GOODPUT, TORC, overloaded.rate() / peak);
        Ok(())
    }

    async fn dead_node(&mut self, torc: &mut Torc, data: &Data) -> Result<()> {
        let cases = DEAD.iter().filter(|(case, _)| self.args.wants(case));
        let cases: Vec<_> = cases.collect();
        if cases.is_empty() {
            return Ok(());
        }
        torc.nodes[0].kill_9();
        tokio::time::sleep(NOTICED).await;
        for (case, is_put) in cases {
            let failed = std::cell::Cell::new(0_u64);
            let sample = closed_loop(0..USUAL, 1, self.time(), async |_, random| {
                let (key, value) = data.any(random).clone();
                let done = if *is_put {
                    torc.client.put(key, value).await.map(drop)
                } else {
                    torc.client.get(key).await.map(drop)
                };
                failed.set(failed.get() + u64::from(done.is_err()));
                Ok(())
            });
            let sample = sample.await?;
            sample.tell(self.report, case, TORC);
            self.report.add(case, FAILED, TORC, failed.get() as f64);
        }
        Ok(())
    }
}

async fn timed(subject: &dyn Subject, work: Work, data: &Data, time: Duration) -> Result<Timed> {
    let timed = Timed::run(subject, work, data, time).await?;
    timed.context("no such work")
}

/// Runs each get in flight in its own task, as a service has one task per request: thousands of
/// gets in one task would wait for each other.
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
                // The process may have ended already.
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
            // The thread does not panic.
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
        Ok(self.nodes[0].pid()?)
    }

    fn cpu_time(&self) -> Result<Duration> {
        let each = self.nodes.iter().map(|node| process::cpu_time(node.pid()?));
        each.sum()
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
