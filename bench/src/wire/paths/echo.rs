//! Unary gets beside an echo server that is nothing but tonic.
//!
//! The echo server decodes the same request and answers with the same number of bytes. It
//! runs on one thread: what a call costs without a runtime that steals work. Both are asked
//! by the same client on the other core, without digest and route, as any gRPC client does.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codegen::Service;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic_prost::ProstCodec;
use torc_proto::v1::{GetRequest, GetResponse, Version};

use super::KEYS;
use crate::cli::Options;
use crate::kvd::Node;
use crate::ports::free_address;
use crate::records::Random;
use crate::report::{Metric, Report, TORC};
use crate::wire::closed_loop::closed_loop;
use crate::wire::server;
use crate::wire::{RATE, SERVER};
use crate::{cleanup, process};

pub(super) const CASE: &str = "one node: unary get, 64 in flight";
pub(super) const RATIO: &str = "cpu_to_tonic";
const TONIC: &str = "bare tonic";
const IN_FLIGHT: usize = 64;
/// Connections, as many as Torc's client has.
const CHANNELS: usize = 4;
const GET: PathAndQuery = PathAndQuery::from_static("/torc.v1.Kv/Get");
const ECHO: PathAndQuery = PathAndQuery::from_static("/torc.bench.Echo/Get");

/// Where to listen.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct EchoArgs {
    address: SocketAddr,
}

/// Serves until it is killed.
///
/// # Errors
/// The address is taken.
pub(crate) fn serve(args: EchoArgs) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let serving = Server::builder().add_service(Echo).serve(args.address);
    Ok(runtime.block_on(serving)?)
}

#[derive(Debug, Clone, Copy)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "torc.bench.Echo";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<GetResponse, GetRequest>::default();
            Ok(tonic::server::Grpc::new(codec).unary(Self, request).await)
        })
    }
}

impl UnaryService<GetRequest> for Echo {
    type Response = GetResponse;
    type Future = Ready<Result<tonic::Response<GetResponse>, tonic::Status>>;

    fn call(&mut self, _: tonic::Request<GetRequest>) -> Self::Future {
        const VALUE: &[u8] = &[b'v'; 100];
        ready(Ok(tonic::Response::new(GetResponse {
            found: true,
            value: Bytes::from_static(VALUE),
            version: Some(Version {
                epoch: 1,
                time: 1 << 60,
                ..Version::default()
            }),
            ..GetResponse::default()
        })))
    }
}

/// One round: a node, then the echo server. The keys of the suite must be stored.
///
/// # Errors
/// One of them does not answer.
pub(super) async fn measure(report: &mut Report, options: &Options, node: &Node) -> Result<()> {
    let address = free_address()?;
    let mut command = cleanup::bound(&std::env::current_exe()?)?;
    command.args(["echo", &address.to_string()]);
    let echo = server::start(&mut command, address).await?;
    let ours = one(report, options, TORC, node.id()?, node.grpc, GET).await?;
    let theirs = one(report, options, TONIC, echo.id(), address, ECHO).await?;
    let ratio = Metric::new(RATIO, "ratio");
    report.add(CASE, ratio, TORC, ours / theirs.max(1e-9));
    Ok(())
}

/// Processor time of a server for each call, microseconds.
async fn one(
    report: &mut Report,
    options: &Options,
    name: &'static str,
    process: u32,
    address: SocketAddr,
    path: PathAndQuery,
) -> Result<f64> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    let mut channels = Vec::new();
    for _ in 0..CHANNELS {
        channels.push(Grpc::new(endpoint.connect().await?));
    }
    let workers = || channels.iter().cloned().cycle().take(IN_FLIGHT);
    let call = async |grpc: &mut Grpc<Channel>, random: &mut Random| {
        let key = format!("bench-{:012}", random.below(KEYS)).into();
        let request = GetRequest {
            key,
            ..GetRequest::default()
        };
        grpc.ready().await?;
        let codec = ProstCodec::<GetRequest, GetResponse>::default();
        let asked = tonic::Request::new(request);
        let answer = grpc.unary(asked, path.clone(), codec).await?;
        ensure!(answer.get_ref().found, "a key was not found");
        Ok(())
    };
    let time = Duration::from_millis(if options.quick { 200 } else { 3_000 });
    closed_loop(workers(), 1, time / 10, &call).await?;
    let before = process::cpu_time(process)?;
    let sample = closed_loop(workers(), 1, time, &call).await?;
    let spent = process::cpu_time(process)?.saturating_sub(before);
    let cost = spent.as_secs_f64() * 1e6 / sample.operations.max(1) as f64;
    let rate = sample.operations as f64 / sample.took.as_secs_f64();
    report.add(CASE, SERVER, name, cost);
    report.add(CASE, RATE, name, rate);
    Ok(cost)
}
