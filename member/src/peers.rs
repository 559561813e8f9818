//! Connections to the other nodes.

use std::sync::Arc;
use std::time::Duration;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::replica_client::ReplicaClient;
use torc_proto::{Fault, MAX_MESSAGE_LEN, Names, Reason};
use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, RoutingTable};
use torc_tls::{Pool, Traffic};

/// Messages between nodes may be larger than those of clients, because they carry whole pages.
const MAX_PEER_MESSAGE_LEN: usize = 2 * MAX_MESSAGE_LEN;

/// A channel whose requests name their recipient.
pub type Named = InterceptedService<Channel, Names>;

/// Clients of the other nodes' services.
#[derive(Debug)]
pub struct Peers(
    /// The node's connections.
    pub Arc<Pool>,
);

impl Peers {
    fn channel(&self, address: &str) -> Result<Channel, Fault> {
        self.0.channel(address, Traffic::Bulk).map_err(|error| {
            Fault::new(
                Reason::Invalid,
                format!("`{address}` is not host:port: {error}"),
            )
        })
    }

    /// A channel to a node that may not be a member, to identify or enlist it.
    ///
    /// # Errors
    /// `INVALID` if the address is not HOST:PORT.
    pub fn stranger(&self, address: &str) -> Result<ReplicaClient<Channel>, Fault> {
        Ok(ReplicaClient::new(self.channel(address)?))
    }

    fn named(&self, to: &Recipient) -> Result<Named, Fault> {
        let channel = self.channel(to.address())?;
        Ok(InterceptedService::new(channel, to.names()))
    }

    /// The service `Replica` of a member.
    ///
    /// # Errors
    /// `INVALID` if its address is not HOST:PORT.
    pub fn replica(&self, to: &Recipient) -> Result<ReplicaClient<Named>, Fault> {
        Ok(ReplicaClient::new(self.named(to)?)
            .max_decoding_message_size(MAX_PEER_MESSAGE_LEN)
            .max_encoding_message_size(MAX_PEER_MESSAGE_LEN))
    }

    /// The service `Kv` of a member.
    ///
    /// # Errors
    /// `INVALID` if its address is not HOST:PORT.
    pub fn kv(&self, to: &Recipient) -> Result<KvClient<Named>, Fault> {
        Ok(KvClient::new(self.named(to)?)
            .max_decoding_message_size(MAX_PEER_MESSAGE_LEN)
            .max_encoding_message_size(MAX_PEER_MESSAGE_LEN))
    }

    /// The service `Cluster` of a member.
    ///
    /// # Errors
    /// `INVALID` if its address is not HOST:PORT.
    pub fn cluster(&self, to: &Recipient) -> Result<ClusterClient<Named>, Fault> {
        Ok(ClusterClient::new(self.named(to)?)
            .max_decoding_message_size(MAX_PEER_MESSAGE_LEN)
            .max_encoding_message_size(MAX_PEER_MESSAGE_LEN))
    }
}

/// A member of this node's cluster, to send a request to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recipient {
    cluster: ClusterId,
    node: NodeId,
    address: String,
}

impl Recipient {
    /// A member of the topology.
    ///
    /// # Errors
    /// `OWNER_UNREACHABLE` if the node is not a member.
    pub fn of(table: &RoutingTable, node: NodeId) -> Result<Self, Fault> {
        let address = table.peer_address(node).ok_or_else(|| {
            let message =
                format!("node {node} is no longer a member: refresh the topology and retry");
            Fault::new(Reason::OwnerUnreachable, message)
        })?;
        Ok(Self {
            cluster: table.cluster,
            node,
            address: address.to_owned(),
        })
    }

    /// The node to which a request is passed on for a caller that cannot reach it. A request is
    /// passed on once.
    ///
    /// # Errors
    /// `STALE_EPOCH` if it was passed on already, or if the node is not a member.
    pub fn passed_on(
        table: &RoutingTable,
        node: NodeId,
        was_passed_on: bool,
    ) -> Result<Self, Fault> {
        let recipient = Self::of(table, node).ok().filter(|_| !was_passed_on);
        recipient.ok_or_else(|| {
            let message = format!("there is no node {node} at this address: refresh the topology");
            Fault::new(Reason::StaleEpoch, message).at(table.epoch)
        })
    }

    /// Its id.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Where its peer port is reached.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What requests to it must name.
    #[must_use]
    pub fn names(&self) -> Names {
        Names::of_node(self.cluster, self.node)
    }
}

/// A request to another node that must be answered within `limit`.
pub fn within<T>(limit: Duration, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(limit);
    request
}
