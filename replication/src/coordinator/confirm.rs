//! R5 for many gets at once: asks the other replicas whether they hold the same versions as this
//! node's replica.
//!
//! A get whose coordinator is a replica has the value at hand. It only needs the other members of
//! a minimal read quorum to confirm that they hold the same version. So gets that start together
//! ask each member once, for all keys. Their confirmations prove exactly what the round of a
//! single get would prove from the same answers. A key that any member does not confirm, for
//! whatever reason, takes that round.
//!
//! Used only in stable partitions, because a moving one needs larger quorums, and not while this
//! node writes the key, because a get after a write must see it.

use std::sync::Arc;

use torc_record::{Ballot, HybridTime};
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use super::request::has_expired;
use super::{Coordinator, Intent, Operation, Outcome};
use crate::{
    Claim, Config, Content, Envelope, Held, MAX_CLAIMS, Message, Now, OpId, Tag, Votes,
    is_collected,
};

/// Gets that wait for answers of the same nodes.
#[derive(Debug, Default)]
pub(super) struct Group {
    round: HybridTime,
    began_ms: u64,
    wake_ms: u64,
    /// The requested nodes that have not answered.
    from: Vec<NodeId>,
    gets: Vec<Get>,
}

#[derive(Debug)]
struct Get {
    id: OpId,
    operation: Operation,
    hope: Hope,
    is_same: bool,
    is_abandoned: bool,
}

/// A get's answer, valid if the others confirm it.
#[derive(Debug)]
struct Hope {
    config: Arc<Config>,
    /// This node's replica and the requested ones.
    quorum: Votes,
    held: Held,
    /// The claimed version of the key; for an absent key the watermark.
    version: Ballot,
    is_absent: bool,
}

impl Coordinator {
    /// Starts operations that arrived together, in order. A get may come with the local replica's
    /// record of its key, if that is in memory. Otherwise as [`start`](Self::start).
    pub fn start_many(
        &mut self,
        now: Now,
        operations: impl IntoIterator<Item = (OpId, Operation, Option<Held>)>,
        out: &mut Vec<Intent>,
    ) {
        let mut groups: Vec<Group> = Vec::new();
        for (id, operation, held) in operations {
            let hope = held.and_then(|held| self.hope(now, &operation, held));
            let Some(hope) = hope else {
                if operation.request.is_write() {
                    // An earlier get of this batch must not see this write.
                    self.ask_to_confirm(now, &mut groups, out);
                }
                self.start(now, id, operation, out);
                continue;
            };
            let others = || {
                let nodes = hope.config.nodes(hope.quorum);
                nodes.filter(|node| Some(*node) != self.options.near)
            };
            let is_open = |group: &&mut Group| {
                group.gets.len() < MAX_CLAIMS && group.from.iter().copied().eq(others())
            };
            let get = |hope| Get {
                id,
                operation,
                hope,
                is_same: true,
                is_abandoned: false,
            };
            if let Some(group) = groups.iter_mut().rfind(is_open) {
                group.gets.push(get(hope));
            } else {
                groups.push(Group {
                    from: others().collect(),
                    gets: vec![get(hope)],
                    ..Group::default()
                });
            }
        }
        self.ask_to_confirm(now, &mut groups, out);
    }

    /// Whether a get may ask others to confirm this node's record.
    fn hope(&self, now: Now, operation: &Operation, held: Held) -> Option<Hope> {
        let near = self.options.near?;
        let config = self.configs.get(&operation.partition)?;
        let silent = config.not_counting(self.mutations);
        let all = config.acceptors().without(silent);
        let is_here = config.index(near).is_some_and(|near| all.contains(near));
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
        Some(Hope {
            config: Arc::clone(config),
            quorum,
            held,
            version,
            is_absent,
        })
    }

