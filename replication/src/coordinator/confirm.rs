//! R5 for many gets at once: asks the other replicas whether they hold the same versions as this
//! node's replica.
//!
//! A get whose coordinator is a replica has the value at hand. It only needs the other members of
//! a minimal read quorum to confirm that they hold the same version. So gets that start together
//! ask each member once, for all keys. Their confirmations prove exactly what the round of a
//! single get would prove from the same answers. If a member is late, all others are asked in the
//! same way. A key that is not confirmed by enough replicas, for whatever reason, takes that round.
//!
//! Used only in stable partitions, because a moving one needs larger quorums, and not while this
//! node writes the key, because a get after a write must see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use torc_record::{Ballot, HybridTime};
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use super::request::has_expired;
use super::{Coordinator, Intent, Operation, Outcome};
use crate::{
    Claim, Config, Content, Envelope, Held, MAX_CLAIMS, Message, Mutations, Now, OpId, Tag, Votes,
};

/// Gets that wait for answers of the same nodes.
#[derive(Debug, Default)]
pub(super) struct Group {
    round: HybridTime,
    began_ms: u64,
    wake_ms: u64,
    /// Whether the replicas outside the minimal quorums were asked too.
    is_widened: bool,
    waiting: Vec<Asked>,
    /// In the order of their ids. `None` once a get is answered, abandoned or started separately.
    gets: Vec<(OpId, Option<Get>)>,
}

/// A node that has not answered yet.
#[derive(Debug)]
struct Asked {
    node: NodeId,
    /// The indexes of the gets that it was asked about, in the order of the claims.
    gets: Vec<usize>,
}

#[derive(Debug)]
struct Get {
    operation: Operation,
    candidate: Candidate,
}

/// A get's answer, valid if enough others confirm it.
#[derive(Debug)]
struct Candidate {
    config: Arc<Config>,
    /// This node's replica and the requested ones.
    asked: Votes,
    /// This node's replica and those that have confirmed the version.
    holders: Votes,
    held: Held,
    /// The claimed version of the key; for an absent key the watermark.
    version: Ballot,
    is_absent: bool,
}

impl Coordinator {
    /// Starts operations that arrived together, in the order of their ids. A get may come with the
    /// local replica's record of its key, if that is in memory. Otherwise as [`start`](Self::start).
    pub fn start_many(
        &mut self,
        now: Now,
        operations: impl IntoIterator<Item = (OpId, Operation, Option<Held>)>,
        out: &mut Vec<Intent>,
    ) {
        let mut groups: Vec<Group> = Vec::new();
        for (id, operation, held) in operations {
            let candidate = held.and_then(|held| self.candidate(now, &operation, held));
            let Some(candidate) = candidate else {
                if operation.request.is_write() {
                    // An earlier get of this batch must not see this write.
                    self.ask_to_confirm(now, &mut groups, out);
                }
                self.start(now, id, operation, out);
                continue;
            };
            let others = || {
                candidate
                    .config
                    .nodes(candidate.asked.without(candidate.holders))
            };
            let is_open = |group: &Group| {
                let nodes = group.waiting.iter().map(|asked| asked.node);
                group.gets.len() < MAX_CLAIMS && nodes.eq(others())
            };
            let place = groups.iter().rposition(is_open);
            let place = place.unwrap_or_else(|| {
                let asked = |node| Asked {
                    node,
                    gets: Vec::new(),
                };
                groups.push(Group {
                    waiting: others().map(asked).collect(),
                    ..Group::default()
                });
                groups.len() - 1
            });
            let group = &mut groups[place];
            for asked in &mut group.waiting {
                asked.gets.push(group.gets.len());
            }
            let get = Get {
                operation,
                candidate,
            };
            group.gets.push((id, Some(get)));
        }
        self.ask_to_confirm(now, &mut groups, out);
    }

    /// Whether a get may ask others to confirm this node's record.
    fn candidate(&self, now: Now, operation: &Operation, held: Held) -> Option<Candidate> {
        let config = self.configs.get(&operation.partition)?;
        let silent = config.not_counting(self.mutations);
        let all = config.acceptors().without(silent);
        let near = config.index(self.options.near?)?;
        let is_here = all.contains(near);
        if config.stage != Stage::Stable || !is_here || self.lines.is_taken(&operation.at) {
            return None;
        }
        let quorum = self.quorum_first(now, config, all);
        let is_lost = |node: &NodeId| self.out_of_reach.lost.contains(node);
        let asks_somebody = quorum.count() > 1;
        if !asks_somebody
            || !config.may_read(quorum, self.mutations)
            || config.nodes(quorum).any(|node| is_lost(&node))
        {
            return None;
        }
        let (version, is_absent) = claimed(now, &held)?;
        Some(Candidate {
            config: Arc::clone(config),
            asked: quorum,
            holders: Votes::one(near),
            held,
            version,
            is_absent,
        })
    }

