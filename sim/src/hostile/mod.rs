//! `torc-sim hostile`: hostile clients against three real `kvd` processes.
//!
//! * `kind`: one kind of request or connection, with its expected outcome; `kinds`: all of them;
//!   `outcome`: what the node did.
//! * `descriptors`: the RPCs of the interface, so new ones are covered automatically.
//! * `grpc`, `frames`: HTTP/2 calls and frames whose bytes are chosen freely; `connect`: the sockets;
//!   `secure`: the certificates of a cluster with TLS.
//! * `target`: the cluster as an outsider knows it.
//! * `run`: which kinds run when; `client`: a hostile client, one of several; `work`: what the clients
//!   share; `rate`: their rate.
//! * `honest`: a client that nodes must serve meanwhile; `watch`: memory and restarts.
//! * `report`: the results.
//!
//! The seed decides order, nodes and random bytes, not timing: a run is not repeatable.
//!
//! Absent on purpose: attacks that are trivial without authentication, such as removing a member.
//! Kinds that still succeed against the service are `known`, and run only on request.

mod client;
mod connect;
mod descriptors;
mod frames;
mod grpc;
mod honest;
mod kind;
mod kinds;
mod outcome;
mod rate;
mod report;
mod run;
mod secure;
mod target;
mod watch;
mod work;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Handle;
use tokio::time::sleep;
use torc_client::NodeId;

use crate::cluster::{self, PlainCluster};
use honest::Honest;
use kind::Kind;
use report::Report;
use secure::{Attacker, Office};
use target::Target;
use watch::Watch;

/// Limit on a node's open files: low, so that attackers can exhaust it.
pub(crate) const DESCRIPTORS: u32 = 512;
/// Time between the last hostile request and the last memory sample.
const SETTLE: Duration = Duration::from_secs(1);

/// Options of a run.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Run every kind this many times [default: 1 without --seconds or --requests].
    #[arg(long)]
    rounds: Option<u64>,
    /// Run for this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Run until the nodes have received this many hostile requests.
    ///
    /// Fast kinds then repeat their request for 100 ms before the next kind has its turn. One
    /// request is one call, one HTTP/1 request or one message of the topology group; a stream
    /// between nodes counts once, whatever it carries. Floods of streams or connections count each
    /// one that the node has handled. Floods of other frames count once.
    #[arg(long)]
    requests: Option<u64>,
    /// Make at most this many hostile requests per second [default: no limit].
    #[arg(long)]
    rate: Option<u64>,
    /// Run only kinds whose names start with this; a known failure needs its whole name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Concurrent hostile clients.
    #[arg(long, default_value_t = 2)]
    connections: usize,
    /// Time to measure the honest client at rest, seconds.
    #[arg(long, default_value_t = 5)]
    rest_seconds: u64,
    /// Memory that a node may use above its use at rest, MiB.
    #[arg(long, default_value_t = 576)]
    budget_mib: u64,
    /// Fail if the honest client's p99 exceeds its p99 at rest by more than this factor.
    #[arg(long)]
    p99_ratio: Option<f64>,
    /// Give the nodes TLS. Hostile clients then are strangers without a certificate, or customers
    /// with one that may read, write and observe; a denial is as expected as any other refusal.
    #[arg(long, value_enum, value_name = "WHO")]
    secure: Option<Attacker>,
    /// Also run kinds that are known to succeed against the service.
    #[arg(long)]
    with_known: bool,
    /// Seed of order, nodes and random bytes.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The `kvd` to run. Default: the one beside this program.
    #[arg(long)]
    kvd: Option<PathBuf>,
    /// Print the kinds and exit.
    #[arg(long)]
    list: bool,
    /// Print one JSON object instead of text; with --list, one per line.
    #[arg(long)]
    json: bool,
}

