//! Nodes that a test cuts off from the group.

use std::fmt;
use std::sync::Arc;

use torc_ring::NodeId;

/// Says, for tests, whether calls to a node do not leave. Asked before every call; cloning shares it.
#[derive(Clone)]
pub struct Cuts(Arc<dyn Fn(NodeId) -> bool + Send + Sync>);

impl Cuts {
    /// Cuts off the nodes for which this is true.
    pub fn new(are: impl Fn(NodeId) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(are))
    }

    pub(crate) fn has(&self, node: NodeId) -> bool {
        (self.0)(node)
    }
}

impl fmt::Debug for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cuts(..)")
    }
}
