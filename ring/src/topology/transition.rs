//! A transition from one ring or number of replicas to the next, partition by partition,
//! stage by stage.
//!
//! A partition's [`Config`](crate::replicas::Config) has its stage; this module tracks
//! which partitions wait, move and are done. An abort reverses the transition: waiting
//! partitions are done, moving and moved ones return, by the same stages.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a partition has at most one move"
)]

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use torc_record::{Epoch, Layer};

use crate::{Change, NodeId, Partition, Ring, TransitionPlan, Weight};

/// The amount of data that a transition moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Records, tombstones included.
    pub records: u64,
    /// Key and value bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Sizes {
    fn add_assign(&mut self, other: Self) {
        // Nodes report these: a wrong figure must not stop the group.
        self.records = self.records.saturating_add(other.records);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A transition to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// What changes.
    pub kind: TransitionKind,
    /// Epoch of the topology that the plan is based on.
    pub based_on: Epoch,
    /// Most partitions in flight at a time, at least 1.
    pub parallel: u32,
    /// The planned amount.
    pub planned: Sizes,
    /// Unix milliseconds.
    pub at_ms: u64,
    /// Whether a node may leave although fewer nodes than replicas stay: the replica
    /// sets then shrink.
    pub force: bool,
}

/// The kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransitionKind {
    /// The node gets its share of the ring.
    Join(NodeId),
    /// The node's share goes to the others, then it is removed.
    Leave(NodeId),
    /// A new node takes over the positions of another, which is then removed.
    Replace {
        /// The old node.
        old: NodeId,
        /// The new node.
        new: NodeId,
    },
    /// The node's share changes to another weight.
    Reweight {
        /// The node.
        node: NodeId,
        /// Its weight afterwards.
        weight: Weight,
    },
    /// Every partition of a layer gets another number of replicas, on the same ring; so
    /// has every namespace in it when the transition has ended.
    Alter {
        /// The layer.
        layer: Layer,
        /// Replicas of each partition afterwards.
        replicas: u8,
    },
}

impl TransitionKind {
    /// The node that joins, leaves or changes; for a replacement, the new node. `None`
    /// for an alteration.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        match self {
            Self::Join(node)
            | Self::Leave(node)
            | Self::Replace { new: node, .. }
            | Self::Reweight { node, .. } => Some(*node),
            Self::Alter { .. } => None,
        }
    }

    /// The member that is removed at the end of the transition.
    #[must_use]
    pub const fn removes(&self) -> Option<NodeId> {
        match self {
            Self::Leave(node) | Self::Replace { old: node, .. } => Some(*node),
            Self::Join(_) | Self::Reweight { .. } | Self::Alter { .. } => None,
        }
    }

    /// The member that gets positions at the end of the transition.
    #[must_use]
    pub const fn admits(&self) -> Option<NodeId> {
        match self {
            Self::Join(node) | Self::Replace { new: node, .. } => Some(*node),
            Self::Leave(_) | Self::Reweight { .. } | Self::Alter { .. } => None,
        }
    }

    /// The layer whose number of replicas changes.
    #[must_use]
    pub const fn alters(&self) -> Option<Layer> {
        match self {
            Self::Alter { layer, .. } => Some(*layer),
            Self::Join(_) | Self::Leave(_) | Self::Replace { .. } | Self::Reweight { .. } => None,
        }
    }

    /// How the ring changes, if it does.
    pub(super) const fn change(self) -> Option<Change> {
        match self {
            Self::Join(node) => Some(Change::Join(node)),
            Self::Leave(node) => Some(Change::Leave(node)),
            Self::Replace { old, new } => Some(Change::Replace { old, new }),
            Self::Reweight { node, .. } => Some(Change::Reweight(node)),
            Self::Alter { .. } => None,
        }
    }
}

/// The progress of a partition in a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Move {
    /// Not started: stable in its old place.
    Waiting,
    /// In one of the stages.
    Moving,
    /// Stable in its new place.
    Done,
}

/// A change in progress, or one that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// Its number: the epoch of its start.
    pub id: u64,
    /// The kind of change.
    pub kind: TransitionKind,
    /// The ring at the end, unless it is aborted; the same ring for an alteration.
    pub target: Ring,
    /// Most partitions in flight at a time.
    pub parallel: u32,
    /// Partitions that move; emptied when the transition has ended.
    pub moves: BTreeMap<Partition, Move>,
    /// All partitions that move.
    pub total: u32,
    /// Expected to move.
    pub planned: Sizes,
    /// Moved so far.
    pub moved: Sizes,
    /// Unix milliseconds.
    pub started_at_ms: u64,
    /// Unix milliseconds; `None` while it runs.
    pub ended_at_ms: Option<u64>,
    /// Displaced nodes that were declared dead and have no vote.
    pub dead: BTreeSet<NodeId>,
    /// The namespaces whose replicas are altered, by name.
    pub namespaces: Vec<String>,
    /// Whether it was aborted.
    pub aborted: bool,
}

impl Transition {
    pub(super) fn new(id: u64, proposal: &Proposal, target: Ring, plan: &TransitionPlan) -> Self {
        let waiting = |planned: &crate::PlannedMove| (planned.partition, Move::Waiting);
        let moves: BTreeMap<_, _> = plan.moves.iter().map(waiting).collect();
        Self {
            id,
            kind: proposal.kind,
            target,
            parallel: proposal.parallel.max(1),
            total: moves.len() as u32,
            moves,
            planned: proposal.planned,
            moved: Sizes::default(),
            started_at_ms: proposal.at_ms,
            ended_at_ms: None,
            dead: BTreeSet::new(),
            namespaces: Vec::new(),
            aborted: false,
        }
    }

    /// Moves in each state: (done, moving).
    #[must_use]
    pub fn counts(&self) -> (u32, u32) {
        let count = |wanted| self.moves.values().filter(|m| **m == wanted).count() as u32;
        (count(Move::Done), count(Move::Moving))
    }

    pub(super) fn is_done(&self) -> bool {
        self.moves.values().all(|moving| *moving == Move::Done)
    }

    /// The next waiting moves, as many as `parallel` allows.
    pub(super) fn due(&self) -> Vec<Partition> {
        let (_, moving) = self.counts();
        let free = self.parallel.saturating_sub(moving) as usize;
        let waiting = self.moves.iter().filter(|(_, m)| **m == Move::Waiting);
        waiting
            .take(free)
            .map(|(partition, _)| *partition)
            .collect()
    }

    pub(super) fn set(&mut self, partition: Partition, to: Move) {
        if let Some(moving) = self.moves.get_mut(&partition) {
            *moving = to;
        }
    }

    pub(super) fn end(&mut self, at_ms: u64) {
        self.moves.clear();
        self.ended_at_ms = Some(at_ms);
    }
}
