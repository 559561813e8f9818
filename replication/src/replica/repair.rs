//! Anti-entropy: two replicas find their differences (R8).
//!
//! They push no versions, because a version on a single replica may never have been
//! chosen. A difference starts an ordinary operation on that key, which resolves it.

use torc_ring::NodeId;

use super::Replica;
use crate::{Effect, Entry, Locator, Lookup, Message, Mutation, Seq, Storage};

impl Replica {
    /// Reconciles the keys whose copies differ; each with whether the record here is unreadable.
    pub(super) fn reconcile_all(
        &self,
        from: NodeId,
        differences: Vec<(Locator, bool)>,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        for (at, rewrite) in differences {
            if self.mutations.has(Mutation::PushUnchosen) {
                self.push(from, &at, disk, out);
            } else {
                out.push(Effect::Reconcile { at, rewrite });
            }
        }
    }

    fn push(&self, to: NodeId, at: &Locator, disk: &impl Storage, out: &mut Vec<Effect>) {
        if let Lookup::Found(record) = disk.get(at) {
            self.send(to, Seq(0), Message::Learn { record }, out);
        }
    }

    /// Entries that fail their checksum; each should be reconciled with `rewrite`.
    pub fn scrub(&self, disk: &impl Storage, out: &mut Vec<Effect>) {
        let mut after = None;
        loop {
            let scanned = disk.scan(after, self.options.page_records.max(1));
            after = scanned.next();
            for entry in scanned.entries {
                if let Entry::Unreadable(at) = entry {
                    out.push(Effect::Reconcile { at, rewrite: true });
                }
            }
            if after.is_none() {
                return;
            }
        }
    }
}
