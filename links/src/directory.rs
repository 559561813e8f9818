//! Who is who in the cluster, as the links ask for it.

use torc_proto::Fault;
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
    /// What it works at.
    pub levels: Levels,
    /// The feature level of its cluster.
    pub level: u32,
}

/// Another member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    /// Where its gRPC is, `host:port`.
    pub address: String,
    /// Its data directory.
    pub incarnation: Incarnation,
    /// Its last start that was confirmed.
    pub boot: Option<Boot>,
}

/// Knows the members as of the newest topology.
pub trait Directory: Send + Sync {
    /// This node; none while it belongs to no cluster.
    fn whoami(&self) -> Option<Whoami>;

    /// A member, this one excepted; none when there is no such member.
    fn member(&self, node: NodeId) -> Option<Contact>;

    /// A peer knows of a later start of this node's data directory: the node must end.
    fn disown(&self, why: &Fault);
}
