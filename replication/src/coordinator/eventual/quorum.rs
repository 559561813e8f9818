//! Reads and writes of `eventual` namespaces, each in one round.
//!
//! Replicas store a write if it is newer; a read returns the newest answer; the request
//! chooses how many must answer. Without promises, only one of several concurrent
//! writes survives. Never mix these with registers on one key.
//!
//! While a partition moves, a write needs as many replicas of the new set as of the old
//! one, so a move loses no acknowledged write.

use std::sync::Arc;

use torc_record::{Ballot, Epoch, HybridTime, NodeSlot, Record};
use torc_ring::NodeId;

use crate::{Config, Content, Envelope, Held, Locator, Message, Mutation, Mutations, Tag, Votes};

/// Lower than any written version.
const LOWEST: Ballot = Ballot {
    epoch: Epoch(0),
    time: HybridTime(1),
    slot: NodeSlot(0),
};

/// How many replicas must answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Quorum {
    /// One.
    One,
    /// More than half.
    #[default]
    Majority,
    /// All.
    All,
}

impl Quorum {
    /// Whether these members of a set suffice. Excluded members are neither counted nor required.
    fn is_met(self, votes: Votes, set: Votes, excluded: Votes, mutations: Mutations) -> bool {
        let count = votes.intersection(set).without(excluded).count();
        match self {
            Self::One => count >= 1,
            Self::Majority if mutations.has(Mutation::EventualOneAnswer) => count >= 1,
            Self::Majority => count > set.count() / 2,
            Self::All => count >= 1 && count == set.without(excluded).count(),
        }
    }
}

/// A running write. Send [`sends`](Self::sends), pass in the answers, and at the deadline keep a
/// [`Hint`](crate::Hint) for each of [`missing`](Self::missing).
#[derive(Debug, Clone)]
pub struct EventualWrite {
    config: Arc<Config>,
    tag: Tag,
    record: Record,
    quorum: Quorum,
    mutations: Mutations,
    stored: Votes,
    /// Replicas that will never store it.
    refused: Votes,
}

impl EventualWrite {
    /// A write of `record`, whose ballot is a fresh reading of the coordinator's clock.
    #[must_use]
    pub const fn new(
        config: Arc<Config>,
        tag: Tag,
        record: Record,
        quorum: Quorum,
        mutations: Mutations,
    ) -> Self {
        Self {
            config,
            tag,
            record,
            quorum,
            mutations,
            stored: Votes::NONE,
            refused: Votes::NONE,
        }
    }

    /// One message to each replica that has not answered, in both sets while the partition moves.
    #[must_use]
    pub fn sends(&self) -> Vec<(NodeId, Envelope)> {
        let message = || Message::Store {
            tag: self.tag,
            record: self.record.clone(),
        };
        self.missing()
            .map(|node| (node, envelope(&self.config, message())))
            .collect()
    }

    /// Records that a replica has stored it. Returns whether the write is done.
    pub fn on_stored(&mut self, from: NodeId) -> bool {
        if let Some(index) = self.config.index(from) {
            self.stored.insert(index);
        }
        self.is_met(self.stored)
    }

    /// Records that a replica will never store it. Returns whether the write can still succeed.
    pub fn on_refused(&mut self, from: NodeId) -> bool {
        if let Some(index) = self.config.index(from) {
            self.refused.insert(index);
        }
        self.is_met(self.config.acceptors().without(self.refused))
    }

    /// Whether the write can still succeed without these members.
    pub(super) fn can_spare(&self, votes: Votes) -> bool {
        self.is_met(self.config.acceptors().without(votes))
    }

    fn is_met(&self, votes: Votes) -> bool {
        let Config {
            old, new, excluded, ..
        } = *self.config;
        let met = |set| self.quorum.is_met(votes, set, excluded, self.mutations);
        let one = !self.config.writes_both() || self.mutations.has(Mutation::EventualOldSetOnly);
        met(old) && (one || met(new))
    }

