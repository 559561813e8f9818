//! The cluster as hostile clients see it: only facts that nodes give to any caller.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use rustls::ClientConfig;
use torc_client::{NodeId, RoutingTable};
use torc_proto::link::LinkHello;
use torc_proto::v1;
use torc_proto::{CLUSTER_HEADER, NODE_HEADER};
use torc_record::{Digest, HybridTime, NamespaceId};
use torc_ring::topology::{Boot, Incarnation, Levels};
use torc_sim::Rng;

use super::Error;
use super::grpc::{Connection, Headers};
use crate::cluster::PlainCluster;

/// A key whose value has the maximum length.
pub(crate) const LONG_KEY: &str = "hostile/long";
pub(crate) const LONG_LEN: usize = 1 << 20;

/// One node, as it identifies itself.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) grpc: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
    incarnation: Incarnation,
    pub(crate) boot: Boot,
    levels: Levels,
}

impl Node {
    /// The address that serves this call.
    pub(crate) fn port_of(&self, path: &str) -> SocketAddr {
        if is_of_nodes(path) {
            self.peer
        } else {
            self.grpc
        }
    }
}

/// Whether only nodes make this call.
pub(crate) fn is_of_nodes(path: &str) -> bool {
    let services = ["/torc.v1.Replica/", "/torc.v1.TopologyGroup/"];
    services.iter().any(|service| path.starts_with(service))
}

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) nodes: Vec<Node>,
    pub(crate) table: Arc<RoutingTable>,
}

impl Target {
    /// Asks the nodes for their identities, and stores the data that kinds read.
    pub(crate) async fn learn(
        cluster: &PlainCluster,
        as_node: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, Error> {
        let client = cluster.client()?;
        client.put(LONG_KEY, vec![7; LONG_LEN]).await?;
        let table = client.topology().await?;
        let mut nodes = Vec::new();
        for node in cluster.nodes() {
            let path = "/torc.v1.Replica/Identify";
            let empty = Bytes::from_static(&[0; 5]);
            let connected = Connection::open_with(node.grpc, as_node).await;
            let connection = connected.map_err(|_| Error::Unidentified(node.id))?;
            let answer = connection.call(path, &Headers::new(), empty).await;
            let answer = answer.message::<v1::IdentifyResponse>();
            let answer = answer.ok_or(Error::Unidentified(node.id))?;
            let incarnation = <[u8; 16]>::try_from(&answer.incarnation[..]);
            nodes.push(Node {
                id: node.id,
                grpc: node.grpc,
                peer: node.peer,
                http: node.http,
                resp: node.resp,
                incarnation: Incarnation(incarnation.map_err(|_| Error::Unidentified(node.id))?),
                boot: answer.boot.map(Boot::from).unwrap_or_default(),
                levels: Levels {
                    oldest: answer.oldest_level,
                    newest: answer.newest_level,
                },
            });
        }
        Ok(Self { nodes, table })
    }

    pub(crate) fn digest_of(&self, key: &[u8]) -> Digest {
        Digest::of(&self.table.digest_key, NamespaceId::DEFAULT, key)
    }

    /// The route of a key, with its epoch.
    pub(crate) fn route_of(&self, key: &[u8]) -> v1::Route {
        let partition = self
            .table
            .partition_of(NamespaceId::DEFAULT, &self.digest_of(key));
        let state = self.table.state(partition);
        v1::Route {
            partition: partition.0,
            epoch: state.map_or(0, |state| state.config.epoch.0),
        }
    }
}

/// One run of one kind: the node, and the random numbers.
#[derive(Debug)]
pub(crate) struct Shot {
    pub(crate) target: Arc<Target>,
    pub(crate) at: usize,
    pub(crate) rng: Rng,
}

impl Shot {
    /// A go at any node.
    pub(crate) fn any(target: &Arc<Target>, rng: &mut Rng) -> Self {
        Self {
            target: Arc::clone(target),
            at: rng.below(target.nodes.len() as u64) as usize,
            rng: Rng::new(rng.next()),
        }
    }

    /// Another go at the same node.
    pub(crate) fn again(&mut self) -> Self {
        Self {
            target: Arc::clone(&self.target),
            at: self.at,
            rng: Rng::new(self.rng.next()),
        }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.target.nodes[self.at % self.target.nodes.len()]
    }

    /// A node other than the attacked one.
    pub(crate) fn other(&self) -> &Node {
        &self.target.nodes[(self.at + 1) % self.target.nodes.len()]
    }

    /// The headers of a request between nodes.
    pub(crate) fn names(&self) -> Headers {
        vec![
            (
                CLUSTER_HEADER.to_owned(),
                self.target.table.cluster.to_string(),
            ),
            (NODE_HEADER.to_owned(), self.node().id.to_string()),
        ]
    }

    /// The greeting of another node to the attacked one.
    pub(crate) fn hello(&self) -> LinkHello {
        let other = self.other();
        LinkHello {
            cluster: self.target.table.cluster,
            node: other.id,
            incarnation: other.incarnation,
            target: self.node().id,
            boot: other.boot,
            levels: other.levels,
            ceiling: HybridTime(u64::MAX),
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.rng.next() as u8).collect()
    }
}
