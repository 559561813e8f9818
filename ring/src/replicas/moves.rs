//! From one epoch of a partition to the next: begin, advance, exclude, abort.
//!
//! Every step is an epoch that the topology group commits. Conditions to leave a stage:
//!
//! | stage | left when |
//! |---|---|
//! | copying | every newcomer has copied the bulk |
//! | write both, read old | every newcomer has its snapshot or gather, taken in this epoch; a majority of old adopted it |
//! | write both, read new | a majority of old adopted it |
//! | write both, read old, returning | a majority of new adopted it |
//!
//! When the set shrinks, "every newcomer" includes the staying members: a version that
//! two of three hold may be at only one of the two that stay, which is safe while both
//! are asked, but not after another step. So before a smaller set reads, each of its
//! members holds what any majority of the old set held. Staying members do not copy it;
//! they vote for it, by an ordinary operation on each key that differs.
//!
//! Before the new set reads, an abort returns to the old set in one epoch. Once the new
//! set reads, one epoch is not enough: a reader of the new set that does not know of
//! the abort would miss later writes of the old set alone. So the abort first returns
//! to reading old and writing both, until a majority of the new set knows.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use torc_record::Epoch;

use super::{Config, MAX_MEMBERS, Member, Mutation, Mutations, Seat, Stage, Votes};
use crate::NodeId;

/// A replica's progress in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Milestone {
    /// The epoch is adopted, durably.
    Adopted(Epoch),
    /// The bulk is copied, durably.
    Copied(Epoch),
    /// The snapshot or the gather is complete, durably: the newcomer holds everything that the displaced
    /// replica held when it adopted this epoch; if it displaces no replica or a dead one, everything
    /// that a majority of the old set held.
    Snapshotted(Epoch),
}

impl Milestone {
    /// The epoch that it was reached in.
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        match self {
            Self::Adopted(epoch) | Self::Copied(epoch) | Self::Snapshotted(epoch) => epoch,
        }
    }
}

/// The known progress in the present epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Votes, Votes, Votes)", into = "(Votes, Votes, Votes)")]
pub struct Milestones {
    adopted: Votes,
    copied: Votes,
    snapshotted: Votes,
}

impl From<(Votes, Votes, Votes)> for Milestones {
    fn from((adopted, copied, snapshotted): (Votes, Votes, Votes)) -> Self {
        Self {
            adopted,
            copied,
            snapshotted,
        }
    }
}

impl From<Milestones> for (Votes, Votes, Votes) {
    fn from(known: Milestones) -> Self {
        (known.adopted, known.copied, known.snapshotted)
    }
}

impl Milestones {
    /// Records a node's progress. Returns whether it is new. Ignores other epochs and
    /// nodes that are not members.
    pub fn note(&mut self, config: &Config, node: NodeId, milestone: Milestone) -> bool {
        let Some(index) = config.index(node) else {
            return false;
        };
        let set = match milestone {
            Milestone::Adopted(_) => &mut self.adopted,
            Milestone::Copied(_) => &mut self.copied,
            Milestone::Snapshotted(_) => &mut self.snapshotted,
        };
        let is_news = milestone.epoch() == config.epoch && !set.contains(index);
        if is_news {
            set.insert(index);
        }
        is_news
    }

    /// Whether the stage may end.
    #[must_use]
    pub fn may_advance(&self, config: &Config, mutations: Mutations) -> bool {
        let copiers = config.copiers();
        let old_adopted = self.adopted.is_majority_of(config.old, config.excluded);
        match config.stage {
            Stage::Stable => false,
            Stage::Copying => self.copied.covers(copiers),
            Stage::WriteBothReadOld if config.returning => {
                self.adopted.is_majority_of(config.new, Votes::NONE)
            }
            Stage::WriteBothReadOld if mutations.has(Mutation::BulkIsSnapshot) => old_adopted,
            Stage::WriteBothReadOld => old_adopted && self.snapshotted.covers(copiers),
            Stage::WriteBothReadNew => old_adopted,
        }
    }

