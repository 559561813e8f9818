//! A transition: from one ring or number of replicas to the next, partition by partition,
//! stage by stage.
//!
//! How far one partition is, its [`Config`](crate::replicas::Config) tells; here is which
//! partitions wait, move and are done. An abort turns the transition round: those that
//! wait are done, those that moved or had moved go back, by the same stages.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a partition has at most one move"
)]

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use torc_record::Layer;

use super::{Proposal, Sizes};
use crate::{Change, NodeId, Partition, Ring, TransitionPlan, Weight};

/// What changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransitionKind {
    /// The node gets its share of the ring.
    Join(NodeId),
    /// The node's share goes to the others, then it is removed.
    Leave(NodeId),
    /// A new node takes the positions of another, which is then removed.
    Replace {
        /// Who goes.
        old: NodeId,
        /// Who comes.
        new: NodeId,
    },
    /// The node's share grows or shrinks to another weight.
    Reweight {
        /// The node.
        node: NodeId,
        /// Its weight afterwards.
        weight: Weight,
    },
    /// Every partition of a layer gets another number of replicas, on the same ring, and
    /// every namespace in it has that number when the transition has ended.
    Alter {
        /// The layer.
        layer: Layer,
        /// Replicas of each partition afterwards.
        replicas: u8,
    },
}

impl TransitionKind {
    /// The node that comes, goes or changes; of a replacement, the one that comes. None
    /// where no node does.
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

    /// The member that is removed when the transition has ended.
    #[must_use]
    pub const fn removes(&self) -> Option<NodeId> {
        match self {
            Self::Leave(node) | Self::Replace { old: node, .. } => Some(*node),
            Self::Join(_) | Self::Reweight { .. } | Self::Alter { .. } => None,
        }
    }

    /// The member that has positions only when the transition has ended.
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

/// How far a partition of a transition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Move {
    /// Not begun: stable where it was.
    Waiting,
    /// In one of the stages.
    Moving,
    /// Stable where it is to be.
    Done,
}

/// A change in progress, or one that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// Its number: the epoch it began in.
    pub id: u64,
    /// What changes.
    pub kind: TransitionKind,
    /// The ring when it is done, unless it is aborted; the same one where replicas are altered.
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
    /// Unix milliseconds; none while it runs.
    pub ended_at_ms: Option<u64>,
    /// Displaced nodes that were declared dead: they have no vote where they go.
    pub dead: BTreeSet<NodeId>,
    /// The namespaces whose replicas are altered, by name.
    pub namespaces: Vec<String>,
    /// Whether it was aborted and goes back, or went.
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

    /// The next waiting moves, as many as the bound leaves room for.
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
