//! A transition: from one ring to the next, partition by partition, stage by stage.
//!
//! The stages and what must be known before each is left are the table of the
//! design's replication section. They hold for any number of replicas; with one
//! replica "a majority of the old set" is the one node that is displaced.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Fact, Proposal, Sizes};
use crate::{Change, NodeId, Partition, Ring, TransitionPlan};

/// What changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransitionKind {
    /// The node gets its share of the ring.
    Join(NodeId),
    /// The node's share goes to the others, then it is removed.
    Leave(NodeId),
}

impl TransitionKind {
    /// The node that comes or goes.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        match self {
            Self::Join(node) | Self::Leave(node) => *node,
        }
    }

    pub(super) const fn change(self) -> Change {
        match self {
            Self::Join(node) => Change::Join(node),
            Self::Leave(node) => Change::Leave(node),
        }
    }
}

/// How far a partition's move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveStage {
    /// Not begun: stable on the old nodes.
    Waiting,
    /// Newcomers copy; the old nodes serve.
    Copying,
    /// Writes go to old and new nodes, reads to the old.
    WriteBothReadOld,
    /// Writes go to old and new nodes, reads to the new.
    WriteBothReadNew,
    /// Stable on the new nodes.
    Done,
}

/// One partition on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// How far it is.
    pub stage: MoveStage,
    /// Nodes that hold it afterwards and did not before.
    pub gained: BTreeSet<NodeId>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    copied: BTreeSet<NodeId>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    snapshotted: BTreeSet<NodeId>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    adopted: BTreeSet<NodeId>,
}

impl Move {
    fn waiting(gained: BTreeSet<NodeId>) -> Self {
        Self {
            stage: MoveStage::Waiting,
            gained,
            copied: BTreeSet::new(),
            snapshotted: BTreeSet::new(),
            adopted: BTreeSet::new(),
        }
    }

    /// Enters a stage: what was known of the one before does not count in it.
    pub(super) fn enter(&mut self, stage: MoveStage) {
        self.stage = stage;
        self.copied.clear();
        self.snapshotted.clear();
        self.adopted.clear();
    }

    /// Notes a fact of the present epoch; what it adds to the bytes moved.
    pub(super) fn record(&mut self, node: NodeId, fact: Fact) -> Sizes {
        let (noted, sizes) = match fact {
            Fact::Adopted => (self.adopted.insert(node), Sizes::default()),
            Fact::Copied(sizes) => (self.copied.insert(node), sizes),
            Fact::Snapshotted(sizes) => (self.snapshotted.insert(node), sizes),
        };
        if noted { sizes } else { Sizes::default() }
    }

    /// Goes to the next stage if all that makes it safe is known.
    pub(super) fn advance(&mut self, old: &[NodeId]) -> bool {
        let adopted = old
            .iter()
            .filter(|node| self.adopted.contains(node))
            .count();
        let majority = adopted > old.len() / 2;
        let next = match self.stage {
            MoveStage::Copying if self.gained.is_subset(&self.copied) => {
                MoveStage::WriteBothReadOld
            }
            MoveStage::WriteBothReadOld if majority && self.gained.is_subset(&self.snapshotted) => {
                MoveStage::WriteBothReadNew
            }
            MoveStage::WriteBothReadNew if majority => MoveStage::Done,
            _ => return false,
        };
        self.enter(next);
        true
    }
}

/// A change of the ring in progress, or one that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// Its number: the epoch it began in.
    pub id: u64,
    /// What changes.
    pub kind: TransitionKind,
    /// The ring when it is done.
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
}

impl Transition {
    pub(super) fn new(id: u64, proposal: &Proposal, target: Ring, plan: &TransitionPlan) -> Self {
        let moves: BTreeMap<_, _> = plan
            .moves
            .iter()
            .map(|planned| (planned.partition, Move::waiting(planned.gained().collect())))
            .collect();
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
        }
    }

    /// Moves in each state: (done, active).
    #[must_use]
    pub fn counts(&self) -> (u32, u32) {
        let count = |wanted: fn(MoveStage) -> bool| {
            self.moves
                .values()
                .filter(|moving| wanted(moving.stage))
                .count() as u32
        };
        let done = count(|stage| stage == MoveStage::Done);
        let waiting = count(|stage| stage == MoveStage::Waiting);
        (done, self.moves.len() as u32 - done - waiting)
    }

    pub(super) fn is_done(&self) -> bool {
        self.moves
            .values()
            .all(|moving| moving.stage == MoveStage::Done)
    }

    /// Lets waiting moves begin, up to the bound; returns them.
    pub(super) fn activate(&mut self) -> Vec<Partition> {
        let (_, active) = self.counts();
        let free = self.parallel.saturating_sub(active) as usize;
        let waiting = self
            .moves
            .iter_mut()
            .filter(|(_, m)| m.stage == MoveStage::Waiting);
        waiting
            .take(free)
            .map(|(partition, moving)| {
                moving.enter(MoveStage::Copying);
                *partition
            })
            .collect()
    }

    pub(super) fn end(&mut self, at_ms: u64) {
        self.moves.clear();
        self.ended_at_ms = Some(at_ms);
    }
}
