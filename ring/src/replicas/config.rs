//! The replicas of a partition in one epoch, and their quorums.
//!
//! The table of stages (old set, new set):
//!
//! | stage | read and prepare | accept |
//! |---|---|---|
//! | stable, copying | majority of old | majority of old |
//! | write both, read old | majority of old | majority of each |
//! | write both, read new | majority of new | majority of each |
//!
//! Invariants:
//! * A member's *seat* goes to one newcomer, which takes over its votes with a
//!   snapshot. A newcomer that displaces no replica, or an excluded one, gathers from a
//!   majority.
//! * An excluded replica never counts, from the epoch that excludes it until the move
//!   ends: its successor's gathered copy differs from its own.
//! * `since` distinguishes memberships of one node: data of an earlier one is void.

mod form;

use torc_record::{Ballot, Epoch};

use super::{Mutation, Mutations, Settled, Stage, Votes};
use crate::{NodeId, Partition};

use form::Form;

/// A replica of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// The epoch in which its present membership began.
    pub since: Epoch,
}

/// A member that must copy before the new set reads, and the one that it displaces:
/// indexes into [`Config::members`]. In a shrinking set, the staying members have
/// seats, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// The new member.
    pub newcomer: usize,
    /// The displaced member; `None` when the partition grows or shrinks.
    pub displaced: Option<usize>,
}

/// A partition's replicas in one epoch. Immutable: a later epoch is another value.
///
/// * Getters: [`member`](Self::member), [`index`](Self::index), [`nodes`](Self::nodes).
/// * Quorums: [`may_read`](Self::may_read), [`may_accept`](Self::may_accept),
///   [`is_chosen`](Self::is_chosen).
/// * The next epoch: [`begin`](Self::begin), [`advance`](Self::advance),
///   [`exclude`](Self::exclude), [`abort`](Self::abort), in `moves.rs`.
///
/// Its stored form (`config/form.rs`) is checked: impossible configurations are refused.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Config {
    /// The partition.
    pub partition: Partition,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its stage.
    pub stage: Stage,
    /// Whether an abort is returning from reading the new set.
    pub returning: bool,
    /// The old set in its order, then the newcomers.
    pub members: Vec<Member>,
    /// The old set; the only one while stable.
    pub old: Votes,
    /// The new set; empty while stable.
    pub new: Votes,
    /// Members that never count.
    pub excluded: Votes,
    /// The seats.
    pub seats: Vec<Seat>,
    /// The settled epochs before this one.
    pub settled: Settled,
    /// Whether a merge into the partition is open: nothing is collected, and every delete leaves a
    /// tombstone.
    pub merging: bool,
}

/// Getters.
impl Config {
    /// A stable partition whose replicas all start now.
    #[must_use]
    pub fn founded(partition: Partition, epoch: Epoch, nodes: &[NodeId]) -> Self {
        let members: Vec<_> = nodes
            .iter()
            .map(|&node| Member { node, since: epoch })
            .collect();
        Self {
            partition,
            epoch,
            stage: Stage::Stable,
            returning: false,
            old: Votes::first(members.len()),
            new: Votes::NONE,
            excluded: Votes::NONE,
            seats: Vec::new(),
            settled: Settled::default(),
            merging: false,
            members,
        }
    }

    /// The index of a node, if it is a replica.
    #[must_use]
    pub fn index(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    /// The members whose nodes satisfy the condition.
    #[must_use]
    pub fn members_where(&self, is_one: impl Fn(NodeId) -> bool) -> Votes {
        let members = self.members.iter().enumerate();
        let those = members.filter(|(_, member)| is_one(member.node));
        those.fold(Votes::NONE, |set, (index, _)| set.union(Votes::one(index)))
    }

    /// A node's membership.
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<Member> {
        self.members.iter().copied().find(|m| m.node == node)
    }

    /// The nodes of a set, in order.
    pub fn nodes(&self, set: Votes) -> impl Iterator<Item = NodeId> + '_ {
        self.members
            .iter()
            .enumerate()
            .filter(move |(index, _)| set.contains(*index))
            .map(|(_, member)| member.node)
    }

    /// Whether both sets must accept.
    #[must_use]
    pub const fn writes_both(&self) -> bool {
        matches!(
            self.stage,
            Stage::WriteBothReadOld | Stage::WriteBothReadNew
        )
    }

