//! The identity of a store's Raft state.
//!
//! A node makes Raft's promises under its number. Reusing a store under another number
//! would break them, so the store records its first use, and every later use must match.

use std::fmt;

use serde::{Deserialize, Serialize};
use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, Incarnation};

use crate::GroupError;

/// The recorded identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    /// `None` if the node founded its cluster: the topology then names it.
    pub(crate) cluster: Option<ClusterId>,
    /// The data directory of the store.
    pub(crate) directory: Incarnation,
}

/// The identity under which a store should be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A member of an existing cluster.
    Member(NodeId, ClusterId),
    /// The founder of a cluster. After a crash, its id may differ.
    Founder(NodeId, ClusterId),
}

impl Claim {
    /// The identity to record on first use.
    pub(crate) const fn first(self, directory: Incarnation) -> Identity {
        let (node, cluster) = match self {
            Self::Member(node, cluster) => (node, Some(cluster)),
            Self::Founder(node, _) => (node, None),
        };
        Identity {
            node,
            cluster,
            directory,
        }
    }

    /// Compares with the recorded identity and with the cluster of the stored topology.
    pub(crate) fn check(
        self,
        stored: Identity,
        topology: Option<ClusterId>,
    ) -> Result<Identity, GroupError> {
        let known = Identity {
            cluster: stored.cluster.or(topology),
            ..stored
        };
        let (node, same_cluster) = match self {
            Self::Member(node, cluster) => (node, known.cluster == Some(cluster)),
            Self::Founder(node, cluster) => (node, stored.cluster.is_none_or(|c| c == cluster)),
        };
        if node == stored.node && same_cluster {
            Ok(known)
        } else if known.cluster.is_none() {
            Err(GroupError::HalfFounded)
        } else {
            Err(GroupError::OtherIdentity {
                stored: known.to_string(),
                asked: self.to_string(),
            })
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of ", self.node)?;
        match self.cluster {
            Some(cluster) => write!(f, "the cluster {cluster}"),
            None => f.write_str("a cluster that is still being founded"),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(node, cluster) => write!(f, "node {node} of the cluster {cluster}"),
            Self::Founder(node, cluster) => {
                write!(f, "node {node}, founder of the cluster {cluster}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClusterId = ClusterId([1; 16]);
    const OTHER: ClusterId = ClusterId([2; 16]);
    const NODE: NodeId = NodeId(1);
    const HERE: Incarnation = Incarnation([3; 16]);

    fn refused(result: &Result<Identity, GroupError>) -> bool {
        matches!(result, Err(GroupError::OtherIdentity { .. }))
    }

    #[test]
    fn a_member_comes_back_as_itself_only() {
        let claim = Claim::Member(NODE, ONE);
        let stored = claim.first(HERE);
        assert_eq!(claim.check(stored, None), Ok(stored));
        assert!(refused(&Claim::Member(NODE, OTHER).check(stored, None)));
        assert!(refused(&Claim::Member(NodeId(2), ONE).check(stored, None)));
        assert!(refused(&Claim::Founder(NODE, OTHER).check(stored, None)));
    }

    #[test]
    fn a_founder_may_try_again_under_another_cluster_id() {
        let stored = Claim::Founder(NODE, ONE).first(HERE);
        assert!(Claim::Founder(NODE, OTHER).check(stored, None).is_ok());
        let early = Claim::Member(NODE, ONE).first(HERE);
        assert!(
            Claim::Founder(NODE, ONE).check(early, None).is_ok(),
            "started, never founded"
        );
    }

    #[test]
    fn a_founder_comes_back_as_a_member_of_what_it_founded() {
        let stored = Claim::Founder(NODE, ONE).first(HERE);
        let known = Identity {
            cluster: Some(OTHER),
            ..stored
        };
        assert_eq!(
            Claim::Member(NODE, OTHER).check(stored, Some(OTHER)),
            Ok(known)
        );
        assert!(refused(
            &Claim::Member(NODE, ONE).check(stored, Some(OTHER))
        ));
    }

    #[test]
    fn a_half_founded_store_joins_no_other_cluster() {
        let stored = Claim::Founder(NODE, ONE).first(HERE);
        let joining = Claim::Member(NodeId(4), OTHER).check(stored, None);
        assert_eq!(joining, Err(GroupError::HalfFounded));
    }
}
