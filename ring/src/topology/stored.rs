//! What of a topology is written to disk and sent in snapshots; the rest is derived.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use torc_record::{DigestKey, Epoch, NamespaceId, NodeSlot};

use super::{
    ClusterId, MAX_MEMBERS, Member, MemberState, NewMember, Topology, TopologyError, Transition,
};
use crate::{Change, NodeId, NodeSpec, Partitions, Placement, Ring, allocate};

/// Stored bytes that are no topology, though they have its form. Replace the node by
/// one with an empty data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a malformed topology: {0}")]
pub struct MalformedTopology(&'static str);

/// What is written to disk and sent in snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) cluster: ClusterId,
    pub(super) digest_key: DigestKey,
    pub(super) partitions: Partitions,
    pub(super) replicas: u8,
    pub(super) positions: u16,
    pub(super) epoch: Epoch,
    pub(super) next_node: u64,
    pub(super) members: BTreeMap<NodeId, Member>,
    pub(super) namespaces: BTreeMap<String, NamespaceId>,
    pub(super) ring: Ring,
    pub(super) epochs: Vec<Epoch>,
    pub(super) transition: Option<Transition>,
    pub(super) last_transition: Option<Transition>,
}

impl TryFrom<Stored> for Topology {
    type Error = MalformedTopology;

    fn try_from(stored: Stored) -> Result<Self, MalformedTopology> {
        if stored.epochs.len() != stored.partitions.count() as usize {
            return Err(MalformedTopology("not one epoch a partition"));
        }
        if stored.ring.is_empty() {
            return Err(MalformedTopology("a ring without positions"));
        }
        let unknown = |node: NodeId| !stored.members.contains_key(&node);
        if stored.ring.nodes().into_iter().any(unknown) {
            return Err(MalformedTopology("a position of a node that is no member"));
        }
        Ok(Self::over(stored))
    }
}

impl Topology {
    /// Adds what is derived.
    pub(super) fn over(stored: Stored) -> Self {
        let current = stored.placement(&stored.ring);
        let transition = stored.transition.as_ref();
        let target = transition.map(|t| stored.placement(&t.target));
        Self {
            stored,
            current,
            target,
        }
    }
}

impl From<Topology> for Stored {
    fn from(topology: Topology) -> Self {
        topology.stored
    }
}

impl Stored {
    pub(super) fn specs(&self) -> BTreeMap<NodeId, NodeSpec> {
        self.members
            .iter()
            .map(|(id, member)| (*id, member.spec(*id)))
            .collect()
    }

    pub(super) fn placement(&self, ring: &Ring) -> Placement {
        Placement::compute(ring, self.partitions, self.replicas, &self.specs())
    }

    fn free_slot(&self) -> Option<NodeSlot> {
        let used: BTreeSet<NodeSlot> = self.members.values().map(|member| member.slot).collect();
        (0..MAX_MEMBERS as u16)
            .map(NodeSlot)
            .find(|slot| !used.contains(slot))
    }

    pub(super) fn admit(
        &mut self,
        new: NewMember,
        state: MemberState,
    ) -> Result<NodeId, TopologyError> {
        let slot = self.free_slot().ok_or(TopologyError::TooManyMembers)?;
        let id = NodeId(self.next_node);
        self.next_node += 1;
        self.members.insert(
            id,
            Member {
                slot,
                state,
                identity: new,
            },
        );
        Ok(id)
    }

    pub(super) fn allocate(&self, change: Change) -> Result<Ring, crate::AllocateError> {
        let specs = self.specs();
        allocate(
            &self.ring,
            self.partitions,
            self.replicas,
            self.positions,
            &specs,
            change,
        )
    }
}
