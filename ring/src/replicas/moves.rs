//! From one epoch of a partition to the next: begin, advance, exclude, abort.
//!
//! Every step is an epoch that the topology group commits. What must be known before a
//! stage is left:
//!
//! | stage | left when |
//! |---|---|
//! | copying | every newcomer has copied the bulk |
//! | write both, read old | every newcomer has its snapshot or merge, taken in this epoch; a majority of old adopted it |
//! | write both, read new | a majority of old adopted it |
//! | write both, read old, returning | a majority of new adopted it |
//!
//! "Every newcomer" means those who stay too when the set shrinks: a version that two of
//! three hold may be at one of the two who stay, which is safe as long as both are asked,
//! and not after another step. So before a smaller set reads, each of its members holds
//! what any majority of the old set held. Those who stay do not copy it, they vote for
//! it, by an ordinary operation on each key that differs.
//!
//! An abort before the new set reads is one epoch back to the old set. Once the new set
//! reads, one epoch is not enough: a reader of the new set that has not heard of the
//! abort would miss what the old set alone accepts after it. So the abort first goes
//! back to reading old while writing both, until a majority of the new set knows.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use torc_record::Epoch;

use super::{Config, MAX_MEMBERS, Member, Mutation, Mutations, Seat, Stage, Votes};
use crate::NodeId;

/// What a replica vouches for, of the epoch it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Milestone {
    /// The epoch is adopted, durably.
    Adopted(Epoch),
    /// The bulk is copied, durably.
    Copied(Epoch),
    /// The snapshot or merge is complete, durably.
    Snapshotted(Epoch),
}

/// What is known of the present epoch.
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
    /// Notes what a node vouches for; whether that is news. Of another epoch than the
    /// configuration's, or of a stranger: nothing.
    pub fn note(&mut self, config: &Config, node: NodeId, milestone: Milestone) -> bool {
        let Some(index) = config.index(node) else {
            return false;
        };
        let (set, epoch) = match milestone {
            Milestone::Adopted(epoch) => (&mut self.adopted, epoch),
            Milestone::Copied(epoch) => (&mut self.copied, epoch),
            Milestone::Snapshotted(epoch) => (&mut self.snapshotted, epoch),
        };
        let is_news = epoch == config.epoch && !set.contains(index);
        if is_news {
            set.insert(index);
        }
        is_news
    }

    /// Whether the stage may be left.
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

/// Why a partition cannot change like that. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// Wait until the present move has ended, or abort it.
    #[error("the partition is moving already: wait for it or abort it")]
    Moving,
    /// Nothing moves that could be aborted or continued.
    #[error("the partition is not moving")]
    NotMoving,
    /// The new set is the old one, or the node is excluded already.
    #[error("nothing would change")]
    NoChange,
    /// No set or too many: at most five old and five new.
    #[error("{wanted} replicas asked for: choose 1 to 5")]
    BadSize {
        /// Replicas asked for.
        wanted: usize,
    },
    /// A replica that stays, or is none, cannot be taken for dead in this move.
    #[error("node {node} is not displaced by this move: replace it first")]
    NotDisplaced {
        /// The node.
        node: NodeId,
    },
    /// Without the dead there is no majority left to merge. Wait for them to come back, or
    /// force it: what only they held is lost then.
    #[error(
        "without the dead no majority of the replicas of some keys is left: wait for it to come \
         back, or force it and lose what only it held"
    )]
    NoMajority,
    /// Too late to exclude: the new set reads already.
    #[error("the new set reads already: let the move end")]
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

    /// Starts a move to the nodes `to`; displaced ones named in `dead` never count.
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
        // A seat each is not enough in a smaller set: what a quorum of the old one held
        // may be at fewer of those who stay than any quorum of theirs meets.
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

    /// The stage that follows. Check [`Milestones::may_advance`] before.
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

    /// Counts a dead, displaced replica out for the rest of the move: its successor
    /// merges a majority of the others instead.
    ///
    /// # Errors
    /// [`MoveError`] when it is not displaced, is excluded already, is not dead alone, or it is too late.
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

    /// With what the partition can go on when these nodes never come back; none while it
    /// needs nothing: its quorums are there without them.
    ///
    /// The set that reads as a whole, if that has a majority still; else those of it who are
    /// left, perhaps nobody. What the dead alone held is lost then, and nothing else:
    /// every later quorum is made of those who are left.
    #[must_use]
    pub fn left_without(&self, dead: &BTreeSet<NodeId>) -> Option<Vec<NodeId>> {
        let indexes = dead.iter().filter_map(|node| self.index(*node));
        let gone = indexes.fold(self.excluded, |set, index| set.union(Votes::one(index)));
        let has_majority = |set: Votes| set.is_majority_of(set, gone);
        if has_majority(self.old) && (!self.writes_both() || has_majority(self.new)) {
            return None;
        }
        let readers = self.readers();
        let left = if has_majority(readers) {
            readers
        } else {
            readers.without(gone)
        };
        Some(self.nodes(left).collect())
    }

    /// Stable on the nodes `to` at once, for what is [left](Self::left_without), or where
    /// nothing is: who is a replica already counts with what it holds, the others begin empty.
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

    /// Goes back to the old set; two steps once the new set reads, see the module.
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

    /// Another stage of the same move.
    fn enter(&self, epoch: Epoch, stage: Stage) -> Self {
        let mut next = self.clone();
        next.close_epoch(epoch);
        next.stage = stage;
        next
    }

    /// Stable on one of the two sets.
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
