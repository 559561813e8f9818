//! Keys of `eventual` namespaces: the newer version wins, and no promise is ever made.
//!
//! A collection up to S drops what every replica held alike. So between a replica's sum
//! and its purge nothing at or below S may come in that no replica had:
//! * a *store*, of a write or a hint, is refused at or below S from the moment S is known
//!   (`collecting`), durably: who was refused knows that it is not stored.
//! * a *repair* spreads what a replica holds. While S is not collected it is always taken:
//!   what its holder had before its own sum is in that sum, and after it the holder took
//!   nothing new. Once S is collected here, it is taken from a holder that has collected S
//!   too: what is still there after that is not older than a tombstone that is gone.
//!
//! The floor is not asked: it follows the promises of registers, which may be of now.
//!
//! A newcomer that copies takes only what was written in the epoch that writes to it: what
//! is older it gets from whom it copies, who knows what was deleted since.

use torc_record::{Ballot, Record};
use torc_ring::NodeId;

use super::{Now, Replica};
use crate::{Batch, Effect, Locator, Lookup, Message, Mutation, Seq, Storage, Tag};

impl Replica {
    /// A write, or what a node has missed of one.
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
        let register = self.register(&at, disk);
        match &register.lookup {
            Lookup::Found(found) if !record.supersedes(found) => {
                let after = self.gate(register.seq);
                return self.send(from, after, Message::Accepted { tag }, out);
            }
            // What cannot be read may be newer (R9).
            Lookup::Unreadable if record.ballot <= self.upper_bound() => {
                return self.abstain(from, tag, &at, out);
            }
            Lookup::Found(_) | Lookup::Absent | Lookup::Unreadable => {}
        }
        if self.pulling.is_some() && record.ballot.epoch != self.meta.epoch {
            return self.send(from, Seq(0), Message::Abstain { tag }, out);
        }
        if record.ballot <= self.closed_upto() {
            return self.refuse(from, tag, self.closed_upto(), out);
        }
        let seq = self.keep(record, out);
        self.send(from, self.gate(seq), Message::Accepted { tag }, out);
    }

    /// A version that another replica holds, whose watermark was `collected` then.
    pub(super) fn on_repair(
        &mut self,
        now: Now,
        record: Record,
        collected: Ballot,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_timely(now, record.ballot) {
            return;
        }
        let newer = match &self.register(&Locator::of(&record), disk).lookup {
            Lookup::Found(found) => record.supersedes(found),
            // A majority of the others was asked for it.
            Lookup::Absent | Lookup::Unreadable => true,
        };
        let gone = record.ballot <= self.meta.collected && collected < self.meta.collected;
        if newer && (!gone || self.mutations.has(Mutation::NoFloorAtCollection)) {
            self.keep(record, out);
        }
    }

    /// Nothing at or below is stored that no replica has.
    fn closed_upto(&self) -> Ballot {
        if self.mutations.has(Mutation::NoFloorAtCollection) {
            Ballot::default()
        } else {
            self.meta.collecting.max(self.meta.collected)
        }
    }

    fn keep(&mut self, record: Record, out: &mut Vec<Effect>) -> Seq {
        let mut batch = Batch::default();
        self.store(record, &mut batch);
        self.persist(batch, out)
    }
}