    /// Replicas that have neither confirmed nor refused.
    pub fn missing(&self) -> impl Iterator<Item = NodeId> + '_ {
        let answered = self.stored.union(self.refused);
        let missing = self.config.acceptors().without(answered);
        self.config.nodes(missing.without(self.config.excluded))
    }
}

/// A running read.
#[derive(Debug, Clone)]
pub struct EventualRead {
    config: Arc<Config>,
    quorum: Quorum,
    mutations: Mutations,
    /// The requested replicas.
    wanted: Votes,
    answers: Vec<(NodeId, Held)>,
    answered: Votes,
}

impl EventualRead {
    /// A read that waits for this many replicas of the set that serves reads.
    #[must_use]
    pub fn new(config: Arc<Config>, quorum: Quorum, mutations: Mutations) -> Self {
        let wanted = config.readers().without(config.excluded);
        Self {
            config,
            quorum,
            mutations,
            wanted,
            answers: Vec::new(),
            answered: Votes::NONE,
        }
    }

    /// A read that asks all replicas, including those that only write: it repairs their
    /// unreadable records, and a move does not undo closing them.
    pub(super) fn of_both(config: Arc<Config>, quorum: Quorum, mutations: Mutations) -> Self {
        let all = config.readers().union(config.acceptors());
        let wanted = all.without(config.excluded);
        Self {
            wanted,
            ..Self::new(config, quorum, mutations)
        }
    }

    /// Replicas that have not answered.
    pub fn missing(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.config.nodes(self.wanted.without(self.answered))
    }

    /// Takes an answer to `Read` with the value. Returns the newest version once there
    /// are enough answers. It may be a tombstone or have expired: the caller judges by
    /// its clock.
    pub fn on_holding(&mut self, from: NodeId, held: Held) -> Option<&Held> {
        let index = self.config.index(from);
        let index = index.filter(|at| self.wanted.contains(*at))?;
        if !self.answered.contains(index) {
            self.answered.insert(index);
            self.answers.push((from, held));
            self.take_back_outdated();
        }
        let everyone = self.answered.covers(self.wanted);
        let met = self.is_met_by(self.quorum) && (everyone || self.quorum != Quorum::All);
        self.newest().filter(|_| met)
    }

    /// Drops answers from before a collection that another replica in this round has finished. If
    /// that replica no longer holds the version, something replaced it since, perhaps a tombstone
    /// that is gone. The replicas whose answers are dropped are asked again.
    fn take_back_outdated(&mut self) {
        if self.mutations.has(Mutation::EventualOutdated) {
            return;
        }
        let watermarks: Vec<_> = self
            .answers
            .iter()
            .map(|(_, held)| (held.ballot, held.collected))
            .collect();
        let is_outdated = |held: &Held| {
            watermarks.iter().any(|(ballot, collected)| {
                *ballot < held.ballot
                    && held.ballot <= *collected
                    && held.collected < *collected
                    && held
                        .content
                        .to_state_head()
                        .is_some_and(|state| !state.is_collected(held.ballot, *collected))
            })
        };
        let (config, answered) = (&self.config, &mut self.answered);
        self.answers.retain(|(from, held)| {
            let goes = is_outdated(held);
            if let Some(index) = config.index(*from).filter(|_| goes) {
                *answered = answered.without(Votes::one(index));
            }
            !goes
        });
    }

    /// Whether enough replicas have answered, or can without these members.
    pub(super) fn can_spare(&self, votes: Votes) -> bool {
        let left = self.wanted.without(votes).union(self.answered);
        let Config { excluded, .. } = *self.config;
        let readers = self.config.readers();
        let met = self.quorum.is_met(left, readers, excluded, self.mutations);
        met && (self.quorum != Quorum::All || left.covers(self.wanted))
    }

    /// Whether this quorum has answered.
    pub(super) fn is_met_by(&self, quorum: Quorum) -> bool {
        let Config { excluded, .. } = *self.config;
        quorum.is_met(
            self.answered,
            self.config.readers(),
            excluded,
            self.mutations,
        )
    }

