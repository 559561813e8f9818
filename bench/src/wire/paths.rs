//! Processor time per operation on the paths of a default cluster, beside an earlier build.
//!
//! Each build's own `kvctl bench` drives it, if there is one, so protocols may differ. On one node
//! the server has one core and the client another; three nodes and the client share the machine,
//! and the processor times of the three are added up. The time is read from `/proc` before and
//! after a whole run of `kvctl`, so it includes connecting, spread over tens of thousands of
//! operations. Subjects take turns within a case; ratios are of the same round. A flush or
//! compaction during a run counts.
//!
//! Unary gets are compared with an echo server of the same messages that is only tonic, on the same
//! cores ([`echo`]). `--callgrind` also counts instructions ([`callgrind`]).

mod callgrind;
pub(crate) mod echo;
mod generator;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::runtime::Runtime;
use torc_testkit::Kvd;

use super::{CLIENT_CORE, RATE, SERVER, SERVER_CORE};
use crate::kvd;
use crate::options::Options;
use crate::report::{Metric, Prediction, Report, TORC};
use crate::{machine, process};
use generator::{CASES, Case, Generator};

/// The lead path: the baseline with one replica, on one node.
const LEAD: &str = "baseline, 1 replica";
const BASELINE: &str = "baseline";
const ONE: &str = "one node";
const THREE: &str = "three nodes";
const IDLE: &str = "idle";
/// Keys stored before the measurement, unless set otherwise.
const KEYS: u64 = 50_000;
const MIB: f64 = 1_048_576.0;
/// Time without requests after which nodes count as idle.
const IDLE_AFTER: Duration = Duration::from_secs(10);

const fn predicted(case: &'static str, metric: &'static str, expected: &'static str) -> Prediction {
    Prediction {
        case,
        metric,
        expected,
    }
}

const TO_LEAD: &str = "cpu_to_lead";
const TO_BASELINE: &str = "cpu_to_baseline";

const PREDICTIONS: &[Prediction] = &[
    predicted("one node: get, 64 in flight", TO_LEAD, "at most 1.0"),
    predicted("one node: put, 64 in flight", TO_LEAD, "at most 1.2"),
    predicted("one node: put, 256 in flight", TO_LEAD, "at most 1.2"),
    predicted("one node: get in batches of 100", TO_LEAD, "at most 0.25"),
    predicted("one node: put in batches of 100", TO_LEAD, "at most 0.25"),
    predicted(echo::CASE, echo::RATIO, "at most 1.15"),
    predicted("one node: idle, node 1", "rss", "at most 48"),
    predicted("three nodes: get, 64 in flight", SERVER.name, "at most 14"),
    predicted("three nodes: put, 64 in flight", SERVER.name, "at most 45"),
    predicted("three nodes: put, 256 in flight", SERVER.name, "at most 30"),
    predicted(
        "three nodes: get in batches of 100",
        SERVER.name,
        "at most 3",
    ),
    predicted(
        "three nodes: put in batches of 100",
        SERVER.name,
        "at most 10",
    ),
];

/// What to compare with, and what to leave out.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Args {
    /// An earlier kvd to compare with, of any protocol [default: none]
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// The kvctl that drives the baseline [default: the one beside the baseline, else this
    /// build's, if both use the same protocol]
    #[arg(long, value_name = "FILE", requires = "baseline")]
    baseline_kvctl: Option<PathBuf>,
    /// Length of the values
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    value_bytes: u32,
    /// Run only cases whose names contain this, for example `three nodes` or `one node: get`
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Also count instructions with valgrind's callgrind, on one node
    #[arg(long)]
    callgrind: bool,
}

/// A server and the load generator of the same build.
#[derive(Debug, Clone)]
struct Build {
    kvd: PathBuf,
    kvctl: PathBuf,
}

/// The builds to measure.
struct Builds {
    new: Build,
    baseline: Option<Build>,
}

impl Builds {
    fn of(args: &Args, options: &Options) -> Result<Self> {
        let new = Build {
            kvd: kvd::program(options)?,
            kvctl: kvd::kvctl(options)?,
        };
        let baseline = args.baseline.clone().map(|kvd| {
            let beside = Some(kvd.with_file_name("kvctl")).filter(|file| file.is_file());
            let kvctl = args.baseline_kvctl.clone().or(beside);
            let kvctl = kvctl.unwrap_or_else(|| new.kvctl.clone());
            for file in [&kvd, &kvctl] {
                ensure!(file.is_file(), "there is no {}", file.display());
            }
            Ok(Build { kvd, kvctl })
        });
        let baseline = baseline.transpose()?;
        Ok(Self { new, baseline })
    }

    /// The default of both builds, and their names.
    fn defaults(&self) -> impl Iterator<Item = (&'static str, &Build)> {
        let baseline = self.baseline.as_ref().map(|build| (BASELINE, build));
        baseline.into_iter().chain([(TORC, &self.new)])
    }
}