    /// Whether displaced replicas may delete: a majority has adopted the stable epoch.
    #[must_use]
    pub fn may_discard(&self, config: &Config) -> bool {
        config.stage == Stage::Stable && self.adopted.is_majority_of(config.old, Votes::NONE)
    }
}

/// Why a partition cannot make this change. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// Wait until the present move has ended, or abort it.
    #[error("the partition is already moving: wait for it or abort it")]
    Moving,
    /// There is no move to abort or continue.
    #[error("the partition is not moving")]
    NotMoving,
    /// The new set equals the old one, or the node is already excluded.
    #[error("nothing would change")]
    NoChange,
    /// The set is empty or too large: at most five old and five new members.
    #[error("{wanted} replicas are not possible: choose 1 to 5")]
    BadSize {
        /// Requested number of replicas.
        wanted: usize,
    },
    /// The node is not a displaced replica, so this move cannot treat it as dead.
    #[error("node {node} is not displaced by this move: replace it first")]
    NotDisplaced {
        /// The node.
        node: NodeId,
    },
    /// Without the dead nodes, no majority is left to gather from. Wait for them to return, or
    /// force the change and lose data that only they held.
    #[error(
        "without the dead node, some keys have no majority of replicas left: wait for the node to come \
         back, or force the change and lose data that only it held"
    )]
    NoMajority,
    /// Too late to exclude: the new set already serves reads, or the move is going back.
    #[error("too late to exclude a node: wait for the move to finish")]
    TooLate,
    /// Epochs only grow.
    #[error("epoch {given} does not come after {current}")]
    EpochNotLater {
        /// The epoch given.
        given: Epoch,
        /// The epoch of the configuration.
        current: Epoch,
    },
}

/// The next epoch.
impl Config {
    /// The members that must copy before the new set may read.
    #[must_use]
    pub fn copiers(&self) -> Votes {
        self.seats.iter().fold(Votes::NONE, |set, seat| {
            set.union(Votes::one(seat.newcomer))
        })
    }

    /// Starts a move to the nodes `to`; displaced nodes in `dead` never count.
    ///
    /// # Errors
    /// [`MoveError`]; the configuration is unchanged in any case.
    pub fn begin(&self, epoch: Epoch, to: &[NodeId], dead: &[NodeId]) -> Result<Self, MoveError> {
        self.check_later(epoch)?;
        if self.stage != Stage::Stable {
            return Err(MoveError::Moving);
        }
        if to.is_empty() || to.len() > MAX_MEMBERS / 2 {
            return Err(MoveError::BadSize { wanted: to.len() });
        }
        let mut next = self.clone();
        next.epoch = epoch;
        next.stage = Stage::Copying;
        let gone = |index: &usize| !to.contains(&self.members[*index].node);
        let mut displaced: Vec<_> = self.old.iter().filter(gone).collect();
        displaced.reverse();
        // In a smaller set, one seat per newcomer is not enough: a version held by a quorum of the
        // old set may be at too few of the staying members to meet each of their quorums.
        let shrinks = to.len() < self.old.count() as usize;
        for &node in to {
            let known = next.index(node);
            let index = known.unwrap_or(next.members.len());
            if known.is_none() {
                next.members.push(Member { node, since: epoch });
            }
            if known.is_none() || shrinks {
                let displaced = displaced.pop().filter(|_| !shrinks);
                next.seats.push(Seat {
                    newcomer: index,
                    displaced,
                });
            }
            next.new.insert(index);
        }
        if next.seats.is_empty() {
            return Err(MoveError::NoChange);
        }
        for &node in dead {
            next = next.excluding(node)?;
        }
        Ok(next)
    }

    /// The next stage. Check [`Milestones::may_advance`] first.
    ///
    /// # Errors
    /// [`MoveError::NotMoving`], [`MoveError::EpochNotLater`].
    pub fn advance(&self, epoch: Epoch, mutations: Mutations) -> Result<Self, MoveError> {
        self.check_later(epoch)?;
        let stage = match self.stage {
            Stage::Stable => return Err(MoveError::NotMoving),
            Stage::Copying if mutations.has(Mutation::DirectSwitch) => Stage::Stable,
            Stage::Copying => Stage::WriteBothReadOld,
            Stage::WriteBothReadOld if mutations.has(Mutation::NoReadNewStage) => Stage::Stable,
            Stage::WriteBothReadOld if self.returning => return Ok(self.end(epoch, self.old)),
            Stage::WriteBothReadOld => Stage::WriteBothReadNew,
            Stage::WriteBothReadNew => Stage::Stable,
        };
        if stage == Stage::Stable {
            return Ok(self.end(epoch, self.new));
        }
        Ok(self.enter(epoch, stage))
    }