    fn ask_to_confirm(&mut self, now: Now, groups: &mut Vec<Group>, out: &mut Vec<Intent>) {
        for mut group in groups.drain(..) {
            let round = self.tick_clock(now, out);
            let (Some(round), Some((op, _))) = (round, group.gets.first()) else {
                self.start_each(now, group, out);
                continue;
            };
            let op = *op;
            group.round = round;
            group.began_ms = now.elapsed_ms;
            let tag = Tag { op, round };
            group.ask(tag, 0, out);
            group.wake_ms = now.elapsed_ms.saturating_add(self.widen_after_ms());
            self.keep_waiting(now, op, group, out);
        }
    }

    /// Keeps a group until the next answer or its wake-up.
    fn keep_waiting(&mut self, now: Now, op: OpId, mut group: Group, out: &mut Vec<Intent>) {
        let deadlines = group.open().map(|get| get.operation.deadline_ms);
        let Some(deadline_ms) = deadlines.min() else {
            return self.note_round_since(now, group.began_ms);
        };
        if group.waiting.is_empty() {
            self.note_round_since(now, group.began_ms);
            return self.start_each(now, group, out);
        }
        group.wake_ms = group.wake_ms.min(deadline_ms);
        self.confirming.insert(op, group);
    }

    pub(super) fn on_confirmed(
        &mut self,
        now: Now,
        from: NodeId,
        tag: Tag,
        confirmed: &[bool],
        out: &mut Vec<Intent>,
    ) {
        let asked = self.confirming.get_mut(&tag.op);
        let Some(group) = asked.filter(|group| group.round == tag.round) else {
            return;
        };
        let Some(place) = group.waiting.iter().position(|asked| asked.node == from) else {
            return;
        };
        let asked = group.waiting.swap_remove(place);
        if !group.is_widened {
            self.suspects.was_in_time(from, now);
        }
        for (place, _) in asked.gets.into_iter().zip(confirmed).filter(|it| *it.1) {
            let (op, get) = &mut group.gets[place];
            let get = get.take_if(|Get { candidate, .. }| {
                let index = candidate.config.index(from);
                candidate.holders = candidate
                    .holders
                    .union(index.map_or(Votes::NONE, Votes::one));
                // A quorum that holds it also proves that no higher version is chosen.
                let config = &candidate.config;
                config.is_chosen(candidate.version, candidate.holders, self.mutations)
            });
            let outcome = get.map(|get| get.candidate.outcome());
            out.extend(outcome.map(|outcome| Intent::Done { op: *op, outcome }));
        }
        if let Some(group) = self.confirming.remove(&tag.op) {
            self.keep_waiting(now, tag.op, group, out);
        }
    }

    /// Asks the other replicas, still many keys at a time, if nodes have not answered in time. If
    /// these do not answer in time either, the gets continue separately.
    pub(super) fn confirm_late(&mut self, now: Now, out: &mut Vec<Intent>) {
        let is_due = |group: &Group| group.wake_ms <= now.elapsed_ms;
        while let Some((first, _)) = self.confirming.iter().find(|(_, group)| is_due(group)) {
            let first = *first;
            let Some(mut group) = self.confirming.remove(&first) else {
                return;
            };
            for asked in &group.waiting {
                self.suspects.was_late(asked.node, now);
            }
            let (known, lost) = (group.waiting.len(), &self.out_of_reach.lost);
            let is_widened = group.widen(now, |node| !lost.contains(&node), self.mutations);
            if !is_widened {
                self.start_each(now, group, out);
                continue;
            }
            let tag = Tag {
                op: first,
                round: group.round,
            };
            group.ask(tag, known, out);
            group.wake_ms = now.elapsed_ms.saturating_add(self.widen_after_ms());
            self.keep_waiting(now, first, group, out);
        }
    }

