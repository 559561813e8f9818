//! What a replica has read in the background, and what it does with the result.

use torc_record::Ballot;
use torc_ring::NodeId;

use super::Replica;
use crate::compare::{Listing, RangeSum};
use crate::reading::{Found, HeldPage, What};
use crate::{
    Effect, Entry, KeyId, KnownPage, LogPosition, Message, Mutation, Reading, Readout, Seq,
    Storage, Tag,
};

impl Replica {
    fn read(&self, peer: NodeId, what: What, out: &mut Vec<Effect>) {
        out.push(Effect::Read(Reading {
            epoch: self.meta.epoch,
            collected: self.meta.collected,
            page_records: self.options.page_records.max(1),
            mutations: self.mutations,
            peer,
            what,
        }));
    }

    /// Serves a page of durable records. In this epoch, that is everything accepted in earlier
    /// epochs; writes on their way now will be accepted by both sets.
    pub(super) fn on_pull(
        &self,
        from: NodeId,
        tag: Tag,
        after: Option<KeyId>,
        (since, known): (Option<LogPosition>, Option<KnownPage>),
        out: &mut Vec<Effect>,
    ) {
        let what = What::Page {
            tag,
            after,
            since,
            known,
        };
        self.read(from, what, out);
    }

    pub(super) fn read_sum(&self, from: NodeId, after: Seq, upto: Ballot, out: &mut Vec<Effect>) {
        self.read(from, What::Sum { after, upto }, out);
    }

    /// Starts a comparison with a peer: one message if everything is equal.
    pub fn compare_with(&self, peer: NodeId, out: &mut Vec<Effect>) {
        if self.adopting.is_none() && self.pulling.is_none() {
            self.read(peer, What::All, out);
        }
    }

    pub(super) fn on_compare(
        &mut self,
        from: NodeId,
        collected: Ballot,
        theirs: Vec<RangeSum>,
        out: &mut Vec<Effect>,
    ) {
        if self.pulling.is_some() {
            return;
        }
        if collected > self.meta.collected {
            // The comparison is repeated after this.
            return self.on_gc_purge(collected, out);
        }
        self.read(from, What::Ranges(theirs), out);
    }

    pub(super) fn on_list(&self, from: NodeId, theirs: Listing, out: &mut Vec<Effect>) {
        self.read(from, What::Listing(theirs), out);
    }

    /// Takes the result of a read, if it is still valid.
    pub(super) fn on_read_out(
        &mut self,
        readout: Readout,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        let Readout { epoch, peer, found } = readout;
        let is_of_now = self.adopting.is_none() && epoch == self.meta.epoch;
        if !is_of_now && !self.mutations.has(Mutation::ReadoutOfAnyEpoch) {
            return;
        }
        match found {
            // A page may hold versions whose replacements are collected by now.
            Found::Page {
                tag,
                after,
                since,
                known,
                collected,
                ..
            } if collected != self.meta.collected
                && !self.mutations.has(Mutation::EventualOutdated) =>
            {
                self.on_pull(peer, tag, after, (since, known), out);
            }
            Found::Page {
                tag, after, held, ..
            } => self.send_page(peer, tag, after, held, out),
            Found::Sum {
                after,
                upto,
                sum,
                first_expiry_ms,
                unreadable,
            } => {
                if sum.is_some() {
                    self.expiries.found(after, first_expiry_ms);
                }
                out.extend(unreadable.map(|at| Effect::Reconcile { at, rewrite: true }));
                if let Some(sum) = sum {
                    let collected = self.meta.collected;
                    let message = Message::GcSum {
                        upto,
                        sum,
                        collected,
                    };
                    self.send(peer, after, message, out);
                }
            }
            Found::Answers(answers) => {
                for message in answers.into_iter().filter(|_| self.pulling.is_none()) {
                    self.send(peer, Seq(0), message, out);
                }
            }
            Found::Differences(differences) => self.reconcile_all(peer, differences, disk, out),
        }
    }

    fn send_page(
        &self,
        to: NodeId,
        tag: Tag,
        after: Option<KeyId>,
        held: HeldPage,
        out: &mut Vec<Effect>,
    ) {
        let (collected, collecting) = (self.meta.collected, self.meta.collecting);
        let scanned = match held {
            HeldPage::Entries(scanned) => scanned,
            HeldPage::Same => {
                let same = Message::SamePage {
                    tag,
                    collected,
                    collecting,
                };
                return self.send(to, Seq(0), same, out);
            }
            // The comparison with the others will find the damage.
            HeldPage::Partial => return,
        };
        let next = scanned.next();
        let mut records = Vec::with_capacity(scanned.entries.len());
        for entry in scanned.entries {
            match entry {
                Entry::Found(record) => records.push(record),
                Entry::Unreadable(_) if self.mutations.has(Mutation::UnreadableIsAbsent) => {}
                // The copy waits: a gap would look like "never accepted here".
                Entry::Unreadable(at) => {
                    out.push(Effect::Reconcile { at, rewrite: true });
                    return;
                }
            }
        }
        let page = Message::Page {
            tag,
            after,
            records,
            next,
            collected,
            collecting,
        };
        self.send(to, Seq(0), page, out);
    }
}
