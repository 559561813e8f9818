//! Keys of `eventual` namespaces: the newer version wins, without promises.
//!
//! A collection up to S drops what all replicas held alike. So between a replica's sum and its
//! purge, it must store nothing at or below S that no replica had:
//! * A *store*, of a write or a hint, is refused at or below S as soon as S is known
//!   (`collecting`); the refusal leaves once S is durable. It does not matter what this replica
//!   holds: a repair may have brought the version, or a newer one, after this replica answered. A
//!   coordinator whose first request was refused knows that this request stored nothing.
//! * A *repair* spreads what a replica holds. While S is not collected, it is always accepted: what
//!   its holder had before its own sum is in that sum, and after the sum the holder accepted
//!   nothing new. Once S is collected here, it is accepted only from a holder that has also
//!   collected S: what is still there after that is not older than a dropped tombstone.
//!
//! An unreadable record may be newer than everything that others hold (R9): a write that they
//! confirm only later. So before the others are asked for a replacement, they are *closed* up to a
//! version S, durably, as by a collection: no majority confirms a write any more that their answers
//! lack. S is above everything that had been stored here when the record was found, and nothing was
//! stored for the key since. It is a reading of the wall clock, as in a collection, because values
//! expire by it.
//!
//! The floor is not checked: it follows the promises of registers, which may be recent.
//!
//! Until its copy is complete, a newcomer accepts only versions of the epoch that writes to it. It
//! gets older ones from its source, which knows what was deleted since. That also holds between its
//! bulk and its snapshot, and after a restart until it knows the stage.

use torc_record::{Ballot, Record, ReplicaBatch};
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use super::{Now, Replica};
use crate::{Effect, Locator, Lookup, Message, Mutation, Seq, Storage, Tag};

/// Limit on the records being replaced at a time; forgotten ones are requested again.
const MOST_UNREADABLE: usize = 256;

/// What is known about an unreadable record.
#[derive(Debug)]
pub(super) struct UnreadableRecord {
    /// An upper bound of everything stored here before the record was found.
    bound: Ballot,
    /// The ballot up to which a majority was closed, at or above the bound; zero if not yet.
    closed: Ballot,
}

impl Replica {
    /// A write or a hint.
    pub(super) fn on_store(
        &mut self,
        now: Now,
        from: NodeId,
        tag: Tag,
        record: Record,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_timely(now, record.ballot) {
            return;
        }
        let at = Locator::of(&record);
        let (lookup, seq) = self.look_up(&at, disk);
        if record.ballot <= self.closed_upto() {
            // This version may be here already, or may have been replaced by a newer one.
            let may_be_here =
                matches!(&lookup, Lookup::Found(found) if found.ballot >= record.ballot);
            let highest = if may_be_here {
                record.ballot
            } else {
                self.closed_upto()
            };
            let message = Message::Nack { tag, highest };
            return self.send(from, self.once_durable(self.closing()), message, out);
        }
        match &lookup {
            Lookup::Found(found)
                if !record.supersedes(found) && !self.mutations.has(Mutation::OlderStoreWins) =>
            {
                let after = self.once_durable(seq);
                return self.send(from, after, Message::Accepted { tag }, out);
            }
            // The unreadable record may be newer (R9).
            Lookup::Unreadable
                if record.ballot <= self.upper_bound()
                    && !self.mutations.has(Mutation::StoreOverUnreadable) =>
            {
                return self.abstain(from, tag, &at, out);
            }
            Lookup::Found(_) | Lookup::Absent | Lookup::Unreadable => {}
        }
        if record.ballot.epoch != self.meta.epoch && !self.knows_past() {
            return self.send(
                from,
                Seq(0),
                Message::Abstain {
                    tag,
                    is_full: false,
                },
                out,
            );
        }
        let seq = self.keep(record, out);
        self.send(from, self.once_durable(seq), Message::Accepted { tag }, out);
    }

    /// A version from another replica, whose watermark was `collected` then; a majority was
    /// `closed` up to that ballot before the replica answered.
    pub(super) fn on_repair(
        &mut self,
        now: Now,
        record: Record,
        (collected, closed): (Ballot, Ballot),
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_timely(now, record.ballot) {
            return;
        }
        let at = Locator::of(&record);
        let newer = match &self.look_up(&at, disk).0 {
            Lookup::Found(found) => record.supersedes(found),
            Lookup::Absent => true,
            Lookup::Unreadable => {
                let known = self.unreadable.get(&at).map(|known| known.closed);
                known.is_some_and(|upto| upto == closed && closed > Ballot::default())
                    || self.mutations.has(Mutation::RepairOverUnreadable)
            }
        };
        let gone = record.ballot <= self.meta.collected && collected < self.meta.collected;
        if newer && (!gone || self.mutations.has(Mutation::RepairRevives)) {
            self.keep(record, out);
        }
    }

    /// Whether this replica knows the deletions of earlier epochs.
    fn knows_past(&self) -> bool {
        let copied = self.config.as_ref().is_some_and(|config| {
            let index = config.index(self.me);
            let is_old = index.is_some_and(|index| config.old.contains(index));
            self.pulling.is_none() && (is_old || config.stage != Stage::Copying)
        });
        copied || self.mutations.has(Mutation::NewcomerTakesOld)
    }

    /// The ballot up to which this replica stores only versions that some replica has.
    fn closed_upto(&self) -> Ballot {
        if self.mutations.has(Mutation::StoreRevives) {
            Ballot::default()
        } else {
            self.meta.collecting.max(self.meta.collected)
        }
    }

    /// From now on, stores nothing at or below `upto` that no replica has. Durable with the batch
    /// [`closing`](Self::closing).
    pub(super) fn close(&mut self, upto: Ballot, out: &mut Vec<Effect>) {
        if self.mutations.has(Mutation::RepairsUnclosed) || !self.raise_collecting(upto) {
            return;
        }
        let batch = ReplicaBatch {
            meta: Some(self.meta),
            ..ReplicaBatch::default()
        };
        self.persist(batch, out);
    }

    /// The batch that must be durable before an answer may tell up to which ballot, or time, this
    /// replica is closed: after a crash it would know neither.
    ///
    /// Registers need it less. A get of an expired value ends it by an accept, whose
    /// acknowledgement is durable; `collecting` only makes the get do so. The wait costs them a
    /// sync per collection.
    pub(super) fn closing(&self) -> Seq {
        if self.mutations.has(Mutation::ClosedBeforeDurable) {
            Seq(0)
        } else {
            self.collecting_seq
        }
    }

    /// Notes that the record of a key is unreadable, and up to which ballot the others are closed,
    /// if they are. Returns the bound as an error if it may be above that; a later attempt, with a
    /// later time, will succeed.
    pub(super) fn note_unreadable(&mut self, at: &Locator, closed: Ballot) -> Result<(), Ballot> {
        if self.unreadable.len() >= MOST_UNREADABLE && !self.unreadable.contains_key(at) {
            self.unreadable.clear();
        }
        let new = UnreadableRecord {
            bound: self.top,
            closed: Ballot::default(),
        };
        let known = self.unreadable.entry(at.detached()).or_insert(new);
        if closed == Ballot::default() {
            return Ok(());
        }
        if closed < known.bound {
            return Err(known.bound);
        }
        known.closed = closed;
        Ok(())
    }

    fn keep(&mut self, record: Record, out: &mut Vec<Effect>) -> Seq {
        let mut batch = ReplicaBatch::default();
        self.store(record, &mut batch);
        self.persist(batch, out)
    }
}
