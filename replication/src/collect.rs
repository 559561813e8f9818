//! Collects tombstones and expired values of a stable partition.
//!
//! 1. Every replica raises its floor to S: it no longer accepts anything at or below S.
//! 2. Every replica sums its records at or below S. If all sums are equal, all
//!    replicas hold the same ones.
//! 3. Every replica sets its watermark to S and drops what [`is_collected`] names.
//!    From then on an absent key has version S, not zero, so a conditional write on an
//!    older version fails.
//!
//! All replicas, not a majority: a replica that was not asked could bring back records
//! that the others dropped. A dead replica delays collection until it is replaced; there
//! is no wall-clock grace period that could go wrong.
//!
//! Expired values are dropped by the same rule, judged by the time of S. Before any
//! replica drops one, every replica answers that it is `collecting` up to S, so readers
//! with slow clocks also judge by the time of S.
//!
//! [`is_collected`]: crate::is_collected

use std::sync::Arc;

use torc_record::Ballot;
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use crate::{Config, Envelope, Message, Mutation, Mutations, Votes};

/// One collection of one partition. Any node may drive it. Repeating or abandoning it
/// is harmless.
#[derive(Debug, Clone)]
pub struct Collector {
    config: Arc<Config>,
    upto: Ballot,
    sums: Vec<Option<u128>>,
    /// The highest watermark that any replica answered.
    collected: Ballot,
    mutations: Mutations,
}

/// Messages to send. The next collection makes up for lost ones.
pub type Sends = Vec<(NodeId, Envelope)>;

impl Collector {
    /// A collection up to `upto`, a ballot of the configuration's epoch; `None` unless the
    /// partition is stable. During a move, a collection would be safe, because newcomers are asked
    /// too, but useless, because they hold different records. Choose `upto` some seconds in the
    /// past: replicas refuse running writes below it.
    ///
    /// Also `None` while a merge into the partition is open: an absent key would get a version above
    /// the reserved ballot, and merged records of keys that were never written would be refused.
    #[must_use]
    pub fn new(config: Arc<Config>, upto: Ballot, mutations: Mutations) -> Option<Self> {
        let pauses = config.merging && !mutations.has(Mutation::CollectsDuringMerge);
        let fits = config.stage == Stage::Stable && upto.epoch == config.epoch && !pauses;
        fits.then(|| Self {
            sums: vec![None; config.members.len()],
            config,
            upto,
            collected: Ballot::default(),
            mutations,
        })
    }

    /// The messages of the first round; repeated, for replicas that have not answered.
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

    /// Takes a replica's answer. The last answer starts the second round.
    pub fn on_sum(&mut self, from: NodeId, upto: Ballot, sum: u128, collected: Ballot) -> Sends {
        let Some(index) = self.config.index(from).filter(|_| upto == self.upto) else {
            return Vec::new();
        };
        self.sums[index] = Some(sum);
        self.collected = self.collected.max(collected);
        if self.agrees() {
            return self.purge(self.upto);
        }
        // Replicas that missed an earlier watermark may differ only because of that.
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