    pub(super) fn next_confirm_ms(&self) -> Option<u64> {
        self.confirming.values().map(|group| group.wake_ms).min()
    }

    /// Number of gets that wait for a confirmation.
    pub(super) fn gets_confirming(&self) -> usize {
        self.confirming.values().flat_map(Group::open).count()
    }

    /// Abandons a get that waits here. The other gets keep their indexes, because the answers refer
    /// to them.
    pub(super) fn abandon_confirming(&mut self, id: OpId) {
        // The ids of a batch may alternate between its groups. Otherwise the first one has the get.
        for (_, Group { gets, .. }) in self.confirming.range_mut(..=id).rev() {
            if let Ok(place) = gets.binary_search_by_key(&id, |(id, _)| *id) {
                gets[place].1 = None;
                return;
            }
        }
    }

    fn start_each(&mut self, now: Now, group: Group, out: &mut Vec<Intent>) {
        for (id, get) in group.gets {
            if let Some(get) = get {
                self.start(now, id, get.operation, out);
            }
        }
    }
}

impl Group {
    fn open(&self) -> impl Iterator<Item = &Get> {
        self.gets.iter().filter_map(|(_, get)| get.as_ref())
    }

    /// Sends claims to the nodes in `waiting` from this index on.
    fn ask(&self, tag: Tag, from: usize, out: &mut Vec<Intent>) {
        for asked in &self.waiting[from..] {
            let gets = asked.gets.iter().filter_map(|at| self.gets[*at].1.as_ref());
            let mut gets = gets.peekable();
            let Some(first) = gets.peek() else { continue };
            let envelope = Envelope {
                partition: first.operation.partition,
                epoch: first.candidate.config.epoch,
                message: Message::Confirm {
                    tag,
                    claims: gets.map(Get::claim).collect(),
                },
            };
            let to = asked.node;
            out.push(Intent::Send { to, envelope });
        }
    }

    /// Adds the replicas that were not asked yet. Returns false if that was done before, if a get
    /// has no other replica within reach, or if its deadline has passed.
    fn widen(
        &mut self,
        now: Now,
        is_in_reach: impl Fn(NodeId) -> bool,
        mutations: Mutations,
    ) -> bool {
        let mut others: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (at, (_, get)) in self.gets.iter_mut().enumerate() {
            let Some(Get {
                operation,
                candidate,
                ..
            }) = get
            else {
                continue;
            };
            let config = &candidate.config;
            let all = config.acceptors().without(config.not_counting(mutations));
            let more = all.without(candidate.asked);
            candidate.asked = all;
            let nodes: Vec<_> = config.nodes(more).filter(|it| is_in_reach(*it)).collect();
            if self.is_widened || nodes.is_empty() || operation.deadline_ms <= now.elapsed_ms {
                return false;
            }
            for node in nodes {
                others.entry(node).or_default().push(at);
            }
        }
        let others = others.into_iter();
        let others = others.map(|(node, gets)| Asked { node, gets });
        self.waiting.extend(others);
        self.is_widened = true;
        true
    }
}

impl Get {
    fn claim(&self) -> Claim {
        Claim {
            partition: self.operation.partition,
            epoch: self.candidate.config.epoch,
            at: self.operation.at.clone(),
            version: self.candidate.version,
            is_absent: self.candidate.is_absent,
        }
    }
}

impl Candidate {
    fn outcome(self) -> Outcome {
        let version = self.held.version();
        let fast = true;
        match self.held.content {
            Content::Value {
                value: Some(value),
                expires_at_ms,
            } => Outcome::Found {
                value,
                version,
                expires_at_ms,
                fast,
            },
            _ => Outcome::Absent { fast },
        }
    }
}

/// The version to confirm, and whether the key is absent; `None` for an expired or
/// collected record, which needs more than a confirmation.
fn claimed(now: Now, held: &Held) -> Option<(Ballot, bool)> {
    let time = HybridTime::from_unix_ms(now.unix_ms).max(held.collecting.time);
    let expires_at_ms = match &held.content {
        Content::Absent => return Some((held.collected, true)),
        Content::Tombstone => None,
        Content::Value { expires_at_ms, .. } => *expires_at_ms,
    };
    let state = held.content.to_state_head();
    let is_gone = state.is_some_and(|it| it.is_collected(held.ballot, held.collected));
    (!is_gone && !has_expired(expires_at_ms, time)).then_some((held.ballot, false))
}
