//! Collecting tombstones and expired values of a stable partition.
//!
//! 1. Every replica raises its floor to S: nothing at or below S is accepted any more.
//! 2. Every replica sums what it holds at or below S. If all sums are equal, whatever is
//!    not there is nowhere.
//! 3. Every replica sets its watermark to S and drops what [`is_collected`] names. From
//!    then on an absent key answers version S, not zero: whoever based a write on an
//!    older version is told that something happened.
//!
//! All replicas, not a majority: a replica that was not asked could bring back what the
//! others forgot. A dead one delays collection until it is replaced; no wall-clock grace
//! period can go wrong.
//!
//! Expired values are dropped by the same rule, judged by the time of S. Before anybody
//! drops one, every replica answers that it is `collecting` up to S, so that readers
//! whose clocks are behind judge by the time of S too.
//!
//! [`is_collected`]: crate::is_collected

use std::sync::Arc;

use torc_record::Ballot;
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use crate::{Config, Envelope, Message, Mutation, Mutations, Votes};

/// One collection of one partition, by whichever node drives it. Repeating or
/// abandoning it is harmless.
#[derive(Debug, Clone)]
pub struct Collector {
    config: Arc<Config>,
    upto: Ballot,
    sums: Vec<Option<u128>>,
    /// The highest watermark that any replica answered.
    collected: Ballot,
    mutations: Mutations,
}

/// What a collector wants sent; lost messages are made up for by the next collection.
pub type Sends = Vec<(NodeId, Envelope)>;

impl Collector {
    /// A collection up to `upto`, a ballot of the configuration's epoch; none unless the
    /// partition is stable. While it moves a collection would be safe, because newcomers are
    /// asked too, and hopeless, because they hold something else. Choose it some seconds in the past: what is under way below
    /// it is refused.
    #[must_use]
    pub fn new(config: Arc<Config>, upto: Ballot, mutations: Mutations) -> Option<Self> {
        let fits = config.stage == Stage::Stable && upto.epoch == config.epoch;
        fits.then(|| Self {
            sums: vec![None; config.members.len()],
            config,
            upto,
            collected: Ballot::default(),
            mutations,
        })
    }

    /// The first round; again for those who have not answered.
    #[must_use]
    pub fn ask(&self) -> Sends {
        let silent = self.config.members.iter().zip(&self.sums);
        silent
            .filter(|(_, sum)| sum.is_none())
            .map(|(member, _)| {
                let upto = self.upto;
                (member.node, self.envelope(Message::GcFloor { upto }))
            })
            .collect()
    }

    /// Takes a replica's answer; the last one brings the second round.
    pub fn on_sum(&mut self, from: NodeId, upto: Ballot, sum: u128, collected: Ballot) -> Sends {
        let Some(index) = self.config.index(from).filter(|_| upto == self.upto) else {
            return Vec::new();
        };
        self.sums[index] = Some(sum);
        self.collected = self.collected.max(collected);
        if self.agrees() {
            return self.purge(self.upto);
        }
        // Replicas that missed an earlier watermark differ for that reason alone.
        let complete = self.sums.iter().all(Option::is_some);
        if complete && self.collected > Ballot::default() {
            return self.purge(self.collected);
        }
        Vec::new()
    }

    /// Whether the watermark rose.
    #[must_use]
    pub fn agrees(&self) -> bool {
        if self.mutations.has(Mutation::CollectOnQuorum) {
            return self.sums.iter().flatten().any(|sum| {
                let same = |i: &usize| self.sums[*i] == Some(*sum);
                let votes = (0..self.sums.len()).filter(same);
                let votes = votes.fold(Votes::NONE, |v, i| v.union(Votes::one(i)));
                votes.is_majority_of(self.config.old, Votes::NONE)
            });
        }
        let first = self.sums.first().copied().flatten();
        first.is_some() && self.sums.iter().all(|sum| *sum == first)
    }

    fn purge(&self, upto: Ballot) -> Sends {
        let nodes = self.config.members.iter().map(|member| member.node);
        nodes
            .map(|node| (node, self.envelope(Message::GcPurge { upto })))
            .collect()
    }

    fn envelope(&self, message: Message) -> Envelope {
        Envelope {
            partition: self.config.partition,
            epoch: self.config.epoch,
            message,
        }
    }
}
