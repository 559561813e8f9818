//! `torc-sim cluster`: real `kvd` processes under faults, while clients record what they see.
//!
//! * `process`: one `kvd`: started, killed, stopped, its links cut.
//! * `group`: all of them, founded as one cluster.
//! * `wire`: how an operation reaches a node, by the client library or straight.
//! * `recorder`: the histories of the keys, for the simulation's checkers.
//! * `clients`: who asks what.
//! * `nemesis`: one fault at a time, from the seed.
//! * `aftermath`: the healed cluster: last reads, a scan, equal replicas.
//! * `report`: what came of it; what is kept of a run that failed.
//!
//! The seed decides faults and requests, not their timing: a run is not repeatable.
//!
//! Left out: full disks and clocks that are wrong (they need a mount and libfaketime, and are
//! named in the report), values that expire, machines that lose power.

mod aftermath;
mod clients;
mod group;
mod nemesis;
mod process;
mod recorder;
mod report;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use group::Group;
use recorder::Recorder;
use report::Report;

/// How a cluster is put under faults.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// How long faults go on.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Nodes; each partition has three replicas.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=9))]
    nodes: u8,
    /// Decides faults and requests.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Partitions: few, so that each is compared and collected often.
    #[arg(long, default_value_t = 64)]
    partitions: u32,
    /// Clients at a time.
    #[arg(long, default_value_t = 12)]
    clients: u32,
    /// The `kvd` to run; the one beside this program if none is named.
    #[arg(long)]
    kvd: Option<PathBuf>,
    /// Only these faults, by name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<nemesis::Fault>,
    /// Where a failing run is kept; else the directory for temporary files.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Why a run could not take place. What a run finds is in its [`Report`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No program to run.
    #[error(
        "there is no kvd at {0}: build it with `cargo build --release -p torc-server`, or name it with --kvd"
    )]
    NoKvd(PathBuf),
    /// The machine refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The cluster did not come to be.
    #[error("the cluster did not serve within {0:?} of its start")]
    NotFounded(Duration),
    /// The library refused the cluster's addresses.
    #[error("no client: {0}")]
    Client(#[from] torc_client::Error),
}

impl Error {
    fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Runs until the time is over; whether nothing was wrong.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Error::io("starting a runtime"))?;
    let report = runtime.block_on(under_faults(options))?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    report.print(options.json);
    Ok(report.is_good())
}

async fn under_faults(options: &Options) -> Result<Report, Error> {
    let kvd = match &options.kvd {
        Some(path) => path.clone(),
        None => process::beside_this_program()?,
    };
    if !kvd.exists() {
        return Err(Error::NoKvd(kvd));
    }
    let mut group = Group::found(&kvd, options).await?;
    let recorder = Arc::new(Recorder::default());
    let over = Arc::new(AtomicBool::new(false));
    let until = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let clients = clients::spawn(options, &group, &recorder, &over).await?;
    let mut report = Report::new(options, &group);
    nemesis::torment(options, &mut group, until, &mut report).await;
    over.store(true, Ordering::Relaxed);
    futures::future::join_all(clients).await;
    aftermath::inspect(&group, &recorder, &mut report).await;
    report.judge(recorder.finish()).await;
    if !report.is_good() {
        report.keep(&mut group, options.keep.as_deref())?;
    }
    Ok(report)
}