    /// The set that reads and prepares.
    #[must_use]
    pub const fn readers(&self) -> Votes {
        match self.stage {
            Stage::Stable | Stage::Copying | Stage::WriteBothReadOld => self.old,
            Stage::WriteBothReadNew => self.new,
        }
    }

    /// All members that accept.
    #[must_use]
    pub const fn acceptors(&self) -> Votes {
        if self.writes_both() {
            self.old.union(self.new)
        } else {
            self.old
        }
    }
}

/// Quorums.
impl Config {
    /// The number of answering replicas in the set that serves reads, and whether all answering
    /// replicas are a quorum for both reads and accepts.
    #[must_use]
    pub fn answering(&self, answers: impl Fn(NodeId) -> bool) -> (u32, bool) {
        let votes = self.members_where(answers);
        let readers = votes.intersection(self.readers()).without(self.excluded);
        let is_quorum =
            self.may_read(votes, Mutations::NONE) && self.may_accept(votes, Mutations::NONE);
        (readers.count(), is_quorum)
    }

    /// Whether these members are a quorum to read and to prepare.
    #[must_use]
    pub fn may_read(&self, votes: Votes, mutations: Mutations) -> bool {
        if mutations.has(Mutation::OneReplyQuorum) {
            return !votes.is_empty();
        }
        votes.is_majority_of(self.readers(), self.not_counting(mutations))
    }

    /// Whether these members are a quorum to accept.
    #[must_use]
    pub fn may_accept(&self, votes: Votes, mutations: Mutations) -> bool {
        if mutations.has(Mutation::OneAckQuorum) {
            return !votes.is_empty();
        }
        let excluded = self.not_counting(mutations);
        let old = votes.is_majority_of(self.old, excluded);
        old && (!self.writes_both() || votes.is_majority_of(self.new, excluded))
    }

    /// Whether a version is proven chosen (R5): `holders` hold it, and no replica of a
    /// read quorum has a higher one.
    #[must_use]
    pub fn is_chosen(&self, version: Ballot, holders: Votes, mutations: Mutations) -> bool {
        if version.epoch == self.epoch {
            return self.may_accept(holders, mutations);
        }
        let settled =
            self.settled.contains(version.epoch) || mutations.has(Mutation::TransitionalChosen);
        settled && self.may_read(holders, mutations) && self.votes_not_copies(holders, mutations)
    }

    /// Newcomers that gathered from a majority, because they displace no replica or a dead one, may
    /// hold a version with few votes. Readers of the previous epoch still count votes alone,
    /// and so do all readers after an abort, when the dead replica counts again. So while
    /// the new set reads, the old set must agree; for a newcomer with a displaced replica,
    /// its snapshot is its vote.
    fn votes_not_copies(&self, holders: Votes, mutations: Mutations) -> bool {
        let dead = self.not_counting(mutations);
        let mut displaced = self.seats.iter().map(|seat| seat.displaced);
        let gathers = displaced.any(|index| index.is_none_or(|index| dead.contains(index)));
        if !gathers || self.stage != Stage::WriteBothReadNew {
            return true;
        }
        mutations.has(Mutation::GrowthCopiesVote)
            || holders.is_majority_of(self.old, self.not_counting(mutations))
    }

    /// Members that are not asked and never count.
    #[must_use]
    pub fn not_counting(&self, mutations: Mutations) -> Votes {
        if mutations.has(Mutation::DeadVotes) {
            Votes::NONE
        } else {
            self.excluded
        }
    }

    /// Whether this newcomer gathers from a majority of the old set instead of copying a
    /// snapshot of the replica that it displaces.
    #[must_use]
    pub fn gathers(&self, seat: Seat) -> bool {
        seat.displaced
            .is_none_or(|index| self.excluded.contains(index))
    }

    /// Whether writes need this newcomer, or this member of a shrinking set, although the move
    /// can still do without it: an abort returns to the old set in one step.
    #[must_use]
    pub fn waits_for(&self, node: NodeId) -> bool {
        let copiers = self.copiers();
        let Some(index) = self.index(node).filter(|i| copiers.contains(*i)) else {
            return false;
        };
        let others = self.new.without(Votes::one(index));
        self.stage == Stage::WriteBothReadOld
            && !self.returning
            && !others.is_majority_of(self.new, Votes::NONE)
    }

    /// The seat of a newcomer.
    #[must_use]
    pub fn seat_of(&self, node: NodeId) -> Option<Seat> {
        let index = self.index(node)?;
        self.seats.iter().copied().find(|s| s.newcomer == index)
    }
}
