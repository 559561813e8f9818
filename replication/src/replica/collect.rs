//! A replica's part in collecting tombstones and expired values.
//!
//! The floor is raised first, durably by way of the ceiling, so that nothing at or
//! below the watermark is accepted any more; then the sum is taken of what is on the
//! disk. See `collect.rs` for the whole.

use torc_record::Ballot;
use torc_ring::NodeId;

use super::{Now, Replica};
use crate::compare::entry_sum;
use crate::{Batch, Effect, Entry, KeyId, Message, Mutation, Storage, is_collected};

impl Replica {
    pub(super) fn on_gc_floor(
        &mut self,
        now: Now,
        from: NodeId,
        upto: Ballot,
        out: &mut Vec<Effect>,
    ) {
        if upto.epoch != self.meta.epoch || !self.is_timely(now, upto) {
            return;
        }
        let mut batch = Batch::default();
        if !self.mutations.has(Mutation::NoFloorAtCollection) {
            self.reserve(upto.time, &mut batch);
            self.raise_floor(upto);
        }
        if upto > self.meta.collecting {
            self.meta.collecting = upto;
            batch.meta = Some(self.meta);
        }
        self.persist(batch, out);
        // Even if the facts are durable: accepts before this may be on their way.
        if self.last_seq <= self.durable {
            self.persist(
                Batch {
                    meta: Some(self.meta),
                    ..Batch::default()
                },
                out,
            );
        }
        self.summing.push((self.last_seq, from, upto));
    }

    /// Answers the collections whose floor is durable by now.
    pub(super) fn finish_summing(&mut self, disk: &impl Storage, out: &mut Vec<Effect>) {
        let durable = self.durable;
        let ready: Vec<_> = self
            .summing
            .extract_if(.., |(seq, _, _)| *seq <= durable)
            .collect();
        for (seq, from, upto) in ready {
            let Some(sum) = self.sum_upto(upto, disk, out) else {
                continue;
            };
            let message = Message::GcSum {
                upto,
                sum,
                collected: self.meta.collected,
            };
            self.send(from, seq, message, out);
        }
    }

    /// The sum over the versions at or below `upto` that are not collected yet; none
    /// while one is unreadable.
    fn sum_upto(&self, upto: Ballot, disk: &impl Storage, out: &mut Vec<Effect>) -> Option<u128> {
        let limit = self.options.page_records.max(1);
        let (mut sum, mut after) = (0_u128, None);
        loop {
            let scanned = disk.scan(after, limit);
            for entry in &scanned.entries {
                match entry {
                    Entry::Found(record) => {
                        let dropped =
                            is_collected(record.ballot, &record.state, self.meta.collected);
                        if record.ballot <= upto && !dropped {
                            sum = sum.wrapping_add(entry_sum(KeyId::of(record), record.ballot));
                        }
                    }
                    Entry::Unreadable(_) if self.mutations.has(Mutation::UnreadableIsAbsent) => {}
                    Entry::Unreadable(at) => {
                        out.push(Effect::Settle {
                            at: at.clone(),
                            rewrite: true,
                        });
                        return None;
                    }
                }
            }
            after = scanned.next();
            if after.is_none() {
                return (!disk.is_partial()).then_some(sum);
            }
        }
    }

    /// All replicas once held the same at or below `upto`, or somebody who knows says
    /// so: what is gone there is gone for good.
    pub(super) fn on_gc_purge(&mut self, upto: Ballot, out: &mut Vec<Effect>) {
        if upto <= self.meta.collected || self.pulling.is_some() {
            return;
        }
        self.meta.collected = upto;
        self.meta.collecting = self.meta.collecting.max(upto);
        if !self.mutations.has(Mutation::NoFloorAtCollection) {
            self.raise_floor(upto);
        }
        let batch = Batch {
            purge: Some(upto),
            meta: Some(self.meta),
            ..Batch::default()
        };
        self.persist(batch, out);
    }
}
