//! One node over the wire, beside well-known servers.
//!
//! Every server runs alone on one core, the client on another, so neither takes the other's time. A
//! case is a number of requests in flight in a closed loop: each request is sent after an answer
//! has arrived, so latencies count from the actual sending; compare within a case only. The
//! server's processor time is read from `/proc`.
//!
//! Each server has its own durability: Torc and etcd sync every write before they acknowledge it,
//! `redis+aof` is redis with `appendfsync always`; redis and memcached keep writes in memory alone.

mod case;
mod closed_loop;
mod connection;
mod data;
mod etcd;
pub(crate) mod load;
mod memcached;
pub(crate) mod memory;
pub(crate) mod paths;
mod peers;
mod redis;
pub(crate) mod replicas;
pub(crate) mod resp;
mod server;
mod session;
mod subject;
mod timed;
pub(crate) mod tls;
mod torc;
mod unary;

use std::time::Duration;

use anyhow::Result;

use crate::kvd::{REPLICAS_NOTE, Replicas};
use crate::machine;
use crate::options::Options;
use crate::report::{Metric, Report};
use case::{CASES, PREDICTIONS};
use data::Data;
use subject::Subject;
use timed::Timed;

const RATE: Metric = Metric::new("rate", "keys/s");
const P50: Metric = Metric::new("p50", "us");
const P99: Metric = Metric::new("p99", "us");
const SERVER: Metric = Metric::new("server_cpu", "us/key");

/// The servers' core.
const SERVER_CORE: usize = 0;
/// The client's core.
const CLIENT_CORE: usize = 1;

/// Measures the wire.
///
/// # Errors
/// kvd does not build or start; an installed server does not work; there are not two cores.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let program = crate::kvd::program(options)?;
    anyhow::ensure!(machine::cores() > 1, "this suite needs two cores");
    let mut report = Report::new("wire", PREDICTIONS);
    machine::on_core(CLIENT_CORE, || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build()?;
        runtime.block_on(measure(&mut report, options, &program))
    })??;
    report.note(format!(
        "{REPLICAS_NOTE}, though one node holds only one of them"
    ));
    report.note("every server on one core, the client on another; gets find what they ask for");
    report.note("redis and memcached keep writes in memory alone; torc, etcd and redis+aof sync before they answer");
    Ok(report)
}

async fn measure(report: &mut Report, options: &Options, program: &std::path::Path) -> Result<()> {
    let scratch = options.scratch()?;
    let data = Data::new(options.records_or(100_000));
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for replicas in Replicas::ALL {
        let torc = torc::Torc::start(program, scratch.path(), replicas).await?;
        subjects.push(Box::new(torc));
    }
    for (name, start) in peers::PEERS {
        match start(scratch.path()).await? {
            Some(peer) => subjects.push(peer),
            None => report.skip(name, "not installed"),
        }
    }
    for subject in &subjects {
        subject.load(&data).await?;
    }
    let time = Duration::from_millis(if options.quick { 100 } else { 2_000 });
    for _ in 0..options.rounds() {
        for case in CASES {
            for subject in &subjects {
                let timed = Timed::run(&**subject, case.work, &data, time).await?;
                if let Some(timed) = timed {
                    timed.tell(report, case.name, subject.name());
                }
            }
        }
    }
    Ok(())
}
