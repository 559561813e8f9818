//! The peer etcd, one node or several, through its gRPC interface. Declares the few messages that
//! the suite needs, with the field numbers of `etcdserverpb`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::{LocalBoxFuture, try_join_all};
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use torc_testkit::{Process, free_address};

use super::case::Work;
use super::closed_loop::{Sample, closed_loop};
use super::data::Data;
use super::server::{self, own_dir};
use super::subject::Subject;
use crate::process;

/// The peer's name in reports.
pub(super) const NAME: &str = "etcd";

/// The minimum of connections, as many as Torc's client has.
const CHANNELS: usize = 4;
/// Puts in flight while loading.
const LOADING: usize = 256;

const RANGE: PathAndQuery = PathAndQuery::from_static("/etcdserverpb.KV/Range");
const PUT: PathAndQuery = PathAndQuery::from_static("/etcdserverpb.KV/Put");

#[derive(Clone, PartialEq, prost::Message)]
struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

struct Etcd {
    processes: Vec<Process>,
    channels: Vec<Channel>,
}

/// Starts a cluster with one member, if etcd is installed.
pub(super) async fn start(dir: &Path) -> Result<Option<Box<dyn Subject>>> {
    match process::installed(NAME) {
        Some(program) => Ok(Some(start_members(&program, dir, 1).await?)),
        None => Ok(None),
    }
}

/// The named etcd, else the installed one.
///
/// # Errors
/// The named file is missing.
pub(super) fn program(named: Option<&Path>) -> Result<Option<PathBuf>> {
    let Some(named) = named else {
        return Ok(process::installed(NAME));
    };
    ensure!(named.is_file(), "there is no etcd at {}", named.display());
    Ok(Some(named.to_owned()))
}

/// The version text of an etcd, such as `etcd Version: 3.4.23`.
///
/// # Errors
/// It does not run.
pub(super) fn version(program: &Path) -> Result<String> {
    let mut command = server::command_of(program)?;
    command.arg("--version").stdout(Stdio::piped());
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let first = printed.lines().next().context("etcd tells no version")?;
    Ok(first.trim().to_owned())
}

/// Starts a cluster with this many members.
///
/// # Errors
/// A member does not start.
pub(super) async fn start_members(
    program: &Path,
    dir: &Path,
    count: usize,
) -> Result<Box<dyn Subject>> {
    let mut members = Vec::new();
    for number in 0..count {
        let url = |address| format!("http://{address}");
        let name = format!("bench-{number}");
        members.push((name, free_address()?, url(free_address()?)));
    }
    let cluster: Vec<String> = members
        .iter()
        .map(|(name, _, peer)| format!("{name}={peer}"))
        .collect();
    let cluster = cluster.join(",");
    let mut starting = Vec::new();
    for (name, client, peer) in &members {
        let mut command = server::command_of(program)?;
        let client_url = format!("http://{client}");
        command.arg("--data-dir").arg(own_dir(dir, name)?);
        command.args(["--listen-client-urls", &client_url]);
        command.args(["--advertise-client-urls", &client_url]);
        command.args(["--listen-peer-urls", peer]);
        command.args(["--initial-advertise-peer-urls", peer]);
        command.args(["--name", name, "--initial-cluster", &cluster]);
        starting.push((command, *client));
    }
    // No member serves before a majority runs.
    let starting = starting.iter_mut().map(async |(command, client)| {
        if count == 1 {
            server::start(command, *client).await
        } else {
            server::start_anywhere(command, *client).await
        }
    });
    let processes = try_join_all(starting).await?;
    let mut channels = Vec::new();
    // The same number of connections to each member.
    let connections = CHANNELS.next_multiple_of(count);
    for (_, client, _) in members.iter().cycle().take(connections) {
        let endpoint = Endpoint::from_shared(format!("http://{client}"))?;
        channels.push(endpoint.tcp_nodelay(true).connect().await?);
    }
    Ok(Box::new(Etcd {
        processes,
        channels,
    }))
}

impl Etcd {
    fn channel(&self, worker: usize) -> Grpc<Channel> {
        Grpc::new(self.channels[worker % self.channels.len()].clone())
    }
}

async fn call<Q, A>(grpc: &mut Grpc<Channel>, path: PathAndQuery, message: Q) -> Result<A>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    grpc.ready().await?;
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc
        .unary(tonic::Request::new(message), path, codec)
        .await?;
    Ok(answer.into_inner())
}

async fn put(grpc: &mut Grpc<Channel>, (key, value): (Bytes, Bytes)) -> Result<()> {
    let _: PutResponse = call(grpc, PUT, PutRequest { key, value }).await?;
    Ok(())
}

async fn get(grpc: &mut Grpc<Channel>, key: Bytes) -> Result<()> {
    let found: RangeResponse = call(grpc, RANGE, RangeRequest { key: key.clone() }).await?;
    let found = found.kvs.first().context("etcd: a key was not found")?;
    ensure!(
        found.key == key && !found.value.is_empty(),
        "etcd: another key was found"
    );
    Ok(())
}

impl Subject for Etcd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn process(&self) -> Result<u32> {
        let first = self.processes.first();
        Ok(first.context("etcd is not running")?.id())
    }

    fn cpu_time(&self) -> Result<Duration> {
        let each = self.processes.iter().map(|it| process::cpu_time(it.id()));
        each.sum()
    }

    fn load<'a>(&'a self, data: &'a Data) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async {
            let records = data.all().iter().enumerate();
            let puts = records
                .map(async |(worker, record)| put(&mut self.channel(worker), record.clone()).await);
            let mut puts = futures::stream::iter(puts).buffer_unordered(LOADING);
            while let Some(done) = puts.next().await {
                done?;
            }
            Ok(())
        })
    }

    fn run<'a>(
        &'a self,
        work: Work,
        data: &'a Data,
        time: Duration,
    ) -> LocalBoxFuture<'a, Result<Option<Sample>>> {
        Box::pin(async move {
            let channels = |in_flight| (0..in_flight).map(|worker| self.channel(worker));
            let sample = match work {
                Work::Get { in_flight } => {
                    let request = async |grpc: &mut Grpc<Channel>, random: &mut _| {
                        get(grpc, data.any(random).0.clone()).await
                    };
                    closed_loop(channels(in_flight), 1, time, request).await
                }
                Work::Put { in_flight } => {
                    let request = async |grpc: &mut Grpc<Channel>, random: &mut _| {
                        put(grpc, data.any(random).clone()).await
                    };
                    closed_loop(channels(in_flight), 1, time, request).await
                }
                _ => return Ok(None),
            };
            sample.map(Some)
        })
    }
}
