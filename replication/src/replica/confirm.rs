//! R5 for many keys at once: checks whether this replica holds exactly another replica's versions.
//!
//! It confirms only durable versions, and only in the requester's epoch, so a confirmation is as
//! good as a [`Holding`](crate::Message::Holding). It does not confirm versions that it cannot
//! check at once.

use torc_record::Epoch;
use torc_ring::topology::Stage;

use super::Replica;
use crate::{Claim, Config, Held, Lookup, Mutation};

impl Replica {
    /// Whether the disk's version of a key is this replica's answer in this epoch. Versions on
    /// their way to the disk have not been acknowledged yet.
    #[must_use]
    pub fn vouches_in(&self, epoch: Epoch) -> bool {
        let reads = |config: &Config| {
            let index = config.index(self.me);
            config.stage == Stage::Stable && index.is_some_and(|it| config.readers().contains(it))
        };
        let is_in = self.meta.epoch == epoch && self.adopting.is_none()
            || self.mutations.has(Mutation::NoEpochFence);
        is_in && self.config.as_deref().is_some_and(reads)
    }

    /// This replica's record of a key, given the lookup on its disk; `None` if it has no say.
    #[must_use]
    pub fn own_record(&self, lookup: &Lookup) -> Option<Held> {
        self.held(lookup, true)
    }

    /// Whether a claim about a key holds, given the lookup on this replica's disk, and no watermark
    /// makes the version gone.
    #[must_use]
    pub fn confirms(&self, claim: &Claim, lookup: &Lookup) -> bool {
        let Lookup::Found(record) = lookup else {
            // A key with another watermark than the requester's takes a separate round.
            let is_same = claim.version == self.meta.collected;
            return *lookup == Lookup::Absent && claim.is_absent && is_same;
        };
        let is_same =
            record.ballot == claim.version || self.mutations.has(Mutation::ConfirmsAnyVersion);
        let has_expired = record
            .expires_at_ms()
            .is_some_and(|at| at <= self.meta.collecting.time.unix_ms());
        let is_gone = record
            .state
            .is_collected(record.ballot, self.meta.collected);
        !claim.is_absent && is_same && !has_expired && !is_gone
    }
}