    /// Whether the answers intersect every majority that confirms a write.
    pub(super) fn is_majority(&self) -> bool {
        self.is_majority_of_both(self.answered)
    }

    /// Whether such a majority treats values that expire then as absent.
    pub(super) fn agrees_on_expiry(&self, at_ms: u64) -> bool {
        let agree = |(_, held): &&(NodeId, Held)| held.collecting.time.unix_ms() >= at_ms;
        let agreed = self.answers.iter().filter(agree);
        let agreed = agreed.filter_map(|(node, _)| self.config.index(*node));
        let agreed = agreed.fold(Votes::NONE, |votes, index| votes.union(Votes::one(index)));
        self.is_majority_of_both(agreed)
    }

    fn is_majority_of_both(&self, votes: Votes) -> bool {
        let Config {
            old, new, excluded, ..
        } = *self.config;
        let met = |set| Quorum::Majority.is_met(votes, set, excluded, self.mutations);
        met(self.config.readers()) && met(old) && (!self.config.writes_both() || met(new))
    }

    /// Replicas that answered with an older version, to be sent the newest.
    pub fn behind(&self) -> impl Iterator<Item = NodeId> + '_ {
        let newest = self.newest().map(|held| (held.ballot, held.collected));
        let (ballot, collected) = newest.unwrap_or_default();
        self.answers
            .iter()
            .filter(move |(_, held)| {
                let dropped = ballot <= held.collected && collected < held.collected;
                held.ballot < ballot && !dropped
            })
            .map(|(node, _)| *node)
    }

    /// The repairs for replicas that are behind, one each. `others` abstained, and the
    /// round has closed replicas up to `closed`.
    pub(super) fn repairs(
        &mut self,
        at: &Locator,
        others: &[NodeId],
        closed: Ballot,
    ) -> Vec<(NodeId, Envelope)> {
        let Some(newest) = self.newest().cloned() else {
            return Vec::new();
        };
        let is_absent = newest.content == Content::Absent;
        if is_absent && others.is_empty() {
            return Vec::new();
        }
        // If no replica holds the record, those whose own copy is unreadable get a tombstone with the
        // lowest possible ballot.
        let ballot = if is_absent {
            newest.collected.max(LOWEST)
        } else {
            newest.ballot
        };
        let Some(state) = newest.content.to_state() else {
            return Vec::new();
        };
        let to: Vec<_> = self.behind().chain(others.iter().copied()).collect();
        for (node, held) in &mut self.answers {
            if to.contains(node) {
                // Its own watermarks stay: what it has collected, and up to where it is closed.
                *held = Held {
                    collected: held.collected,
                    collecting: held.collecting,
                    ..newest.clone()
                };
            }
        }
        let record = Record {
            namespace: at.namespace,
            digest: at.digest,
            key: at.key.clone(),
            origin: None,
            ballot,
            state,
        };
        let message = || Message::Repair {
            record: record.clone(),
            collected: newest.collected,
            closed,
        };
        to.into_iter()
            .map(|node| (node, envelope(&self.config, message())))
            .collect()
    }

    /// The latest time of a collection that any answering replica has started. Not that of the
    /// highest ballot, because a later epoch may have an earlier clock.
    pub(super) fn collecting(&self) -> HybridTime {
        let all = self.answers.iter().map(|(_, held)| held.collecting.time);
        all.max().unwrap_or_default()
    }

    /// The newest of the answers so far.
    fn newest(&self) -> Option<&Held> {
        let held = |answer: &(NodeId, Held)| {
            let present = answer.1.content != Content::Absent;
            (answer.1.ballot, present)
        };
        self.answers
            .iter()
            .max_by_key(|answer| held(answer))
            .map(|(_, held)| held)
    }
}

pub(super) fn envelope(config: &Config, message: Message) -> Envelope {
    Envelope {
        partition: config.partition,
        epoch: config.epoch,
        message,
    }
}
