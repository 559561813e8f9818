//! `torc-sim cluster`: real `kvd` processes under faults, while clients record what they see.
//!
//! * `process`: one `kvd`: started, killed, stopped, its links cut, its clock set; `disk`: one
//!   that can be filled.
//! * `network`: nodes in network namespaces, where packets are cut.
//! * `group`: all of them, founded as one cluster.
//! * `wire`: how an operation reaches a node, by the client library or straight.
//! * `recorder`: the histories of the keys, for the simulation's checkers.
//! * `plain`: the same cluster without faults, for `torc-sim hostile`.
//! * `clients`: who asks what.
//! * `nemesis`: one fault at a time, from the seed; `probes`: whether every node serves again.
//! * `changes`: nodes that join, leave and are replaced meanwhile.
//! * `eventual`: what must be true of keys whose last writer wins.
//! * `aftermath`: the healed cluster: last reads, a scan, equal replicas.
//! * `report`: what came of it; what is kept of a run that failed.
//!
//! The seed decides faults and requests, not their timing: a run is not repeatable.
//!
//! Left out: values that expire, machines that lose power.

mod aftermath;
mod changes;
mod clients;
mod disk;
mod eventual;
mod group;
mod nemesis;
mod network;
mod plain;
mod probes;
mod process;
mod recorder;
mod report;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;

use group::Group;
use nemesis::Fault;
pub(crate) use plain::{PlainCluster, PlainNode};
use process::Program;
use recorder::Recorder;
use report::Report;

/// How a cluster is put under faults.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// How long faults go on [default: 5; 60 at most where something is counted].
    #[arg(long)]
    minutes: Option<f64>,
    /// Go on until so many nodes were killed; nothing else is done but what is asked for.
    #[arg(long)]
    kills: Option<u64>,
    /// Go on until so many nodes have joined, left or been replaced; nothing else is done
    /// but what is asked for.
    #[arg(long)]
    changes: Option<u64>,
    /// How long a stopped node stands still; some of 5 seconds if not told.
    #[arg(long)]
    pause_seconds: Option<u64>,
    /// The deadline of the library's operations; 10 where changes are counted, else 2.
    #[arg(long)]
    deadline_seconds: Option<u64>,
    /// All clients go by the library, which asks leads; else every other one goes straight to
    /// nodes, whoever leads, so that several write a key at a time.
    #[arg(long)]
    by_library: bool,
    /// A rule that all nodes break: `kvd-mutant` runs instead of `kvd`.
    #[arg(long)]
    mutant: Option<String>,
    /// Nodes; as many as replicas at least.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=9))]
    nodes: u8,
    /// Replicas of each partition.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// How the replicas of a key agree.
    #[arg(long, value_enum, default_value_t = Mode::Linearizable)]
    mode: Mode,
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
    /// Nodes live in network namespaces of their own; what faults cut and slow down is
    /// packets, those of the topology group too. Needs root, and `ip`, `nft` and `tc`.
    #[arg(long)]
    real_network: bool,
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

/// The mode of the namespace that clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Judged by the simulation's checkers.
    Linearizable,
    /// The last writer wins: no acknowledged write is lost, no version is another's.
    Eventual,
}

impl Options {
    fn nodes(&self) -> u8 {
        self.nodes.max(self.replicas)
    }

    const fn is_counted(&self) -> bool {
        self.kills.is_some() || self.changes.is_some()
    }

    fn time(&self) -> Duration {
        let default = if self.is_counted() { 60.0 } else { 5.0 };
        Duration::from_secs_f64(self.minutes.unwrap_or(default) * 60.0)
    }

    fn deadline(&self) -> Duration {
        let default = if self.changes.is_some() { 10 } else { 2 };
        Duration::from_secs(self.deadline_seconds.unwrap_or(default))
    }

    /// What the nodes run.
    fn program(&self) -> Result<Program, Error> {
        let name = self.mutant.as_ref().map_or("kvd", |_| "kvd-mutant");
        let kvd = match &self.kvd {
            Some(path) => path.clone(),
            None => process::beside_this_program(name)?,
        };
        match (kvd.exists(), &self.mutant) {
            (true, mutant) => Ok(Program {
                kvd,
                mutant: mutant.clone(),
                descriptors: None,
            }),
            (false, None) => Err(Error::NoKvd(kvd)),
            (false, Some(_)) => Err(Error::NoMutant(kvd)),
        }
    }
}

/// Why a run could not take place. What a run finds is in its [`Report`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No program to run.
    #[error(
        "there is no kvd at {0}: build it with `cargo build --release -p torc-server`, or name it with --kvd"
    )]
    NoKvd(PathBuf),
    /// No program that breaks rules.
    #[error(
        "there is no kvd-mutant at {0}: build it with `cargo build --release -p torc-server \
         --features mutants --bin kvd-mutant`, or name it with --kvd"
    )]
    NoMutant(PathBuf),
    /// The machine refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The cluster did not come to be.
    #[error("the cluster did not serve within {0:?} of its start {1}")]
    NotFounded(Duration, String),
    /// The machine refused a network.
    #[error("no network namespaces ({0}): run as root, or leave out --real-network")]
    NoNetwork(String),
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
    let no_small_disks = if Fault::chosen(options).contains(&Fault::FullDisk) {
        None
    } else {
        Some("not asked for".to_owned())
    };
    let mut group = Group::found(options.program()?, options, no_small_disks).await?;
    let recorder = Arc::new(Recorder::default());
    let over = Arc::new(AtomicBool::new(false));
    let clients = clients::spawn(options, &group, &recorder, &over).await?;
    let mut report = Report::new(options, &group);
    nemesis::torment(options, &mut group, &mut report).await;
    over.store(true, Ordering::Relaxed);
    futures::future::join_all(clients).await;
    report.note_end(&recorder);
    aftermath::inspect(&group, &recorder, &mut report).await;
    report.judge(recorder.finish(), options.mode).await;
    if !report.is_good() {
        report.keep(&mut group, options.keep.as_deref())?;
    }
    Ok(report)
}
