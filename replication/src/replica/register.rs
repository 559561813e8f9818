//! R2, R3, R6, R8, R9: a replica's handling of Read, Prepare, Accept and Learn.

use torc_record::{Ballot, Record, ReplicaBatch};
use torc_ring::NodeId;

use super::{Now, Replica};
use crate::{Content, Effect, Held, Locator, Lookup, Message, Mutation, Recall, Seq, Storage, Tag};

impl Replica {
    #[expect(
        clippy::too_many_arguments,
        reason = "a message's fields and its surroundings"
    )]
    pub(super) fn on_read(
        &mut self,
        now: Now,
        from: NodeId,
        (tag, closes): (Tag, Ballot),
        at: &Locator,
        want_value: bool,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_timely(now, closes) {
            return;
        }
        self.close(closes, out);
        let (lookup, seq) = self.look_up(at, disk);
        match self.held(&lookup, want_value) {
            Some(held) => {
                // Whoever closed it: the reader counts on what the answer says.
                let after = self.once_durable(seq.max(self.closing()));
                self.send(from, after, Message::Holding { tag, held }, out);
            }
            None if at.namespace.is_generation() => self.abstain(from, tag, at, out),
            None => match self.note_unreadable(at, closes) {
                Ok(()) => self.abstain(from, tag, at, out),
                Err(bound) => self.refuse(from, tag, bound, out),
            },
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a message's fields and its surroundings"
    )]
    pub(super) fn on_prepare(
        &mut self,
        now: Now,
        from: NodeId,
        tag: Tag,
        at: &Locator,
        (ballot, doubted): (Ballot, Option<Ballot>),
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_timely(now, ballot) {
            return;
        }
        let (lookup, seq) = self.look_up(at, disk);
        let Some(held) = self.held(&lookup, true) else {
            return self.abstain(from, tag, at, out);
        };
        let highest = self.highest(at, held.ballot);
        if ballot <= highest {
            return self.refuse(from, tag, highest, out);
        }
        let mut batch = ReplicaBatch::default();
        self.reserve(ballot.time, &mut batch);
        self.promise(at, ballot);
        self.persist(batch, out);
        // An earlier message may have sent the ceiling that covers this promise to the disk.
        let seq = self.meta_seq.max(seq);
        let recall = doubted.map(|doubted| self.recall(at, doubted, &lookup));
        let recall = recall.unwrap_or_default();
        let promised = Message::Promised { tag, held, recall };
        self.send(from, self.once_durable(seq), promised, out);
    }

    /// The memory of a key's versions. The promise ensures that versions never stored here never
    /// will be.
    fn recall(&self, at: &Locator, doubted: Ballot, lookup: &Lookup) -> Recall {
        // A replica's version of a key only rises.
        if matches!(lookup, Lookup::Found(found) if found.ballot < doubted) {
            return Recall::Never;
        }
        if self.mutations.has(Mutation::DeniesForgotten) {
            return self.recent.recall_carelessly(at.id(), doubted);
        }
        self.recent.recall(at.id(), doubted)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a message's fields and its surroundings"
    )]
    pub(super) fn on_accept(
        &mut self,
        now: Now,
        from: NodeId,
        tag: Tag,
        record: Record,
        next: Option<Ballot>,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        let mixed = record.ballot.epoch != self.meta.epoch;
        // The next ballot is promised too: one far in the future would lock out all others.
        let last = next.unwrap_or(record.ballot).max(record.ballot);
        if !self.is_timely(now, last)
            || mixed
                && !self.mutations.has(Mutation::MixedEpochs)
                && !self.mutations.has(Mutation::NoEpochFence)
        {
            return;
        }
        let at = Locator::of(&record);
        // Higher than everything here, so the key's version need not be looked up.
        let (lookup, seq) = if self.is_above_all(record.ballot) {
            (Lookup::Absent, Seq(0))
        } else {
            self.look_up(&at, disk)
        };
        let accepted = match lookup {
            Lookup::Found(found) => found.ballot,
            // Everything accepted here and lost is at or below the bound.
            Lookup::Unreadable
                if record.ballot <= self.upper_bound()
                    && !self.mutations.has(Mutation::AcceptOverUnreadable) =>
            {
                return self.refuse(from, tag, self.upper_bound(), out);
            }
            Lookup::Absent | Lookup::Unreadable => Ballot::default(),
        };
        if record.ballot == accepted {
            let after = self.once_durable(seq);
            return self.send(from, after, Message::Accepted { tag }, out);
        }
        let highest = self.highest(&at, accepted);
        if record.ballot < highest {
            if self.mutations.has(Mutation::LastWriterWins) {
                return self.send(from, Seq(0), Message::Accepted { tag }, out);
            }
            return self.refuse(from, tag, highest, out);
        }
        let mut batch = ReplicaBatch::default();
        if let Some(next) = next {
            self.reserve(next.time, &mut batch);
            if !self.mutations.has(Mutation::NextUnpromised) {
                self.promise(&at, next);
            }
        }
        self.store(record, &mut batch);
        let seq = self.persist(batch, out);
        self.send(from, self.once_durable(seq), Message::Accepted { tag }, out);
    }

    /// A proven version may bypass a promise, because the holder of the promise will
    /// find this version at a quorum (R8). It must not bypass a collection, nor replace
    /// an unreadable record, which may have been newer (R9).
    pub(super) fn on_learn(&mut self, record: Record, disk: &impl Storage, out: &mut Vec<Effect>) {
        let at = Locator::of(&record);
        let newer = match self.look_up(&at, disk).0 {
            Lookup::Absent => true,
            Lookup::Found(found) => record.supersedes(&found),
            Lookup::Unreadable => self.mutations.has(Mutation::LearnOverUnreadable),
        };
        // At or below the watermark, all replicas held the same, so a missing version is gone.
        let is_gone = record.ballot <= self.meta.collected;
        if newer && (!is_gone || self.mutations.has(Mutation::LearnRevives)) {
            let mut batch = ReplicaBatch::default();
            self.store(record, &mut batch);
            self.persist(batch, out);
        }
    }

    pub(super) fn held(&self, lookup: &Lookup, with_value: bool) -> Option<Held> {
        let (ballot, origin, content) = match lookup {
            Lookup::Absent => (Ballot::default(), None, Content::Absent),
            Lookup::Found(record) => {
                let content = Content::of(&record.state, with_value);
                (record.ballot, record.origin, content)
            }
            Lookup::Unreadable => return None,
        };
        let forgets = self.mutations.has(Mutation::AbsentZero);
        let zero = Ballot::default();
        Some(Held {
            ballot,
            origin,
            content,
            collected: if forgets { zero } else { self.meta.collected },
            collecting: if self.mutations.has(Mutation::CollectingUntold) {
                zero
            } else {
                self.meta.collecting
            },
        })
    }

    /// Whether no version here can have this high a ballot.
    pub(super) fn is_above_all(&self, ballot: Ballot) -> bool {
        self.pulling.is_none() && ballot > self.top || self.mutations.has(Mutation::AcceptUnseen)
    }

    fn highest(&self, at: &Locator, accepted: Ballot) -> Ballot {
        if self.mutations.has(Mutation::AcceptBelowPromise) {
            return accepted.max(self.floor);
        }
        self.promises.get(at.id()).max(accepted).max(self.floor)
    }

    fn promise(&mut self, at: &Locator, ballot: Ballot) {
        let evicted = self.promises.raise(at.id(), ballot);
        self.raise_floor(evicted);
    }

    /// Whether our clock can follow a ballot's time (R10). A coordinator whose clock is
    /// far ahead gets no answer, because it must not advance the other clocks.
    pub(super) fn is_timely(&mut self, now: Now, ballot: Ballot) -> bool {
        self.clock.observe(ballot.time, now.unix_ms).is_ok()
    }

    pub(super) fn once_durable(&self, seq: Seq) -> Seq {
        if self.mutations.has(Mutation::AckBeforeDurable) {
            Seq(0)
        } else {
            seq
        }
    }
}