    /// Excludes a dead, displaced replica for the rest of the move: its successor
    /// gathers from a majority of the others instead.
    ///
    /// # Errors
    /// [`MoveError`] if it is not displaced, is already excluded, is not the only dead one, or it
    /// is too late.
    pub fn exclude(&self, epoch: Epoch, node: NodeId) -> Result<Self, MoveError> {
        self.check_later(epoch)?;
        match self.stage {
            Stage::Stable => return Err(MoveError::NotMoving),
            Stage::WriteBothReadNew => return Err(MoveError::TooLate),
            Stage::WriteBothReadOld if self.returning => return Err(MoveError::TooLate),
            Stage::Copying | Stage::WriteBothReadOld => {}
        }
        if self
            .index(node)
            .is_some_and(|at| self.excluded.contains(at))
        {
            return Err(MoveError::NoChange);
        }
        self.enter(epoch, self.stage).excluding(node)
    }

    /// The replicas with which the partition can continue without these nodes; `None` if
    /// its quorums do not need them.
    ///
    /// A set is complete if every majority of it knows every acknowledged write: the old one is, and
    /// the new one from when it first reads. If a complete set keeps its majority, this is that
    /// whole set, and nothing is lost. Else it is survivors, possibly none:
    ///
    /// * of both sets, if both are complete and at most two members survive;
    /// * else of the reading set, where at most two are left.
    ///
    /// Every later quorum is then all of them. A newcomer that still copies is never among them:
    /// its missing records would look collected. So a write that only dead nodes and such newcomers
    /// acknowledged is lost.
    #[must_use]
    pub fn left_without(&self, dead: &BTreeSet<NodeId>) -> Option<Vec<NodeId>> {
        let gone = self.gone(dead);
        let has_majority = |set: Votes| set.is_majority_of(set, gone);
        if has_majority(self.old) && (!self.writes_both() || has_majority(self.new)) {
            return None;
        }
        let left = self.complete_sets().find(|set| has_majority(*set));
        let left = left.unwrap_or_else(|| {
            let all = self.complete_sets().fold(Votes::NONE, Votes::union);
            let all = all.without(gone);
            let readers = self.readers().without(gone);
            if all.count() <= 2 { all } else { readers }
        });
        Some(self.nodes(left).collect())
    }

    /// Whether no acknowledged write is lost without these nodes: a complete set keeps its majority.
    #[must_use]
    pub fn loses_nothing_without(&self, dead: &BTreeSet<NodeId>) -> bool {
        let gone = self.gone(dead);
        self.complete_sets()
            .any(|set| set.is_majority_of(set, gone))
    }

    /// The sets in which every majority holds every acknowledged write.
    fn complete_sets(&self) -> impl Iterator<Item = Votes> {
        let has_read = self.stage == Stage::WriteBothReadNew || self.returning;
        std::iter::once(self.old).chain(has_read.then_some(self.new))
    }

    /// The excluded members and these.
    fn gone(&self, dead: &BTreeSet<NodeId>) -> Votes {
        let indexes = dead.iter().filter_map(|node| self.index(*node));
        indexes.fold(self.excluded, |set, index| set.union(Votes::one(index)))
    }

