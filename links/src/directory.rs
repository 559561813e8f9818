//! The members of the cluster, as the links see them.

use torc_proto::Fault;
use torc_record::HybridTime;
use torc_ring::NodeId;
use torc_ring::topology::{Boot, ClusterId, Incarnation, Levels};

/// This node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whoami {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its id there.
    pub node: NodeId,
    /// Its data directory.
    pub incarnation: Incarnation,
    /// Its start.
    pub boot: Boot,
    /// The feature levels that it supports.
    pub levels: Levels,
    /// The feature level of its cluster.
    pub level: u32,
    /// No earlier process of its data directory has used a clock reading above this one.
    pub ceiling: HybridTime,
}

/// Another member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    /// Its gRPC address, `host:port`.
    pub address: String,
    /// Its data directory.
    pub incarnation: Incarnation,
    /// Its last confirmed start.
    pub boot: Option<Boot>,
}

/// The members as of the newest topology.
pub trait Directory: Send + Sync {
    /// This node; `None` while it belongs to no cluster.
    fn whoami(&self) -> Option<Whoami>;

    /// Another member; `None` if there is no such member.
    fn member(&self, node: NodeId) -> Option<Contact>;

    /// Reports that a peer knows a later start of this node's data directory: the node must stop.
    fn disown(&self, why: &Fault);
}
