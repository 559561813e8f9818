//! The routing table: what nodes and clients need to know of a topology.

use std::collections::BTreeMap;

use torc_record::{Digest, DigestKey, Epoch, NamespaceId};

use super::{ClusterId, Member, MoveStage};
use crate::{NodeId, Partition, Partitions, Placement, PreferenceList, Ring, Token};

/// Stage of a partition, see the module of transitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Served by its preference list alone.
    Stable,
    /// Newcomers copy; the old nodes serve.
    Copying,
    /// Writes go to old and new nodes, reads to the old.
    WriteBothReadOld,
    /// Writes go to old and new nodes, reads to the new.
    WriteBothReadNew,
}

/// One partition: who serves it, in which epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// Number of the topology that last changed this partition.
    pub epoch: Epoch,
    /// Its stage.
    pub stage: Stage,
    /// The node that operations go to.
    pub lead: NodeId,
    /// The preference list; the old one while the partition moves.
    pub nodes: PreferenceList,
    /// The new preference list while the partition moves.
    pub next: Option<PreferenceList>,
}

impl PartitionState {
    pub(super) fn new(
        epoch: Epoch,
        stage: MoveStage,
        current: &Placement,
        target: Option<&Placement>,
        partition: Partition,
    ) -> Self {
        // A topology has members with positions, so every partition has a lead; 0 names nobody.
        let of = |placement: &Placement| {
            (
                placement.list(partition),
                placement.lead(partition).unwrap_or(NodeId(0)),
            )
        };
        let old = of(current);
        let new = of(target.unwrap_or(current));
        let (stage, nodes, next, lead) = match stage {
            MoveStage::Waiting => (Stage::Stable, old.0, None, old.1),
            MoveStage::Copying => (Stage::Copying, old.0, Some(new.0), old.1),
            MoveStage::WriteBothReadOld => (Stage::WriteBothReadOld, old.0, Some(new.0), old.1),
            MoveStage::WriteBothReadNew => (Stage::WriteBothReadNew, old.0, Some(new.0), new.1),
            MoveStage::Done => (Stage::Stable, new.0, None, new.1),
        };
        Self {
            epoch,
            stage,
            lead,
            nodes,
            next,
        }
    }

    /// Whether only the epoch differs, if anything.
    #[must_use]
    pub fn same_placement(&self, other: &Self) -> bool {
        let ignoring_epoch = Self {
            epoch: other.epoch,
            ..self.clone()
        };
        ignoring_epoch == *other
    }

    /// Whether `node` is in the old or the new preference list.
    #[must_use]
    pub fn involves(&self, node: NodeId) -> bool {
        let in_next = self.next.as_ref().is_some_and(|next| next.contains(&node));
        in_next || self.nodes.contains(&node)
    }
}

/// Routes keys to nodes. Immutable; a newer topology gives a newer table.
#[derive(Debug, Clone, PartialEq)]
pub struct RoutingTable {
    /// The cluster's id.
    pub cluster: ClusterId,
    /// The key of the digest.
    pub digest_key: DigestKey,
    /// Number of the topology.
    pub epoch: Epoch,
    /// Number of partitions.
    pub partitions: Partitions,
    /// Copies of every partition.
    pub replicas: u8,
    /// Members by id.
    pub members: BTreeMap<NodeId, Member>,
    /// Positions on the ring.
    pub ring: Ring,
    /// One state a partition, in ring order.
    pub states: Vec<PartitionState>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, NamespaceId>,
}

impl RoutingTable {
    /// The partition a digest falls into.
    #[must_use]
    pub fn partition_of(&self, digest: &Digest) -> Partition {
        self.partitions.of(Token::of(digest))
    }

    /// State of a partition; none when it is out of range.
    #[must_use]
    pub fn state(&self, partition: Partition) -> Option<&PartitionState> {
        self.states.get(partition.0 as usize)
    }

    /// gRPC address of a member.
    #[must_use]
    pub fn address(&self, node: NodeId) -> Option<&str> {
        self.members
            .get(&node)
            .map(|member| member.identity.address.as_str())
    }
}
