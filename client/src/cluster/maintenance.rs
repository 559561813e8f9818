//! Results of flush and compaction.

use serde::Serialize;
use torc_proto::v1;
use torc_ring::NodeId;

/// A node's result, from [`Client::flush`](crate::Client::flush) and
/// [`Client::compact`](crate::Client::compact).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeMaintenance {
    /// The node.
    pub node: NodeId,
    /// Records written, tombstones included.
    pub records: u64,
    /// Slices written.
    pub slices: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Why it failed; `None` on success.
    pub problem: Option<String>,
}

impl From<v1::NodeMaintenance> for NodeMaintenance {
    fn from(wire: v1::NodeMaintenance) -> Self {
        Self {
            node: NodeId(wire.node),
            records: wire.records,
            slices: wire.slices,
            bytes: wire.bytes,
            seconds: wire.seconds,
            problem: Some(wire.problem).filter(|problem| !problem.is_empty()),
        }
    }
}
