//! Unary gets beside an echo server that is only tonic.
//!
//! The echo server decodes the same request and answers with the same number of bytes. It runs on
//! one thread: the cost of a call without a work-stealing runtime. The same client on the other
//! core calls both, without digest and route, like any gRPC client.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Endpoint, Server};
use tonic_prost::ProstCodec;
use torc_proto::v1::{GetRequest, GetResponse, Version};
use torc_testkit::{Kvd, free_address};

use crate::cleanup;
use crate::report::{Metric, Report, TORC};
use crate::wire::server;
use crate::wire::unary::{CHANNELS, GET, Gets};
use crate::wire::{RATE, SERVER};

pub(super) const CASE: &str = "one node: unary get, 64 in flight";
pub(super) const RATIO: &str = "cpu_to_tonic";
const TONIC: &str = "bare tonic";
const ECHO: PathAndQuery = PathAndQuery::from_static("/torc.bench.Echo/Get");

/// Where to listen, and the length of what is answered.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct EchoArgs {
    address: SocketAddr,
    value_bytes: u32,
}

/// Serves until it is killed.
///
/// # Errors
/// The address is in use.
pub(crate) fn serve(args: EchoArgs) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let value = vec![b'v'; args.value_bytes as usize];
    let echo = Echo {
        value: value.into(),
    };
    let serving = Server::builder().add_service(echo).serve(args.address);
    Ok(runtime.block_on(serving)?)
}

#[derive(Debug, Clone)]
struct Echo {
    value: Bytes,
}

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
        let echo = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<GetResponse, GetRequest>::default();
            Ok(tonic::server::Grpc::new(codec).unary(echo, request).await)
        })
    }
}

impl UnaryService<GetRequest> for Echo {
    type Response = GetResponse;
    type Future = Ready<Result<tonic::Response<GetResponse>, tonic::Status>>;

    fn call(&mut self, _: tonic::Request<GetRequest>) -> Self::Future {
        ready(Ok(tonic::Response::new(GetResponse {
            found: true,
            value: self.value.clone(),
            version: Some(Version {
                epoch: 1,
                time: 1 << 60,
                ..Version::default()
            }),
            ..GetResponse::default()
        })))
    }
}

/// A node, and the requests to it; their keys must be stored.
pub(super) struct Comparison<'a> {
    pub(super) node: &'a Kvd,
    pub(super) keys: u64,
    pub(super) value_bytes: u32,
    pub(super) is_quick: bool,
}

impl Comparison<'_> {
    /// One round: the node, then an echo server.
    ///
    /// # Errors
    /// One of them does not respond.
    pub(super) async fn measure(&self, report: &mut Report) -> Result<()> {
        let address = free_address()?;
        let mut command = cleanup::bound(&std::env::current_exe()?)?;
        command.args(["echo", &address.to_string(), &self.value_bytes.to_string()]);
        let echo = server::start(&mut command, address).await?;
        let (node, grpc) = (self.node.pid()?, self.node.grpc);
        let ours = self.one(report, TORC, node, grpc, GET).await?;
        let theirs = self.one(report, TONIC, echo.id(), address, ECHO).await?;
        let ratio = Metric::new(RATIO, "ratio");
        report.add(CASE, ratio, TORC, ours / theirs.max(1e-9));
        Ok(())
    }

    /// Processor time of a server per call, microseconds.
    async fn one(
        &self,
        report: &mut Report,
        name: &'static str,
        process: u32,
        address: SocketAddr,
        path: PathAndQuery,
    ) -> Result<f64> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
        let mut channels = Vec::new();
        for _ in 0..CHANNELS {
            channels.push(endpoint.connect().await?);
        }
        let gets = Gets {
            process,
            channels,
            path,
            token: None,
            keys: self.keys,
            value_bytes: self.value_bytes,
        };
        let time = Duration::from_millis(if self.is_quick { 200 } else { 3_000 });
        let (sample, cost) = gets.measure(time).await?;
        let rate = sample.operations as f64 / sample.took.as_secs_f64();
        report.add(CASE, SERVER, name, cost);
        report.add(CASE, RATE, name, rate);
        Ok(cost)
    }
}
