//! One `Session` stream with a fixed number of operations in flight, through the generated gRPC
//! client: like a node or a client library that coalesces operations, with digest and route.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use torc_client::{Client, RoutingTable};
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::session_response::Outcome;
use torc_proto::v1::{GetRequest, PutRequest, Route, SessionRequest};
use torc_record::{Digest, NamespaceId};

use super::closed_loop::{Sample, latencies};
use super::data::Data;
use crate::records::Random;

/// A connection, and the topology that routes operations.
pub(super) struct Sessions {
    channel: Channel,
    table: std::sync::Arc<RoutingTable>,
}

impl Sessions {
    pub(super) async fn connect(client: &Client, endpoint: String) -> Result<Self> {
        let endpoint = Endpoint::from_shared(endpoint)?.tcp_nodelay(true);
        Ok(Self {
            channel: endpoint.connect().await?,
            table: client.topology().await?,
        })
    }

    pub(super) async fn gets(
        &self,
        data: &Data,
        in_flight: usize,
        time: Duration,
    ) -> Result<Sample> {
        let address = |(key, _): &(Bytes, Bytes)| {
            let (digest, route) = self.address(key);
            Operation::Get(GetRequest {
                key: key.clone(),
                digest,
                route,
                ..GetRequest::default()
            })
        };
        self.run(data.all().iter().map(address).collect(), in_flight, time)
            .await
    }

    pub(super) async fn puts(
        &self,
        data: &Data,
        in_flight: usize,
        time: Duration,
    ) -> Result<Sample> {
        let address = |(key, value): &(Bytes, Bytes)| {
            let (digest, route) = self.address(key);
            Operation::Put(PutRequest {
                key: key.clone(),
                value: value.clone(),
                digest,
                route,
                ..PutRequest::default()
            })
        };
        self.run(data.all().iter().map(address).collect(), in_flight, time)
            .await
    }

    fn address(&self, key: &[u8]) -> (Bytes, Option<Route>) {
        let digest = Digest::of(&self.table.digest_key, NamespaceId::DEFAULT, key);
        let partition = self.table.partition_of(NamespaceId::DEFAULT, &digest);
        let route = self.table.state(partition).map(|state| Route {
            partition: partition.0,
            epoch: state.config.epoch.0,
        });
        (Bytes::copy_from_slice(&digest.0), route)
    }

    async fn run(
        &self,
        operations: Vec<Operation>,
        in_flight: usize,
        time: Duration,
    ) -> Result<Sample> {
        let (requests, outgoing) = mpsc::unbounded_channel();
        let mut random = Random::of(in_flight as u64);
        let mut next = |id| {
            let operation = operations[random.below(operations.len() as u64) as usize].clone();
            let request = SessionRequest {
                id,
                operation: Some(operation),
                ..SessionRequest::default()
            };
            requests.send(request).context("the stream has ended")
        };
        let mut latencies_ns = latencies()?;
        let started = Instant::now();
        let end = started + time;
        let mut sent = vec![started; in_flight];
        for id in 0..in_flight {
            next(id as u64)?;
        }
        let outgoing = UnboundedReceiverStream::new(outgoing);
        let answers = KvClient::new(self.channel.clone())
            .session(outgoing)
            .await?;
        let mut answers = answers.into_inner();
        let mut under_way = in_flight;
        while under_way > 0 {
            let answer = answers.message().await?.context("the stream has ended")?;
            check(answer.outcome)?;
            let now = Instant::now();
            let slot = sent
                .get_mut(answer.id as usize)
                .context("an answer to nothing")?;
            latencies_ns.saturating_record((now - *slot).as_nanos() as u64);
            *slot = now;
            if now < end {
                next(answer.id)?;
            } else {
                under_way -= 1;
            }
        }
        Ok(Sample {
            operations: latencies_ns.len(),
            took: started.elapsed(),
            latencies_ns,
        })
    }
}

fn check(outcome: Option<Outcome>) -> Result<()> {
    match outcome {
        Some(Outcome::Get(found)) if !found.found => bail!("a key was not found"),
        Some(Outcome::Fault(fault)) => bail!("an operation failed: {}", fault.message),
        Some(_) => Ok(()),
        None => bail!("an answer without outcome"),
    }
}
