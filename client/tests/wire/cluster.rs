//! A few [`Node`]s and the topology that they agree on.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use torc_client::{Client, ClusterId, NodeId, NodeSlot, Partition, RoutingTable, Zone};
use torc_proto::MAX_MESSAGE_LEN;
use torc_proto::v1::cluster_server::ClusterServer;
use torc_proto::v1::kv_server::KvServer;
use torc_record::{Digest, DigestKey, Epoch, NamespaceId};
use torc_ring::replicas::Config;
use torc_ring::topology::{
    Incarnation, Layers, Member, MemberState, Namespace, NamespaceMode, NewMember, PartitionState,
    Release,
};
use torc_ring::{Partitions, Ring, Weight};

use crate::node::Node;
use crate::proxy::Proxy;
use crate::service::Service;

const PARTITIONS: u32 = 8;

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Arc<Node>>,
    table: Mutex<RoutingTable>,
    serving: Vec<tokio::task::AbortHandle>,
}

pub(crate) fn digest(table: &RoutingTable, namespace: &str, key: &[u8]) -> Digest {
    Digest::of(&table.digest_key, table.namespaces[namespace].id, key)
}

impl Cluster {
    /// Nodes 1 to `count`, which lead the partitions in turn.
    pub(crate) async fn formed(count: u64) -> Self {
        let cluster = Self::unformed(count).await;
        cluster.form();
        cluster
    }

    /// The same, but the nodes belong to no cluster yet.
    pub(crate) async fn unformed(count: u64) -> Self {
        let mut nodes = Vec::new();
        let mut serving = Vec::new();
        for id in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let proxy = Proxy::closed(listener.local_addr().unwrap());
            proxy.open().await;
            let node = Node::new(NodeId(id), proxy);
            let service = Service(Arc::clone(&node));
            let kv = KvServer::new(service.clone())
                .max_decoding_message_size(MAX_MESSAGE_LEN)
                .max_encoding_message_size(usize::MAX);
            let server = Server::builder()
                .add_service(kv)
                .add_service(ClusterServer::new(service))
                .serve_with_incoming(TcpListenerStream::new(listener));
            serving.push(tokio::spawn(server).abort_handle());
            nodes.push(node);
        }
        for node in &nodes {
            node.meet(&nodes);
        }
        let table = Mutex::new(first_table(&nodes));
        Self {
            nodes,
            table,
            serving,
        }
    }

    /// Gives every node the topology.
    pub(crate) fn form(&self) {
        for node in &self.nodes {
            node.adopt(self.table());
        }
    }

    pub(crate) fn table(&self) -> RoutingTable {
        self.table.lock().unwrap().clone()
    }

    /// Changes the topology by one epoch, without informing any node.
    pub(crate) fn change(&self, change: impl FnOnce(&mut RoutingTable)) {
        let mut table = self.table.lock().unwrap();
        table.epoch.0 += 1;
        change(&mut table);
    }

    /// Moves a partition with its records to a node, and informs all nodes.
    pub(crate) fn hand(&self, partition: Partition, to: usize) {
        let from = self.table().states[partition.index()].lead;
        self.change(|table| {
            let state = &mut table.states[partition.index()];
            state.lead = self.nodes[to].id;
            state.changed = table.epoch;
            Arc::make_mut(&mut state.config).epoch = table.epoch;
        });
        let from = self.nodes.iter().find(|node| node.id == from).unwrap();
        let records = from.hand_over(partition);
        self.nodes[to].take_over(records);
        self.form();
    }

    /// Moves every partition that one node leads to another.
    pub(crate) fn hand_all(&self, from: usize, to: usize) {
        let lead = self.nodes[from].id;
        for (partition, state) in (0..).map(Partition).zip(self.table().states) {
            if state.lead == lead {
                self.hand(partition, to);
            }
        }
    }

    /// Changes the advertised address of a node, and informs all nodes.
    pub(crate) fn advertise(&self, node: usize, address: &str) {
        let id = self.nodes[node].id;
        self.change(|table| {
            let member = table.members.get_mut(&id).unwrap();
            address.clone_into(&mut member.identity.address);
        });
        self.form();
    }

    pub(crate) fn endpoint(&self, node: usize) -> String {
        format!("http://{}", self.nodes[node].proxy.address)
    }

    /// A client that knows only the first node, with long deadlines.
    pub(crate) async fn client(&self) -> Client {
        let builder = Client::builder().endpoints([self.endpoint(0)]);
        builder
            .deadline(Duration::from_secs(60))
            .connect()
            .await
            .unwrap()
    }

    /// `count` keys whose partitions a node leads, in no particular order.
    pub(crate) fn keys_of(&self, node: usize, count: usize) -> Vec<Bytes> {
        let table = self.table();
        let lead = self.nodes[node].id;
        let keys = (0..).map(|number| Bytes::from(format!("key-{number}")));
        let led = keys.filter(|key| {
            let partition =
                table.partition_of(NamespaceId::DEFAULT, &digest(&table, "default", key));
            table.state(partition).unwrap().lead == lead
        });
        led.take(count).collect()
    }

    pub(crate) fn key_of(&self, node: usize) -> Bytes {
        self.keys_of(node, 1).remove(0)
    }

    pub(crate) fn partition_of(&self, key: &[u8]) -> Partition {
        let table = self.table();
        table.partition_of(NamespaceId::DEFAULT, &digest(&table, "default", key))
    }

    /// The number of operations of this name that have arrived at all nodes.
    pub(crate) fn seen(&self, operation: &'static str) -> usize {
        self.nodes.iter().map(|node| node.seen(operation)).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in &self.serving {
            server.abort();
        }
    }
}

/// A namespace with default settings.
pub(crate) fn namespace(id: NamespaceId) -> Namespace {
    Namespace {
        id,
        mode: NamespaceMode::Linearizable,
        replicas: 1,
    }
}

fn first_table(nodes: &[Arc<Node>]) -> RoutingTable {
    let partitions = Partitions::new(PARTITIONS).unwrap();
    let mut ring = Ring::default();
    let mut states = Vec::new();
    for partition in partitions.iter() {
        let lead = nodes[partition.index() % nodes.len()].id;
        ring.insert(partitions.end(partition), lead).unwrap();
        let config = Config::founded(partition, Epoch(1), &[lead]);
        states.push(PartitionState::of(config, lead));
    }
    let member = |node: &Arc<Node>| {
        let identity = NewMember {
            incarnation: Incarnation([0; 16]),
            address: node.proxy.address.to_string(),
            peer_address: node.proxy.address.to_string(),
            http_address: String::new(),
            zone: Zone::default(),
            weight: Weight::NORMAL,
            release: Release::ours(),
        };
        let member = Member {
            slot: NodeSlot(node.id.0 as u16),
            state: MemberState::Active,
            identity,
        };
        (node.id, member)
    };
    RoutingTable {
        cluster: ClusterId([5; 16]),
        digest_key: DigestKey([9; 32]),
        epoch: Epoch(1),
        feature_level: 1,
        partitions,
        layers: Layers::base(1),
        members: nodes.iter().map(member).collect(),
        ring,
        states,
        namespaces: [("default".to_owned(), namespace(NamespaceId::DEFAULT))].into(),
        generations: [].into(),
        restored: [].into(),
        authorities: Vec::new(),
    }
}
