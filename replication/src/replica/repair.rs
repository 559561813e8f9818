//! Anti-entropy: two replicas find what they hold differently (R8).
//!
//! Nothing is pushed: a version that only one replica holds may never have been chosen.
//! A difference starts an ordinary operation on that key, which finds out.

use torc_record::Ballot;
use torc_ring::NodeId;

use super::Replica;
use crate::compare::{self, Listing, RangeSum};
use crate::{Effect, Entry, Message, Mutation, Seq, Storage};

impl Replica {
    /// Starts a comparison with a peer: one message if all is equal.
    pub fn compare_with(&self, peer: NodeId, disk: &impl Storage, out: &mut Vec<Effect>) {
        if self.adopting.is_some() || self.pulling.is_some() {
            return;
        }
        let message = Message::Compare {
            collected: self.meta.collected,
            sums: vec![compare::sum_of(compare::Range::ALL, disk)],
        };
        self.send(peer, Seq(0), message, out);
    }

    pub(super) fn on_compare(
        &mut self,
        from: NodeId,
        collected: Ballot,
        theirs: &[RangeSum],
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        if self.pulling.is_some() {
            return;
        }
        if collected > self.meta.collected {
            // Compare again once this is done.
            return self.on_gc_purge(collected, out);
        }
        let mut sums = Vec::new();
        for range in theirs.iter().take(compare::MAX_RANGES) {
            let ours = compare::sum_of(range.range, disk);
            if ours == *range {
                continue;
            }
            if ours.count.max(range.count) <= compare::LEAF_ENTRIES || range.range.is_point() {
                let listing = compare::list(range.range, disk);
                self.send(from, Seq(0), Message::List { listing }, out);
            } else {
                sums.extend(range.range.split().map(|part| compare::sum_of(part, disk)));
            }
        }
        sums.truncate(compare::MAX_RANGES);
        if !sums.is_empty() {
            let collected = self.meta.collected;
            self.send(from, Seq(0), Message::Compare { collected, sums }, out);
        }
    }

    pub(super) fn on_list(
        &mut self,
        from: NodeId,
        theirs: &Listing,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        for difference in compare::differences(theirs, disk) {
            if self.mutations.has(Mutation::PushUnchosen) {
                self.push(from, &difference, disk, out);
                continue;
            }
            out.push(Effect::Settle {
                at: difference,
                rewrite: false,
            });
        }
    }

    fn push(&self, to: NodeId, at: &crate::Locator, disk: &impl Storage, out: &mut Vec<Effect>) {
        if let crate::Lookup::Found(record) = disk.get(at) {
            self.send(to, Seq(0), Message::Learn { record }, out);
        }
    }

    /// Entries that fail their checksum; each should be settled with `rewrite`.
    pub fn scrub(&self, disk: &impl Storage, out: &mut Vec<Effect>) {
        let mut after = None;
        loop {
            let scanned = disk.scan(after, self.options.page_records.max(1));
            after = scanned.next();
            for entry in scanned.entries {
                if let Entry::Unreadable(at) = entry {
                    out.push(Effect::Settle { at, rewrite: true });
                }
            }
            if after.is_none() {
                return;
            }
        }
    }
}