    /// Makes the partition stable on the nodes `to` at once, on
    /// [survivors](Self::left_without) or without any: present replicas keep their data, the
    /// others start empty.
    ///
    /// # Errors
    /// [`MoveError::BadSize`], [`MoveError::EpochNotLater`].
    pub fn go_on_with(&self, epoch: Epoch, to: &[NodeId]) -> Result<Self, MoveError> {
        self.check_later(epoch)?;
        if to.is_empty() || to.len() > MAX_MEMBERS / 2 {
            return Err(MoveError::BadSize { wanted: to.len() });
        }
        let mut next = self.end(epoch, Votes::NONE);
        let known = |node| self.member(node);
        let begins = |node| Member { node, since: epoch };
        let members = to.iter().map(|node| known(*node).unwrap_or(begins(*node)));
        next.members = members.collect();
        next.old = Votes::first(next.members.len());
        Ok(next)
    }

    /// The same replicas of a stable partition in a later epoch, so that ballots of earlier epochs
    /// are below all later ones.
    ///
    /// # Errors
    /// [`MoveError::Moving`], [`MoveError::EpochNotLater`].
    pub fn renew(&self, epoch: Epoch, merging: bool) -> Result<Self, MoveError> {
        self.check_later(epoch)?;
        if self.stage != Stage::Stable {
            return Err(MoveError::Moving);
        }
        let mut next = self.clone();
        next.epoch = epoch;
        next.merging = merging;
        Ok(next)
    }

    /// The same replicas in the same stage, in an epoch above some that were lost. Those may have
    /// written to two sets.
    ///
    /// # Errors
    /// [`MoveError::EpochNotLater`].
    pub fn recover(&self, epoch: Epoch) -> Result<Self, MoveError> {
        self.check_later(epoch)?;
        let mut next = self.enter(epoch, self.stage);
        let (first, last) = (Epoch(self.epoch.0 + 1), Epoch(epoch.0 - 1));
        if !self.writes_both() && first <= last {
            next.settled.add_transitional(first, last);
        }
        Ok(next)
    }

    /// Returns to the old set; in two steps once the new set reads, see the module.
    ///
    /// # Errors
    /// [`MoveError::NotMoving`], [`MoveError::EpochNotLater`].
    pub fn abort(&self, epoch: Epoch, mutations: Mutations) -> Result<Self, MoveError> {
        self.check_later(epoch)?;
        match self.stage {
            Stage::Stable => Err(MoveError::NotMoving),
            Stage::WriteBothReadOld if self.returning => Err(MoveError::Moving),
            Stage::WriteBothReadNew if !mutations.has(Mutation::AbortInOneStep) => {
                let mut next = self.enter(epoch, Stage::WriteBothReadOld);
                next.returning = true;
                Ok(next)
            }
            Stage::Copying | Stage::WriteBothReadOld | Stage::WriteBothReadNew => {
                Ok(self.end(epoch, self.old))
            }
        }
    }

    fn check_later(&self, epoch: Epoch) -> Result<(), MoveError> {
        if epoch > self.epoch {
            return Ok(());
        }
        Err(MoveError::EpochNotLater {
            given: epoch,
            current: self.epoch,
        })
    }

    fn excluding(mut self, node: NodeId) -> Result<Self, MoveError> {
        let index = self
            .index(node)
            .filter(|index| self.old.contains(*index) && !self.new.contains(*index))
            .ok_or(MoveError::NotDisplaced { node })?;
        self.excluded.insert(index);
        if self.old.is_majority_of(self.old, self.excluded) {
            Ok(self)
        } else {
            Err(MoveError::NoMajority)
        }
    }

    /// Enters another stage of the same move.
    fn enter(&self, epoch: Epoch, stage: Stage) -> Self {
        let mut next = self.clone();
        next.close_epoch(epoch);
        next.stage = stage;
        next
    }

    /// Ends the move on one of the two sets.
    fn end(&self, epoch: Epoch, set: Votes) -> Self {
        let mut next = self.clone();
        next.close_epoch(epoch);
        next.members = set.iter().map(|index| self.members[index]).collect();
        next.old = Votes::first(next.members.len());
        next.new = Votes::NONE;
        next.excluded = Votes::NONE;
        next.seats.clear();
        next.stage = Stage::Stable;
        next.returning = false;
        next
    }

    fn close_epoch(&mut self, next: Epoch) {
        if self.writes_both() {
            let last = Epoch(next.0.saturating_sub(1));
            self.settled.add_transitional(self.epoch, last);
        }
        self.epoch = next;
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
