//! Copying: the parts of a newcomer and of a source.
//!
//! A newcomer takes over the votes of the replica that it displaces by copying *that* replica, page
//! by page, after both have adopted the epoch that writes both. If it displaces none, or the
//! displaced one is dead and excluded, it gathers from a majority of the others: the highest version of
//! every key among them.
//!
//! The newcomer copies once before, while copying, for the bulk; that copy only makes the second
//! one short. It must come from the same replicas, or it would bring votes that are not the
//! newcomer's. The bulk comes as sealed slices, and the second copy is the tail of each source's
//! log from there on (`slices`).
//!
//! A member that stays in a shrinking set must also hold what a majority held. It serves reads here
//! and has made promises, so it may not simply take over other records: every key for which another
//! replica holds something newer is reconciled by an ordinary operation, and the pass is repeated
//! until it finds nothing.
//!
//! The watermarks come last: until the copy is complete, missing records must not look collected.

use torc_record::{Ballot, Record, ReplicaBatch};
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use super::Replica;
use super::collect::further;
use crate::{
    Config, Effect, KeyId, Locator, LogPosition, Lookup, Message, Milestone, Mutation, Seq,
    Storage, Tag,
};

#[derive(Debug)]
pub(super) struct Source {
    pub(super) node: NodeId,
    /// The position up to which the slices are already here.
    since: Option<LogPosition>,
    after: Option<KeyId>,
    pub(super) done: bool,
}

impl Source {
    /// The request for its next page.
    fn ask(&self) -> Message {
        Message::Pull {
            tag: Tag::default(),
            after: self.after,
            since: self.since,
            known: None,
        }
    }
}

/// A running copy.
#[derive(Debug)]
pub(super) struct Pulling {
    pub(super) sources: Vec<Source>,
    needed: usize,
    /// Whether the bulk comes as slices.
    pub(super) by_slices: bool,
    /// Whether it is a staying member, which reconciles differences instead of copying.
    reconciles: bool,
    collected: Ballot,
    collecting: Ballot,
    last: Seq,
}