/// Measures the paths.
///
/// # Errors
/// A kvd does not start, an operation fails, or there are not two cores.
pub(crate) fn run(args: &Args, options: &Options) -> Result<Report> {
    let builds = Builds::of(args, options)?;
    ensure!(machine::cores() > 1, "this suite needs two cores");
    let mut report = Report::new("paths", PREDICTIONS);
    if builds.baseline.is_none() {
        report.skip("baseline", "not named: --baseline FILE");
    }
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let mut suite = Suite {
        args,
        options,
        builds: &builds,
        report: &mut report,
    };
    let outcome = suite.all(&runtime);
    report.ended(outcome);
    report.note(
        "torc and baseline: clusters as they are by default, with three replicas; baseline, 1 \
         replica: founded with --replicas 1",
    );
    report.note("one node: the server on one core, kvctl on another; three nodes: all on the same cores, their processor time added up");
    report.note(format!(
        "{} keys with values of {} bytes; every put is synced by a majority of its replicas, on one node by that one, before it is acknowledged",
        options.records_or(KEYS),
        args.value_bytes
    ));
    report.note(
        "cpu_to_*: of the same round; the medians of these ratios, not the ratios of medians",
    );
    if let Some(baseline) = &builds.baseline {
        let whose = if baseline.kvctl == builds.new.kvctl {
            "the kvctl of this build"
        } else {
            "a kvctl of its own"
        };
        report.note(format!("the baseline was driven by {whose}"));
    }
    Ok(report)
}

struct Suite<'a> {
    args: &'a Args,
    options: &'a Options,
    builds: &'a Builds,
    report: &'a mut Report,
}

/// A cluster under measurement.
struct Subject<'a> {
    name: &'static str,
    generator: Generator<'a>,
    nodes: Vec<Kvd>,
}

impl Subject<'_> {
    fn cpu_time(&self) -> Result<Duration> {
        let each = self.nodes.iter().map(|node| process::cpu_time(node.pid()?));
        each.sum()
    }
}

