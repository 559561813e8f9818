//! The port for Redis clients: one node beside redis-server, then three nodes beside three of etcd.
//!
//! One client drives nodes and redis, and compares each answer with the expected one. On one node
//! the server has one core and the client the other; three nodes and the client share the machine.
//! Subjects take turns within a case; ratios are of the same round. All records are in memory.
//!
//! Each of [`CONNECTIONS`] connections sends a pipeline of requests, and the next one once all of
//! them are answered, as `redis-benchmark -P` does.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::case::Work;
use super::data::Data;
use super::redis::{self, Durability};
use super::subject::Subject;
use super::timed::Timed;
use super::{CLIENT_CORE, SERVER_CORE, etcd};
use crate::kvd;
use crate::machine;
use crate::options::Options;
use crate::records;
use crate::report::{Metric, Prediction, Report, TORC};

/// Records stored, unless set otherwise.
const RECORDS: u64 = 100_000;
/// As `redis-benchmark` has by default.
const CONNECTIONS: usize = 50;
const RATIO: Metric = Metric::new("rate_to_peer", "ratio");
/// Moves less than the rate when other processes take the cores.
const CPU_RATIO: Metric = Metric::new("cpu_to_peer", "ratio");

/// Work on one node, and the peer to compare it with.
struct Case {
    name: &'static str,
    work: Work,
    peer: Durability,
}

const fn gets(name: &'static str, depth: usize) -> Case {
    Case {
        name,
        work: Work::PipelinedGets {
            connections: CONNECTIONS,
            depth,
        },
        peer: Durability::None,
    }
}

const CASES: [Case; 4] = [
    gets("GET, one at a time", 1),
    gets("GET, pipelines of 16", 16),
    gets("GET, pipelines of 64", 64),
    Case {
        name: "durable SET, pipelines of 64",
        work: Work::PipelinedPuts {
            connections: CONNECTIONS,
            depth: 64,
        },
        peer: Durability::Aof,
    },
];
const THREE_NODES: &str = "three nodes: SET, 64 in flight";

const fn predicted(case: &'static str, expected: &'static str) -> Prediction {
    Prediction {
        case,
        metric: RATIO.name,
        expected,
    }
}

const PREDICTIONS: &[Prediction] = &[
    predicted("GET, one at a time", "at least 0.9"),
    predicted("GET, pipelines of 16", "at least 0.8"),
    predicted("GET, pipelines of 64", "at least 0.8"),
    predicted("durable SET, pipelines of 64", "at least 1.5"),
    predicted(THREE_NODES, "at least 5"),
];

/// What to leave out.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Args {
    /// Only cases with this in their names, for example `GET`, `SET` or `three nodes`
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Measures the port for Redis clients.
///
/// # Errors
/// kvd does not build or start; an installed peer does not work; an answer is not the expected one;
/// there are not two cores.
pub(crate) fn run(args: &Args, options: &Options) -> Result<Report> {
    let program = kvd::program(options)?;
    ensure!(machine::cores() > 1, "this suite needs two cores");
    let mut report = Report::new("resp", PREDICTIONS);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let mut suite = Suite {
        args,
        options,
        report: &mut report,
        data: Data::new(options.records_or(RECORDS)),
    };
    let outcome = machine::on_core(CLIENT_CORE, || runtime.block_on(suite.one_node(&program)))?;
    let outcome = outcome.and_then(|()| runtime.block_on(suite.three_nodes(&program)));
    report.ended(outcome);
    report.note(format!(
        "one node: {CONNECTIONS} connections, the server on one core, the client on another; latencies are those of a whole pipeline"
    ));
    report.note("three nodes with three replicas, and three of etcd: all share the cores with the client; all data is on one disk");
    report.note("rate_to_peer and cpu_to_peer (of server_cpu): gets to redis; durable SETs to redis+aof (appendfsync always); of three nodes to etcd");
    report.note(format!(
        "{} records of {} bytes, key and value, in memory; each answer is compared with the expected one",
        options.records_or(RECORDS),
        records::LEN
    ));
    Ok(report)
}

struct Suite<'a> {
    args: &'a Args,
    options: &'a Options,
    report: &'a mut Report,
    data: Data,
}

impl Suite<'_> {
    async fn one_node(&mut self, program: &Path) -> Result<()> {
        let cases = CASES
            .iter()
            .filter(|case| case.name.contains(&self.args.only));
        let cases: Vec<_> = cases.collect();
        if cases.is_empty() {
            return Ok(());
        }
        let scratch = self.options.scratch()?;
        let mut node = kvd::alone(program, scratch.path(), &[])?;
        machine::on_core(SERVER_CORE, || node.start())??;
        node.ready().await?;
        let torc = redis::of_nodes(vec![node]);
        torc.load(&self.data).await?;
        let mut peers = Vec::new();
        for durability in [Durability::None, Durability::Aof] {
            match redis::start(scratch.path(), durability).await? {
                Some(peer) => {
                    peer.load(&self.data).await?;
                    peers.push(peer);
                }
                None => self.report.skip(durability.name(), "not installed"),
            }
        }
        for _ in 0..self.options.rounds() {
            for case in &cases {
                let peer = peers.iter().find(|peer| peer.name() == case.peer.name());
                let peer = peer.map(|peer| &**peer);
                self.round(case.name, case.work, &torc, peer).await?;
            }
        }
        Ok(())
    }

    async fn three_nodes(&mut self, program: &Path) -> Result<()> {
        if !THREE_NODES.contains(&self.args.only) {
            return Ok(());
        }
        let scratch = self.options.scratch()?;
        let torc = redis::of_nodes(kvd::found(program, scratch.path(), 3, &[]).await?);
        torc.load(&self.data).await?;
        let peer = match etcd::program(None)? {
            Some(program) => Some(etcd::start_members(&program, scratch.path(), 3).await?),
            None => None,
        };
        match &peer {
            Some(peer) => peer.load(&self.data).await?,
            None => self.report.skip(etcd::NAME, "not installed"),
        }
        let work = Work::Put { in_flight: 64 };
        for _ in 0..self.options.rounds() {
            self.round(THREE_NODES, work, &torc, peer.as_deref())
                .await?;
        }
        Ok(())
    }

    async fn round(
        &mut self,
        case: &str,
        work: Work,
        torc: &dyn Subject,
        peer: Option<&dyn Subject>,
    ) -> Result<()> {
        let time = Duration::from_millis(if self.options.quick { 100 } else { 3_000 });
        let mut figures = Vec::new();
        for subject in [Some(torc), peer].into_iter().flatten() {
            let timed = Timed::run(subject, work, &self.data, time).await?;
            let timed = timed.context("no such work")?;
            timed.tell(self.report, case, subject.name());
            timed.tell_client(self.report, case, subject.name());
            figures.push((timed.sample.rate(), timed.server_us()));
        }
        if let [ours, theirs] = figures[..] {
            self.report.add(case, RATIO, TORC, ours.0 / theirs.0);
            // A short run may use less than a clock tick: it has no ratio.
            if theirs.1 > 0.0 {
                self.report.add(case, CPU_RATIO, TORC, ours.1 / theirs.1);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prediction_is_of_a_case_and_every_case_is_predicted() {
        let cases = CASES.iter().map(|case| case.name).chain([THREE_NODES]);
        let predicted = PREDICTIONS.iter().map(|prediction| prediction.case);
        assert!(cases.eq(predicted));
    }
}
