//! `torc-sim cluster`: injects faults into real `kvd` processes while clients record histories.
//!
//! * `process`: one `kvd`, with its faults: kills, stops, cut links, a wrong clock; `disk`:
//!   a disk that can be filled.
//! * `network`: nodes in network namespaces, with cut packets.
//! * `group`: all of them, founded as one cluster.
//! * `wire`: sends operations, through the client library or directly to a node.
//! * `recorder`: the histories of the keys, for the simulation's checkers.
//! * `plain`: the same cluster without faults, for `torc-sim hostile`.
//! * `clients`: the requests of clients.
//! * `nemesis`: one fault at a time, from the seed; `probes`: check that every node serves again.
//! * `changes`: nodes that join, leave and are replaced meanwhile.
//! * `eventual`: the checks of `eventual` keys.
//! * `generations`: a static namespace whose generations change meanwhile.
//! * `aftermath`: the healed cluster: last reads, a scan, equal replicas.
//! * `report`: the results; the files of a failed run.
//!
//! The seed decides faults and requests, not their timing: a run is not repeatable.
//!
//! Absent on purpose: machines that lose power.

mod aftermath;
mod changes;
mod clients;
mod disk;
mod eventual;
mod fault;
mod generations;
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

use fault::Fault;
use generations::Generations;
use group::Group;
pub(crate) use plain::{PlainCluster, PlainNode};
pub(crate) use process::Certificates;
use process::Program;
use recorder::Recorder;
use report::Report;

/// Options of a run.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "these are flags")]
pub(crate) struct Options {
    /// Time to inject faults, minutes [default: 5; at most 60 with --kills or --changes].
    #[arg(long)]
    minutes: Option<f64>,
    /// Run until this many nodes were killed, without other faults unless you request them.
    #[arg(long)]
    kills: Option<u64>,
    /// Run until this many nodes have joined, left or been replaced, without other faults
    /// unless you request them.
    #[arg(long)]
    changes: Option<u64>,
    /// Time that a stopped node pauses, seconds. Default: random, up to 5.
    #[arg(long)]
    pause_seconds: Option<u64>,
    /// Deadline of the library's operations, seconds. Default: 10 with --changes, else 2.
    #[arg(long)]
    deadline_seconds: Option<u64>,
    /// Use the client library, which asks leads, for all clients. Default: every other client
    /// asks any node, so several nodes coordinate writes of one key.
    #[arg(long)]
    by_library: bool,
    /// Rule that all nodes break, by running `kvd-mutant` instead of `kvd`.
    #[arg(long)]
    mutant: Option<String>,
    /// Number of nodes, at least the number of replicas.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=9))]
    nodes: u8,
    /// Replicas of each partition.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// How the replicas of a key agree.
    #[arg(long, value_enum, default_value_t = Mode::Linearizable)]
    mode: Mode,
    /// Also promote generations of a static namespace, one after the other, and check all reads of
    /// it.
    #[arg(long)]
    generations: bool,
    /// Seed of faults and requests.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of partitions. With few, each is compared and collected often.
    #[arg(long, default_value_t = 64)]
    partitions: u32,
    /// Concurrent clients.
    #[arg(long, default_value_t = 12)]
    clients: u32,
    /// The `kvd` to run. Default: the one beside this program.
    #[arg(long)]
    kvd: Option<PathBuf>,
    /// Run each node in its own network namespace, so faults cut and delay packets,
    /// those of the topology group included. Needs root, `ip`, `nft` and `tc`.
    #[arg(long)]
    real_network: bool,
    /// Inject only these faults, by name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Fault>,
    /// Directory to keep a failed run in. Default: the system's temporary directory.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// The mode of the namespace that clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Judged by the simulation's checkers.
    Linearizable,
    /// The last writer wins: checks that no acknowledged write is lost, and that every version has
    /// its own value.
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

    /// The program of the nodes.
    fn program(&self) -> Result<Program, Error> {
        let name = self.mutant.as_ref().map_or("kvd", |_| "kvd-mutant");
        let kvd = match &self.kvd {
            Some(path) => path.clone(),
            None => torc_testkit::programs_dir()
                .map_err(Error::io("finding this program"))?
                .join(name),
        };
        match (kvd.exists(), &self.mutant) {
            (true, mutant) => Ok(Program {
                kvd,
                mutant: mutant.clone(),
                descriptors: None,
                tls: None,
            }),
            (false, None) => Err(Error::NoKvd(kvd)),
            (false, Some(_)) => Err(Error::NoMutant(kvd)),
        }
    }
}

/// Why a run failed to start. The findings of a run are in its [`Report`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No program to run.
    #[error(
        "no kvd at {0}: build it with `cargo build --release -p torc-server`, or pass its path with --kvd"
    )]
    NoKvd(PathBuf),
    /// No program that breaks rules.
    #[error(
        "no kvd-mutant at {0}: build it with `cargo build --release -p torc-server \
         --features mutants --bin kvd-mutant`, or pass its path with --kvd"
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
    #[error("cannot create network namespaces ({0}): run as root, or omit --real-network")]
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

/// Runs until the time is over. Returns whether everything was right.
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
    let generations = if options.generations {
        Some(Generations::start(options, &group, &over).await?)
    } else {
        None
    };
    let mut report = Report::new(options, &group);
    nemesis::torment(options, &mut group, &mut report).await;
    over.store(true, Ordering::Relaxed);
    futures::future::join_all(clients).await;
    report.note_end(&recorder);
    if let Some(generations) = generations {
        generations.end(&group, &mut report).await;
    }
    aftermath::inspect(&group, &recorder, &mut report).await;
    report.judge(recorder.finish(), options.mode).await;
    if !report.is_good() {
        report.keep(&mut group, options.keep.as_deref())?;
    }
    Ok(report)
}