impl Suite<'_> {
    fn all(&mut self, runtime: &Runtime) -> Result<()> {
        machine::on_core(CLIENT_CORE, || runtime.block_on(self.one_node()))??;
        runtime.block_on(self.three_nodes())?;
        if self.args.callgrind {
            runtime.block_on(self.instructions())?;
        }
        Ok(())
    }

    const fn rounds(&self) -> u16 {
        self.options.rounds_or(5)
    }

    fn wants(&self, case: &str) -> bool {
        case.contains(&self.args.only)
    }

    /// Whether any selected case runs at a place.
    fn wants_of(&self, place: &str) -> bool {
        let names = CASES.iter().map(|case| case.name).chain([IDLE]);
        let mut names = names.map(|name| format!("{place}: {name}"));
        names.any(|name| self.wants(&name))
    }

    async fn one_node(&mut self) -> Result<()> {
        if !self.wants_of(ONE) && !self.wants(echo::CASE) {
            return Ok(());
        }
        let scratch = self.options.scratch()?;
        let lead = self.builds.baseline.as_ref();
        let lead = lead.map(|build| (LEAD, build, vec!["--replicas=1".to_owned()]));
        let defaults = self.builds.defaults();
        let all = lead
            .into_iter()
            .chain(defaults.map(|(name, build)| (name, build, Vec::new())));
        let mut subjects = Vec::new();
        for (name, build, extra) in all {
            let dir = scratch.path().join(name);
            let mut node = kvd::alone(&build.kvd, &dir, &extra)?;
            machine::on_core(SERVER_CORE, || node.start())??;
            node.ready().await?;
            subjects.push(self.subject(name, build, vec![node]));
        }
        self.idle(ONE, &subjects).await?;
        self.cases(ONE, &subjects)?;
        let ours = subjects.iter().find(|it| it.name == TORC);
        if let Some(ours) = ours.filter(|_| self.wants(echo::CASE)) {
            let node = ours.nodes.first().context("no node")?;
            ours.generator.store_all()?;
            let echo = echo::Comparison {
                node,
                keys: self.options.records_or(KEYS),
                value_bytes: self.args.value_bytes,
                is_quick: self.options.quick,
            };
            for _ in 0..self.rounds() {
                echo.measure(self.report).await?;
            }
        }
        Ok(())
    }

    async fn three_nodes(&mut self) -> Result<()> {
        if !self.wants_of(THREE) {
            return Ok(());
        }
        let scratch = self.options.scratch()?;
        let mut subjects = Vec::new();
        for (name, build) in self.builds.defaults() {
            let dir = scratch.path().join(name);
            let nodes = kvd::found(&build.kvd, &dir, 3, &[]).await?;
            subjects.push(self.subject(name, build, nodes));
        }
        self.idle(THREE, &subjects).await?;
        self.cases(THREE, &subjects)
    }

    fn subject<'b>(&self, name: &'static str, build: &'b Build, nodes: Vec<Kvd>) -> Subject<'b> {
        let endpoints: Vec<String> = nodes.iter().map(Kvd::endpoint).collect();
        let keys = self.options.records_or(KEYS);
        Subject {
            name,
            generator: Generator::new(&build.kvctl, &endpoints, keys, self.args.value_bytes),
            nodes,
        }
    }

    /// The memory of nodes before any data is stored.
    async fn idle(&mut self, place: &str, subjects: &[Subject<'_>]) -> Result<()> {
        if !self.wants(&format!("{place}: {IDLE}")) {
            return Ok(());
        }
        let parts = if self.options.quick { 10 } else { 1 };
        tokio::time::sleep(IDLE_AFTER / parts).await;
        for subject in subjects {
            for (number, node) in (1..).zip(&subject.nodes) {
                let resident = process::resident(node.pid()?)?;
                let case = format!("{place}: {IDLE}, node {number}");
                let mut add = |metric, bytes: u64| {
                    let metric = Metric::new(metric, "MiB");
                    self.report
                        .add(&case, metric, subject.name, bytes as f64 / MIB);
                };
                add("rss", resident.bytes);
                add("anonymous", resident.anonymous_bytes);
            }
        }
        Ok(())
    }

    fn cases(&mut self, place: &str, subjects: &[Subject<'_>]) -> Result<()> {
        let name = |case: &Case| format!("{place}: {}", case.name);
        let wanted: Vec<_> = CASES
            .iter()
            .filter(|case| self.wants(&name(case)))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for subject in subjects {
            subject.generator.store_all()?;
        }
        for round in 1..=self.rounds() {
            for case in &wanted {
                self.round(round, &name(case), case, subjects)?;
            }
        }
        Ok(())
    }

    /// One case of all subjects, each after a tenth of it to warm up. A run with a failed operation
    /// is reported and excluded: on a busy machine some operations exceed their deadlines.
    fn round(
        &mut self,
        round: u16,
        name: &str,
        case: &Case,
        subjects: &[Subject<'_>],
    ) -> Result<()> {
        let operations = case.operations / if self.options.quick { 100 } else { 1 };
        let mut costs = Vec::new();
        for subject in subjects {
            subject.generator.run(case, operations / 10)?;
            let before = subject.cpu_time()?;
            let done = subject.generator.run(case, operations)?;
            let spent = subject.cpu_time()?.saturating_sub(before);
            if let Err(failed) = done.succeeded() {
                let subject = subject.name;
                self.report.note(format!(
                    "left out: {name}, {subject}, round {round}: {failed}"
                ));
                continue;
            }
            let cost = spent.as_secs_f64() * 1e6 / done.operations as f64;
            self.report.add(name, SERVER, subject.name, cost);
            self.report.add(name, RATE, subject.name, done.per_second);
            costs.push((subject.name, cost));
        }
        let cost_of = |name| {
            costs
                .iter()
                .find(|(it, _)| *it == name)
                .map(|(_, cost)| *cost)
        };
        for (metric, other) in [(TO_LEAD, LEAD), (TO_BASELINE, BASELINE)] {
            // A short run may use less than a clock tick: it has no ratio.
            let theirs = cost_of(other).filter(|cost| *cost > 0.0);
            if let (Some(ours), Some(theirs)) = (cost_of(TORC), theirs) {
                let ratio = ours / theirs;
                self.report
                    .add(name, Metric::new(metric, "ratio"), TORC, ratio);
            }
        }
        Ok(())
    }

    async fn instructions(&mut self) -> Result<()> {
        let Some(valgrind) = process::installed("valgrind") else {
            self.report.skip("callgrind", "valgrind is not installed");
            return Ok(());
        };
        let one = vec!["--replicas=1".to_owned()];
        let lead = self
            .builds
            .baseline
            .as_ref()
            .map(|build| (LEAD, build, one));
        let defaults = self.builds.defaults();
        let all = lead
            .into_iter()
            .chain(defaults.map(|(name, build)| (name, build, Vec::new())));
        for (name, build, extra) in all {
            let wants = |case: &&Case| self.wants(&format!("{ONE}: {}", case.name));
            let cases: Vec<_> = CASES.iter().filter(wants).collect();
            let scratch = self.options.scratch()?;
            let counted =
                callgrind::count(&valgrind, build, scratch.path(), &extra, &cases).await?;
            for (case, per_operation) in counted {
                let case = format!("{ONE}: {case}");
                let metric = Metric::new("instructions", "per key");
                self.report.add(&case, metric, name, per_operation);
            }
        }
        Ok(())
    }
}
