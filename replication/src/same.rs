//! Checks whether a replica holds exactly the same records of a partition as a quorum.
//!
//! All readers are asked to compare the partition with a sum that the replica took of its own
//! records before. If a quorum holds the same, then every write acknowledged before the round is in
//! the replica's store: a quorum that knew of it has nothing that the replica lacks. Other records
//! there need not be chosen: while a partition moves, a read quorum is not a quorum that wrote. A
//! store keeps the sum of a partition, so no record is read.

use std::sync::Arc;

use torc_ring::NodeId;

use crate::scan::pull;
use crate::{Config, Envelope, KnownPage, Mutation, Mutations, ScanAnswer, Tag, Votes};

/// One round of comparison.
#[derive(Debug)]
pub struct SameRound {
    config: Arc<Config>,
    mutations: Mutations,
    tag: Tag,
    known: KnownPage,
    same: Votes,
    different: Votes,
}

impl SameRound {
    /// A round about the sum `known` of the whole partition; no replica was asked yet.
    #[must_use]
    pub const fn new(
        config: Arc<Config>,
        tag: Tag,
        known: KnownPage,
        mutations: Mutations,
    ) -> Self {
        Self {
            config,
            mutations,
            tag,
            known,
            same: Votes::NONE,
            different: Votes::NONE,
        }
    }

    fn readers(&self) -> Votes {
        self.config.readers().without(self.config.excluded)
    }

    /// One message for each replica that has not answered.
    pub fn asks(&self) -> impl Iterator<Item = (NodeId, Envelope)> + '_ {
        let answered = self.same.union(self.different);
        let asked = self.config.nodes(self.readers().without(answered));
        asked.map(|node| (node, pull(&self.config, self.tag, None, Some(self.known))))
    }

    /// The replicas that have answered that they hold the same.
    #[must_use]
    pub const fn holders(&self) -> Votes {
        self.same
    }

    /// Takes an answer with this round's tag. Returns whether a quorum holds the same, once that is
    /// decided.
    pub fn on_answer(&mut self, from: NodeId, answer: &ScanAnswer) -> Option<bool> {
        let index = self.config.index(from)?;
        match answer {
            ScanAnswer::Same { .. } => self.same.insert(index),
            ScanAnswer::Page(_) => self.different.insert(index),
        }
        let one_is_enough = self.mutations.has(Mutation::SameByOne) && !self.same.is_empty();
        if one_is_enough || self.config.may_read(self.same, self.mutations) {
            return Some(true);
        }
        let possible = self.readers().without(self.different);
        (!self.config.may_read(possible, self.mutations)).then_some(false)
    }
}
