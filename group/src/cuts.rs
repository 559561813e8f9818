//! Cuts nodes off from the group, for tests.

use std::fmt;
use std::sync::Arc;

use torc_ring::NodeId;

/// Decides before every call, for tests, whether to drop it. Cloning shares it.
#[derive(Clone)]
pub struct Cuts(Arc<dyn Fn(NodeId) -> bool + Send + Sync>);

impl Cuts {
    /// Cuts off the nodes for which `are` is true.
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