impl Replica {
    pub(super) fn begin_pull(&mut self, out: &mut Vec<Effect>) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let copies = match config.stage {
            Stage::Copying => true,
            Stage::WriteBothReadOld => {
                !config.returning && !self.mutations.has(Mutation::BulkIsSnapshot)
            }
            Stage::Stable | Stage::WriteBothReadNew => false,
        };
        let Some(nodes) = copies.then(|| self.sources(&config)).flatten() else {
            return;
        };
        let stays = self.stays(&config);
        let needed = match config.seat_of(self.me) {
            // A staying member itself belongs to the majority.
            Some(seat) if config.gathers(seat) => {
                config.old.count() as usize / 2 + usize::from(!stays)
            }
            _ => 1,
        };
        self.recent.give_up();
        let source = |node| Source {
            node,
            since: self.tail_of(node, config.stage),
            after: None,
            done: false,
        };
        let skips = nodes.is_empty() || stays && config.stage == Stage::Copying;
        self.pulling = Some(Pulling {
            by_slices: self.options.copies_slices && config.stage == Stage::Copying && !stays,
            sources: nodes.into_iter().map(source).collect(),
            needed: if skips { 0 } else { needed },
            reconciles: stays,
            collected: Ballot::default(),
            collecting: Ballot::default(),
            last: Seq(0),
        });
        self.pull_again(out);
        self.finish_pull(out);
    }

    fn stays(&self, config: &Config) -> bool {
        let index = config.index(self.me);
        index.is_some_and(|index| config.old.contains(index))
    }

    /// The nodes to copy from, if this node is a newcomer.
    fn sources(&self, config: &Config) -> Option<Vec<NodeId>> {
        let seat = config.seat_of(self.me)?;
        if self.mutations.has(Mutation::GrowthStartsEmpty) && seat.displaced.is_none() {
            return Some(Vec::new());
        }
        if self.mutations.has(Mutation::ShrinkWithoutGather) && self.stays(config) {
            return Some(Vec::new());
        }
        if config.gathers(seat) {
            let others = config.old.without(config.excluded);
            let nodes = config.nodes(others).filter(|node| *node != self.me);
            return Some(nodes.collect());
        }
        let displaced = seat.displaced.map(|index| config.members[index].node)?;
        if self.mutations.has(Mutation::StreamFromSurvivor) {
            let survivors = config.old.intersection(config.new);
            return Some(config.nodes(survivors).take(1).collect());
        }
        Some(vec![displaced])
    }

    pub(super) fn pull_again(&self, out: &mut Vec<Effect>) {
        let Some(pulling) = &self.pulling else {
            return;
        };
        for source in pulling.sources.iter().filter(|source| !source.done) {
            if pulling.by_slices {
                let (from, epoch) = (source.node, self.meta.epoch);
                out.push(Effect::CopySlices { from, epoch });
            } else {
                self.send(source.node, Seq(0), source.ask(), out);
            }
        }
    }

    pub(super) fn on_page(
        &mut self,
        from: NodeId,
        page: Message,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        let Message::Page {
            tag,
            after,
            records,
            next,
            collected,
            collecting,
        } = page
        else {
            return;
        };
        if tag != Tag::default() {
            // The page belongs to a listing.
            return;
        }
        let Some(mut pulling) = self.pulling.take() else {
            return;
        };
        let expected = |s: &&mut Source| s.node == from && !s.done && s.after == after;
        if let Some(source) = pulling.sources.iter_mut().find(expected)
            && let Some(seq) = self.take_page(pulling.reconciles, records, disk, out)
        {
            source.after = next.or(source.after);
            source.done = next.is_none();
            pulling.collected = pulling.collected.max(collected);
            pulling.collecting = further(pulling.collecting, collecting);
            pulling.last = seq.max(pulling.last);
            if next.is_some() {
                let ask = source.ask();
                self.send(from, Seq(0), ask, out);
            }
        }
        self.pulling = Some(pulling);
        self.finish_pull(out);
    }

    /// The batch with all newer records; `None` if the page must be requested again.
    fn take_page(
        &mut self,
        reconciles: bool,
        records: Vec<Record>,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) -> Option<Seq> {
        if !reconciles {
            return self.install(records, disk, out);
        }
        let (mut equal, mut last) = (true, Seq(0));
        for record in records {
            let at = Locator::of(&record);
            let (lookup, seq) = self.look_up(&at, disk);
            last = last.max(seq);
            match lookup {
                Lookup::Found(found) if !record.supersedes(&found) => {}
                // Collected here, and not yet at the source. A reconciliation would change nothing.
                Lookup::Absent
                    if record
                        .state
                        .is_collected(record.ballot, self.meta.collected) => {}
                _ if disk.is_foreign(&at) && !self.mutations.has(Mutation::ForeignCounts) => {}
                lookup => {
                    equal = false;
                    let rewrite = lookup == Lookup::Unreadable;
                    out.push(Effect::Reconcile { at, rewrite });
                }
            }
        }
        equal.then_some(last)
    }

    /// Stores newer records; `None` if a record here is unreadable: it may have been accepted
    /// since, so the page must be requested again after its repair.
    fn install(
        &mut self,
        records: Vec<Record>,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) -> Option<Seq> {
        let mut newer = Vec::new();
        for record in records {
            let at = Locator::of(&record);
            match self.look_up(&at, disk).0 {
                Lookup::Found(found) if record.supersedes(&found) => newer.push(record),
                Lookup::Found(_) => {}
                Lookup::Absent => newer.push(record),
                // A copy of the bulk: nothing was accepted here yet, so nothing can be lost.
                Lookup::Unreadable if self.copies_bulk() => newer.push(record),
                Lookup::Unreadable => {
                    out.push(Effect::Reconcile { at, rewrite: true });
                    return None;
                }
            }
        }
        let mut batch = ReplicaBatch::default();
        for record in newer {
            self.store(record, &mut batch);
        }
        Some(self.persist(batch, out))
    }

    fn copies_bulk(&self) -> bool {
        let config = self.config.as_ref();
        config.is_some_and(|config| config.stage == Stage::Copying)
    }

    pub(super) fn finish_pull(&mut self, out: &mut Vec<Effect>) {
        let done = |pulling: &mut Pulling| {
            pulling.sources.iter().filter(|source| source.done).count() >= pulling.needed
        };
        let Some(pulling) = self.pulling.take_if(done) else {
            return;
        };
        let Some(config) = &self.config else {
            return;
        };
        let epoch = config.epoch;
        if config.stage == Stage::Copying {
            return self.reach(Milestone::Copied(epoch), pulling.last, out);
        }
        self.meta.collected = self.meta.collected.max(pulling.collected);
        self.raise_collecting(pulling.collecting);
        let batch = ReplicaBatch {
            purge: Some(self.meta.collected),
            meta: Some(self.meta),
            ..ReplicaBatch::default()
        };
        let seq = self.persist(batch, out);
        self.reach(Milestone::Snapshotted(epoch), seq, out);
    }
}