    fn ask_to_confirm(&mut self, now: Now, groups: &mut Vec<Group>, out: &mut Vec<Intent>) {
        for mut group in groups.drain(..) {
            let round = self.tick_clock(now, out);
            let (Some(round), Some(first)) = (round, group.gets.first()) else {
                self.start_each(now, group, out);
                continue;
            };
            let tag = Tag {
                op: first.id,
                round,
            };
            let envelope = Envelope {
                partition: first.operation.partition,
                epoch: first.hope.config.epoch,
                message: Message::Confirm {
                    tag,
                    claims: group.gets.iter().map(Get::claim).collect(),
                },
            };
            let envelopes = std::iter::repeat_n(envelope, group.from.len());
            let sends = group.from.iter().zip(envelopes);
            out.extend(sends.map(|(to, envelope)| Intent::Send { to: *to, envelope }));
            let deadlines = group.gets.iter().map(|get| get.operation.deadline_ms);
            let wake_ms = now.elapsed_ms.saturating_add(self.widen_after_ms());
            group.wake_ms = deadlines.min().unwrap_or(wake_ms).min(wake_ms);
            group.round = round;
            group.began_ms = now.elapsed_ms;
            self.confirming.insert(tag.op, group);
        }
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
        let Some(place) = group.from.iter().position(|node| *node == from) else {
            return;
        };
        group.from.swap_remove(place);
        for (number, get) in group.gets.iter_mut().enumerate() {
            get.is_same &= confirmed.get(number) == Some(&true);
        }
        let is_complete = group.from.is_empty();
        self.suspects.was_in_time(from, now);
        if is_complete && let Some(group) = self.confirming.remove(&tag.op) {
            self.note_round_since(now, group.began_ms);
            for get in group.gets.into_iter().filter(|get| !get.is_abandoned) {
                let Hope {
                    ref config,
                    version,
                    quorum,
                    ..
                } = get.hope;
                if get.is_same && config.is_chosen(version, quorum, self.mutations) {
                    let (op, outcome) = (get.id, get.hope.outcome());
                    out.push(Intent::Done { op, outcome });
                } else {
                    self.start(now, get.id, get.operation, out);
                }
            }
        }
    }

    /// Nodes that have not answered in time are late: gets that wait for them continue separately.
    pub(super) fn confirm_late(&mut self, now: Now, out: &mut Vec<Intent>) {
        let is_due = |group: &Group| group.wake_ms <= now.elapsed_ms;
        while let Some((first, _)) = self.confirming.iter().find(|(_, group)| is_due(group)) {
            let first = *first;
            let Some(group) = self.confirming.remove(&first) else {
                return;
            };
            for node in &group.from {
                self.suspects.was_late(*node, now);
            }
            self.start_each(now, group, out);
        }
    }

    pub(super) fn next_confirm_ms(&self) -> Option<u64> {
        self.confirming.values().map(|group| group.wake_ms).min()
    }

    /// Number of gets that wait for a confirmation.
    pub(super) fn gets_confirming(&self) -> usize {
        self.confirming.values().map(|group| group.gets.len()).sum()
    }

    /// Abandons a get that waits here. The other gets keep their indexes, because the answer refers
    /// to them.
    pub(super) fn abandon_confirming(&mut self, id: OpId) {
        let mut gets = self.confirming.values_mut().flat_map(|it| &mut it.gets);
        if let Some(get) = gets.find(|get| get.id == id) {
            get.is_abandoned = true;
        }
    }

    fn start_each(&mut self, now: Now, group: Group, out: &mut Vec<Intent>) {
        for get in group.gets.into_iter().filter(|get| !get.is_abandoned) {
            self.start(now, get.id, get.operation, out);
        }
    }
}

impl Get {
    fn claim(&self) -> Claim {
        Claim {
            partition: self.operation.partition,
            epoch: self.hope.config.epoch,
            at: self.operation.at.clone(),
            version: self.hope.version,
            is_absent: self.hope.is_absent,
        }
    }
}

impl Hope {
    fn outcome(self) -> Outcome {
        let version = self.held.origin.unwrap_or(self.held.ballot);
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
    let is_gone = state.is_some_and(|it| is_collected(held.ballot, &it, held.collected));
    (!is_gone && !has_expired(expires_at_ms, time)).then_some((held.ballot, false))
}
