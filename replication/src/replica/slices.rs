//! The bulk of a copy as sealed slices, byte for byte, with their indexes.
//!
//! ```text
//! copying                 write both, read old
//! slices ─ through ──┐    tail of the log since `through` ─ watermarks
//! ```
//!
//! Slices bypass the messages, so both ends check the epoch:
//! * The source serves them in the epoch that copies. In the stable epoch before, a collection
//!   could drop a tombstone between the copies of the slices and of the tail: the versions that it
//!   hid would return.
//! * The newcomer puts them in force only in that epoch. Slices of an aborted copy must not get
//!   into the next membership.
//!
//! The slices of a source stand alone: each tombstone that a collection drops before the move ends is
//! in them together with the versions that it hides, or none of these is. So a newcomer that copies
//! all records instead of the tail, which lack collected tombstones, brings no old version back.
//!
//! A gathering replica takes the slices of each of its sources: together they contain the
//! highest version of every key.
//!
//! The end of the slices is kept only in memory: after a restart, the replica copies all records.

use torc_record::Epoch;
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use super::Replica;
use crate::{Effect, LogPosition, Mutation};

impl Replica {
    /// Whether this replica's slices may be copied in that epoch.
    #[must_use]
    pub fn serves_slices(&self, epoch: Epoch) -> bool {
        let copying = self.config.as_ref().is_some_and(|config| {
            let index = config.index(self.me);
            config.stage == Stage::Copying && index.is_some_and(|index| config.old.contains(index))
        });
        copying && self.is_in(epoch) || self.mutations.has(Mutation::SlicesOfAnyEpoch)
    }

    /// Whether slices requested in that epoch may be put in force.
    #[must_use]
    pub fn takes_slices(&self, from: NodeId, epoch: Epoch) -> bool {
        let waits = self.pulling.as_ref().is_some_and(|pulling| {
            let mut sources = pulling.sources.iter();
            pulling.by_slices && sources.any(|source| source.node == from && !source.done)
        });
        waits && self.is_in(epoch)
    }

    pub(super) fn on_slices(
        &mut self,
        from: NodeId,
        epoch: Epoch,
        through: LogPosition,
        out: &mut Vec<Effect>,
    ) {
        if !self.takes_slices(from, epoch) {
            return;
        }
        self.expiries.forget();
        self.slices.push((from, through));
        for source in self.pulling.iter_mut().flat_map(|it| &mut it.sources) {
            source.done |= source.node == from;
        }
        self.finish_pull(out);
    }

    pub(super) fn on_no_slices(&mut self, epoch: Epoch, out: &mut Vec<Effect>) {
        let in_epoch = self.is_in(epoch);
        let pulling = self.pulling.as_mut().filter(|_| in_epoch);
        if let Some(pulling) = pulling.filter(|pulling| pulling.by_slices) {
            pulling.by_slices = false;
            self.pull_again(out);
        }
    }

    /// The position of a displaced replica's log from which records are missing here.
    pub(super) fn tail_of(&self, node: NodeId, stage: Stage) -> Option<LogPosition> {
        let mut copied = self.slices.iter();
        let (_, through) = *copied.find(|(from, _)| *from == node)?;
        if self.mutations.has(Mutation::TailForgotten) {
            return Some(LogPosition(u64::MAX));
        }
        (stage == Stage::WriteBothReadOld).then_some(through)
    }

    fn is_in(&self, epoch: Epoch) -> bool {
        self.adopting.is_none() && self.meta.epoch == epoch
    }
}