/// Why a run failed to start. The findings of a run are in its [`Report`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The cluster did not start.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The library failed to do what an honest client does.
    #[error("no client: {0}")]
    Client(#[from] torc_client::Error),
    /// A node did not identify itself.
    #[error("node {0} did not identify itself")]
    Unidentified(NodeId),
    /// The interface's descriptors cannot be read.
    #[error("descriptors: {0}")]
    Descriptors(prost::DecodeError),
    /// No kind matches.
    #[error("no kind starts with {0}: --list prints the kinds")]
    NoKind(String),
    /// A certificate cannot be issued.
    #[error("certificates: {0}")]
    Certificates(torc_tls::TlsError),
    /// An identity for a certificate is invalid.
    #[error("certificates: {0}")]
    Identity(#[from] torc_tls::IdentityError),
    /// A certificate cannot be used.
    #[error("certificates: {0}")]
    Tls(rustls::Error),
    /// A certificate cannot be read.
    #[error("certificates: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// The files of the certificates cannot be written.
    #[error("writing certificates: {0}")]
    Files(std::io::Error),
    /// The machine refused a resource.
    #[error("starting a runtime: {0}")]
    Runtime(std::io::Error),
}

/// Runs the kinds; returns whether everything was as expected.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let kinds = chosen(options)?;
    if options.list {
        list(&kinds, options.json);
        return Ok(true);
    }
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    // Hostile clients have machines of their own: here they take the time that others leave.
    let hostile = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(yield_to_others)
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    let report = runtime.block_on(attack(options, kinds, hostile.handle()))?;
    for runtime in [hostile, runtime] {
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
    report.print(options.json);
    Ok(report.is_good())
}

fn chosen(options: &Options) -> Result<Vec<Kind>, Error> {
    let mut kinds = kinds::all()?;
    for kind in &mut kinds {
        kind.may_be_denied = options.secure.is_some();
    }
    if !options.only.is_empty() {
        let is_asked_for =
            |kind: &Kind| options.only.iter().any(|name| kind.name.starts_with(name));
        kinds.retain(is_asked_for);
    }
    if kinds.is_empty() {
        return Err(Error::NoKind(options.only.join(", ")));
    }
    Ok(kinds)
}

fn list(kinds: &[Kind], json: bool) {
    let mut out = std::io::stdout().lock();
    for kind in kinds {
        let (name, what, expects) = (&kind.name, &kind.what, kind.expectation());
        // If the reader has closed the pipe, only the printing ends.
        let written = if json {
            let object = serde_json::json!({
                "kind": name, "what": what, "expects": expects, "known": kind.known,
            });
            writeln!(out, "{object}")
        } else {
            let known = kind
                .known
                .map_or(String::new(), |why| format!(" KNOWN: {why}"));
            writeln!(out, "{name:<46}{what} [{expects}]{known}")
        };
        if written.is_err() {
            return;
        }
    }
}

/// This program holds more connections than a node may.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With a lower limit, kinds that hoard connections report that they cannot.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Lowers the priority of the calling thread.
fn yield_to_others() {
    // With the usual priority the honest client is slower: no more than that.
    let _ = rustix::process::setpriority_process(None, 10);
}

async fn attack(options: &Options, kinds: Vec<Kind>, hostile: &Handle) -> Result<Report, Error> {
    let dir = tempfile::tempdir().map_err(Error::Files)?;
    let office = options.secure.map(|who| Office::open(dir.path(), who));
    let office = office.transpose()?;
    let of_cluster = office.as_ref().map(|office| office.cluster.clone());
    let mut cluster = PlainCluster::found(options.kvd.clone(), DESCRIPTORS, of_cluster).await?;
    let of_node = office.as_ref().map(|office| &office.node);
    let target = Arc::new(Target::learn(&cluster, of_node).await?);
    if let Some(office) = &office {
        connect::use_tls(office.disguises());
    }
    let honest = Honest::start(&cluster.client()?, options.seed);
    sleep(Duration::from_secs(options.rest_seconds)).await;
    let rest = honest.take_seen();
    let watch = Watch::start(cluster.nodes());
    let mut report = Report {
        seed: options.seed,
        budget_mib: options.budget_mib,
        p99_ratio: options.p99_ratio,
        is_counting: options.requests.is_some(),
        rest,
        ..Report::default()
    };
    let is_run = |kind: &Kind| {
        // With TLS only a node may do these, and no hostile client is one.
        let is_withstood = kind.known.is_none() || options.secure.is_some();
        is_withstood || options.with_known || options.only.contains(&kind.name)
    };
    let (kinds, skipped): (Vec<_>, Vec<_>) = kinds.into_iter().partition(is_run);
    let skipped = skipped.into_iter();
    report.skipped = skipped
        .filter_map(|kind| Some((kind.name, kind.known?)))
        .collect();
    report.expect(&kinds);
    let mut report = run::run(options, kinds, &target, &watch, report, hostile).await;
    sleep(SETTLE).await;
    let (under, troubles) = honest.finish().await;
    report.under = under;
    report.troubles.extend(troubles);
    report.troubles.extend(cluster.ended());
    let restarted = watch.restarted().into_iter();
    report
        .troubles
        .extend(restarted.map(|node| format!("node {node} is not the process that it was")));
    report.memory = watch.memory();
    report.judge();
    if !report.is_good() {
        report.kept = cluster.keep();
    }
    Ok(report)
}
