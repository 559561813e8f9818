//! A node as a member of its cluster: its identity, the topology that it has adopted, its replicas, and connections to
//! the other members.
//!
//! * [`LocalMember`]: these, for all tasks of the node.
//! * [`identity`]: the identity, durable in the node's store.
//! * [`peers`]: connections to the other members; [`addresses`]: their IP addresses.
//! * [`fault`]: what callers get from a member that cannot do what they ask.
//!
//! Absent on purpose: adopting a topology and starting the replicas, which the server does; the topology group; what
//! clients send.

pub mod addresses;
pub mod fault;
pub mod identity;
pub mod peers;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use torc_driver::Registers;
use torc_proto::{Fault, Reason};
use torc_record::{Epoch, NodeSlot};
use torc_ring::NodeId;
use torc_ring::topology::RoutingTable;

use crate::identity::Identity;
use crate::peers::{Peers, Recipient};

/// Pause before a caller asks a node again that does not serve yet.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// This node as a member of its cluster.
pub struct LocalMember {
    /// Its identity.
    pub identity: Identity,
    /// Whether the topology group has confirmed this start; until then, the node is not a replica.
    pub confirmed: watch::Sender<bool>,
    /// The newest adopted topology.
    pub routing: ArcSwapOption<RoutingTable>,
    /// The epoch of that topology, for tasks that wait for a newer one.
    pub adopted: watch::Sender<Epoch>,
    /// The replicas and coordinators, once the node has a place in the topology.
    pub registers: OnceLock<Arc<Registers>>,
    /// Connections to the other members.
    pub peers: Peers,
}

impl LocalMember {
    /// A node that has not adopted a topology yet.
    #[must_use]
    pub fn new(identity: Identity, peers: Peers) -> Self {
        Self {
            identity,
            confirmed: watch::Sender::new(false),
            routing: ArcSwapOption::empty(),
            adopted: watch::Sender::new(Epoch(0)),
            registers: OnceLock::new(),
            peers,
        }
    }

    /// The routing table, once the node is a member of a founded cluster.
    ///
    /// # Errors
    /// `NOT_SERVING` before.
    pub fn routing(&self) -> Result<Arc<RoutingTable>, Fault> {
        self.routing.load_full().ok_or_else(|| {
            let advice = match self.identity.node() {
                Some(_) => "the node does not know its cluster's topology yet: retry",
                None => "this node belongs to no cluster: bootstrap it, or join it to one",
            };
            Fault::new(Reason::NotServing, advice).retry_after(RETRY_AFTER)
        })
    }

    /// The replicas and coordinators, once the node has a place in the topology.
    ///
    /// # Errors
    /// `NOT_SERVING` before.
    pub fn registers(&self) -> Result<&Arc<Registers>, Fault> {
        self.registers.get().ok_or_else(|| {
            let message = if *self.confirmed.borrow() {
                "this node is not in the topology that it knows yet: use another node"
            } else {
                "the topology group has not confirmed this start of the node yet, which needs a \
                 majority of its voters: use another node"
            };
            Fault::new(Reason::NotServing, message).retry_after(RETRY_AFTER)
        })
    }

    /// Whether this node runs the operations of a partition that `lead` leads: as the lead, or
    /// while the lead is out of reach.
    #[must_use]
    pub fn goes_here(&self, lead: NodeId) -> bool {
        let is_lead = self.identity.node() == Some(lead);
        let registers = self.registers.get();
        is_lead || registers.is_some_and(|registers| registers.is_out_of_reach(lead))
    }

    /// Another member, to send requests to.
    ///
    /// # Errors
    /// `OWNER_UNREACHABLE` if the node is not a member; `NOT_SERVING` without a topology.
    pub fn recipient(&self, node: NodeId) -> Result<Recipient, Fault> {
        Recipient::of(&*self.routing()?, node)
    }

    /// This node's id.
    ///
    /// # Errors
    /// `NOT_SERVING` if it belongs to no cluster.
    pub fn node(&self) -> Result<NodeId, Fault> {
        self.identity.node().ok_or_else(|| {
            Fault::new(
                Reason::NotServing,
                "this node belongs to no cluster: bootstrap it, or join it to one",
            )
        })
    }

    /// This node's number in ballots.
    ///
    /// # Errors
    /// `NOT_SERVING` if it is not a member.
    pub fn slot(&self, table: &RoutingTable) -> Result<NodeSlot, Fault> {
        let member = table.members.get(&self.node()?);
        member.map(|member| member.slot).ok_or_else(|| {
            Fault::new(
                Reason::NotServing,
                "the node is no longer a member of its cluster",
            )
        })
    }
}
