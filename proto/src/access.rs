//! The access that each call requires.

/// What the caller of a call must be, on a cluster that authenticates callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone: the call itself decides who may proceed.
    Anyone,
    /// A client, whatever its roles.
    Client,
    /// A client that may read.
    Read,
    /// A client that may write.
    Write,
    /// A client that may read or write; each message on the stream is checked again.
    ReadOrWrite,
    /// A client that may see the cluster's state.
    Observe,
    /// A client that may change the cluster.
    Admin,
    /// Another node.
    Node,
}

impl Access {
    /// The access that this path requires; `None` if it is not a call of `torc.v1`.
    #[must_use]
    pub fn to(path: &str) -> Option<Self> {
        include!(concat!(env!("OUT_DIR"), "/access.rs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_between_nodes_are_for_nodes_and_others_are_not() {
        assert_eq!(Access::to("/torc.v1.Replica/Link"), Some(Access::Node));
        assert_eq!(
            Access::to("/torc.v1.TopologyGroup/Vote"),
            Some(Access::Node)
        );
        let enrol = Access::to("/torc.v1.Cluster/EnrolNode");
        assert_eq!(enrol, Some(Access::Anyone));
        assert_eq!(Access::to("/torc.v1.Kv/Get"), Some(Access::Read));
        assert_eq!(Access::to("/grpc.health.v1.Health/Check"), None);
        assert_eq!(Access::to("/torc.v1.Kv/get"), None);
    }
}
