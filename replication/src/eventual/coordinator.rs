//! Operations of `eventual` namespaces, by whichever node is asked.
//!
//! * A write is one version with one ballot: it is sent again, in a later epoch too if need
//!   be, but never anew under another one. Once it is answered, those who have not confirmed
//!   have some time left; then each is to be given a [`Hint`].
//! * A read answers with the newest of as many answers as asked for, and sends it to those
//!   who answered with an older one.
//! * A settle asks all replicas, and brings those who answered to the newest version.
//!
//! Invariants:
//! * An operation is answered once.
//! * A write whose version may be at a replica is never called unavailable, but unknown.
//! * A round belongs to one configuration; its answers count only under its own tag.
//!
//! Absent: fetching the topology; an operation waits until it is told of a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use torc_record::{Ballot, HybridTime, NodeSlot, Record, State};
use torc_ring::{NodeId, Partition};

use super::{EventualRead, EventualWrite, Quorum, envelope};
use crate::{
    Config, Content, Envelope, Hint, Locator, Message, Now, OpId, ReservedClock, Tag, Votes,
};

/// Bounds of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventualOptions {
    /// The first pause before those who are silent are asked again; doubles up to 16 times.
    pub resend_ms: u64,
    /// How long a settle waits for all replicas before a majority is enough.
    pub settle_ms: u64,
    /// How long an answered write waits for those who have not confirmed.
    pub linger_ms: u64,
    /// Most answered writes that wait so; beyond, the oldest wait no longer.
    pub lingering: usize,
    /// The replica that is asked first where one is enough: the one on this node.
    pub near: Option<NodeId>,
}

impl Default for EventualOptions {
    fn default() -> Self {
        Self {
            resend_ms: 50,
            settle_ms: 500,
            linger_ms: 1_000,
            lingering: 8_192,
            near: None,
        }
    }
}

/// One operation on one key of an `eventual` namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventualRequest {
    /// Read it.
    Read {
        /// From how many replicas.
        quorum: Quorum,
    },
    /// Store a value or a tombstone.
    Write {
        /// Which.
        state: State,
        /// At how many replicas.
        quorum: Quorum,
    },
    /// Bring all replicas that answer to the newest version of any.
    Settle,
    /// Give a replica what it has missed.
    HandOver(Hint),
}

impl EventualRequest {
    /// Whether it brings a new version.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }
}

/// What came of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventualOutcome {
    /// `Read`: this is the newest value.
    Found {
        /// The value.
        value: Bytes,
        /// Its version.
        version: Ballot,
        /// Its expiry, Unix milliseconds.
        expires_at_ms: Option<u64>,
    },
    /// `Read`: there is no value.
    Absent,
    /// `Write`, `HandOver`: stored at as many replicas as asked for, there or newer.
    Written {
        /// The version.
        version: Ballot,
    },
    /// `Settle`: the replicas have been sent the newest version.
    Settled,
    /// `HandOver`: the replica will not take it, ever.
    Refused,
    /// Too few replicas answered, before anything was changed. Trying again is safe.
    Unavailable,
    /// The write may have happened, or may still happen, or not.
    Unknown,
}

/// What a coordinator wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventualIntent {
    /// Send; may be lost.
    Send {
        /// To whom; this node's own replica too.
        to: NodeId,
        /// The message.
        envelope: Envelope,
    },
    /// Answer the caller.
    Done {
        /// Which operation.
        op: OpId,
        /// What came of it.
        outcome: EventualOutcome,
    },
    /// Make this clock reading durable, then call [`EventualCoordinator::reserved`].
    Reserve(HybridTime),
    /// Keep this for later.
    Keep(Hint),
}

/// What an operation is at.
#[derive(Debug)]
enum Step {
    /// For the clock or the topology.
    Waiting,
    Reading {
        read: EventualRead,
        /// Who answered that it has no say.
        mute: Vec<NodeId>,
    },
    Writing {
        write: EventualWrite,
        /// Who was asked in this round, and has not said that it did nothing.
        in_doubt: Votes,
    },
    HandingOver,
}

#[derive(Debug)]
struct Op {
    id: OpId,
    request: EventualRequest,
    partition: Partition,
    at: Locator,
    deadline_ms: u64,
    /// The wall clock when it began, which expiry is judged by.
    unix_ms: u64,
    /// A write's version, once it has one.
    record: Option<Record>,
    /// A round that is over may have stored it.
    maybe_stored: bool,
    is_answered: bool,
    step: Step,
    config: Option<Arc<Config>>,
    round: HybridTime,
    resends: u32,
    began_ms: u64,
    wake_ms: u64,
}

/// The operations of one node in `eventual` namespaces.
///
/// * Commands: [`start`](Self::start), [`on_message`](Self::on_message),
///   [`on_topology`](Self::on_topology), [`reserved`](Self::reserved),
///   [`tick`](Self::tick), [`observe`](Self::observe).
/// * Getters: [`next_wake_ms`](Self::next_wake_ms), [`pending`](Self::pending).
#[derive(Debug)]
pub struct EventualCoordinator {
    slot: NodeSlot,
    clock: ReservedClock,
    options: EventualOptions,
    configs: BTreeMap<Partition, Arc<Config>>,
    ops: BTreeMap<OpId, Box<Op>>,
    wakes: BTreeSet<(u64, OpId)>,
    /// Answered writes that wait for confirmations, in the order of their ids.
    lingering: BTreeSet<OpId>,
}

impl EventualCoordinator {
    /// A coordinator without operations. `ceiling` is the last reservation that was made
    /// durable on this node, zero for none.
    #[must_use]
    pub const fn new(slot: NodeSlot, ceiling: HybridTime, options: EventualOptions) -> Self {
        Self {
            slot,
            clock: ReservedClock::resume(ceiling),
            options,
            configs: BTreeMap::new(),
            ops: BTreeMap::new(),
            wakes: BTreeSet::new(),
            lingering: BTreeSet::new(),
        }
    }

    /// When to [`tick`](Self::tick) next, on the clock that nobody sets.
    #[must_use]
    pub fn next_wake_ms(&self) -> Option<u64> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Operations under way, with those that are answered and wait for confirmations.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.ops.len()
    }

    /// Whether this operation is under way here.
    #[must_use]
    pub fn has(&self, op: OpId) -> bool {
        self.ops.contains_key(&op)
    }

    /// Starts an operation. It is answered by one [`EventualIntent::Done`], at the latest
    /// when `deadline_ms` on the clock that nobody sets is over. An id under way is refused
    /// by doing nothing.
    pub fn start(
        &mut self,
        now: Now,
        id: OpId,
        (partition, at): (Partition, Locator),
        request: EventualRequest,
        deadline_ms: u64,
        out: &mut Vec<EventualIntent>,
    ) {
        if self.ops.contains_key(&id) {
            return;
        }
        let op = Box::new(Op {
            id,
            request,
            partition,
            at,
            deadline_ms,
            unix_ms: now.unix_ms,
            record: None,
            maybe_stored: false,
            is_answered: false,
            step: Step::Waiting,
            config: None,
            round: HybridTime::default(),
            resends: 0,
            began_ms: now.elapsed_ms,
            wake_ms: 0,
        });
        self.begin_round(now, op, out);
    }

    /// A time seen in a message: ballots issued from now on are later.
    pub fn observe(&mut self, now: Now, seen: HybridTime) {
        // A clock that is too far ahead is not followed.
        let _ = self.clock.observe(seen, now);
    }

    /// A reservation of the clock is durable.
    pub fn reserved(&mut self, now: Now, ceiling: HybridTime, out: &mut Vec<EventualIntent>) {
        self.clock.reserved(ceiling);
        for op in self.take_where(|op| matches!(op.step, Step::Waiting)) {
            self.begin_round(now, op, out);
        }
    }

    /// A partition's configuration, in any order. Operations of an older one go on in it.
    pub fn on_topology(&mut self, now: Now, config: &Arc<Config>, out: &mut Vec<EventualIntent>) {
        let known = self.configs.get(&config.partition);
        if known.is_some_and(|known| known.epoch >= config.epoch) {
            return;
        }
        self.configs.insert(config.partition, Arc::clone(config));
        let concerned = |op: &Op| op.partition == config.partition && !op.is_answered;
        for op in self.take_where(concerned) {
            self.begin_round(now, op, out);
        }
    }

    /// Handles what is due: see [`next_wake_ms`](Self::next_wake_ms).
    pub fn tick(&mut self, now: Now, out: &mut Vec<EventualIntent>) {
        while let Some(&(at, id)) = self.wakes.first() {
            if at > now.elapsed_ms {
                return;
            }
            self.wakes.pop_first();
            if let Some(op) = self.ops.remove(&id) {
                self.on_wake(now, op, out);
            }
        }
    }

    /// Takes an answer of a replica. What answers no round of now is ignored.
    pub fn on_message(
        &mut self,
        now: Now,
        from: NodeId,
        envelope: Envelope,
        out: &mut Vec<EventualIntent>,
    ) {
        let tag = envelope.message.answers();
        let fits = |tag: &Tag| {
            let op = self.ops.get(&tag.op);
            op.is_some_and(|op| op.round == tag.round && !matches!(op.step, Step::Waiting))
        };
        let Some(op) = tag.filter(fits).and_then(|tag| self.remove(tag.op)) else {
            return;
        };
        match envelope.message {
            Message::Holding { held, .. } => {
                self.observe(now, held.ballot.time);
                self.on_holding(now, op, (from, held), out);
            }
            Message::Accepted { .. } => self.on_stored(now, op, from, out),
            Message::Nack { highest, .. } => {
                self.observe(now, highest.time);
                self.on_refused(op, from, out);
            }
            Message::Abstain { .. } | Message::Epoch { .. } => self.on_declined(now, op, from, out),
            _ => self.put_back(op),
        }
    }
}

/// Rounds.
impl EventualCoordinator {
    /// Asks everybody by the newest configuration, or waits for what that needs.
    fn begin_round(&mut self, now: Now, mut op: Box<Op>, out: &mut Vec<EventualIntent>) {
        if now.elapsed_ms >= op.deadline_ms {
            return self.give_up(&op, out);
        }
        op.leave_round();
        let config = self.configs.get(&op.partition).cloned();
        let round = config.and_then(|config| Some((config, self.tick_clock(now, out)?)));
        let Some((config, round)) = round else {
            let left = op.deadline_ms - now.elapsed_ms;
            return self.sleep(now, op, left);
        };
        op.round = round;
        op.step = self.first_step(&mut op, &config);
        op.config = Some(config);
        self.send(&mut op, out);
        let pause = self.pause_ms(&op);
        self.sleep(now, op, pause);
    }

    fn first_step(&self, op: &mut Op, config: &Arc<Config>) -> Step {
        let config = Arc::clone(config);
        let reading = |quorum| Step::Reading {
            read: EventualRead::new(Arc::clone(&config), quorum),
            mute: Vec::new(),
        };
        match &op.request {
            EventualRequest::Read { quorum } => reading(*quorum),
            EventualRequest::Settle => reading(Quorum::All),
            EventualRequest::HandOver(_) => Step::HandingOver,
            EventualRequest::Write { state, quorum } => {
                let record = op.record.get_or_insert_with(|| Record {
                    namespace: op.at.namespace,
                    digest: op.at.digest,
                    key: op.at.key.clone(),
                    origin: None,
                    ballot: Ballot {
                        epoch: config.epoch,
                        time: op.round,
                        slot: self.slot,
                    },
                    state: state.clone(),
                });
                let tag = Tag {
                    op: op.id,
                    round: op.round,
                };
                Step::Writing {
                    write: EventualWrite::new(config, tag, record.clone(), *quorum),
                    in_doubt: Votes::NONE,
                }
            }
        }
    }

    /// Asks those who have not answered in this round.
    fn send(&self, op: &mut Op, out: &mut Vec<EventualIntent>) {
        let Some(config) = op.config.clone() else {
            return;
        };
        let tag = Tag {
            op: op.id,
            round: op.round,
        };
        match (&mut op.step, &op.request) {
            (Step::Writing { write, in_doubt }, _) => {
                for (to, envelope) in write.sends() {
                    if let Some(index) = config.index(to) {
                        in_doubt.insert(index);
                    }
                    out.push(EventualIntent::Send { to, envelope });
                }
            }
            (Step::Reading { read, .. }, request) => {
                let one = *request
                    == EventualRequest::Read {
                        quorum: Quorum::One,
                    };
                let all: Vec<_> = read.missing().collect();
                let near = all.iter().find(|node| Some(**node) == self.options.near);
                let first = near.or(all.first()).copied();
                // One replica is asked at first where one is enough.
                let to = match first {
                    Some(first) if one && op.resends == 0 => vec![first],
                    _ => all,
                };
                for to in to {
                    let message = Message::Read {
                        tag,
                        at: op.at.clone(),
                        want_value: true,
                    };
                    let envelope = envelope(&config, message);
                    out.push(EventualIntent::Send { to, envelope });
                }
            }
            (Step::HandingOver, EventualRequest::HandOver(hint)) => {
                let record = hint.record.clone();
                let envelope = envelope(&config, Message::Store { tag, record });
                out.push(EventualIntent::Send {
                    to: hint.to,
                    envelope,
                });
            }
            (Step::Waiting | Step::HandingOver, _) => {}
        }
    }

    fn on_wake(&mut self, now: Now, mut op: Box<Op>, out: &mut Vec<EventualIntent>) {
        if op.is_answered {
            return self.end(&op, out);
        }
        if now.elapsed_ms >= op.deadline_ms {
            return self.give_up(&op, out);
        }
        let waited_ms = now.elapsed_ms.saturating_sub(op.began_ms);
        if op.request == EventualRequest::Settle && waited_ms >= self.options.settle_ms {
            return self.settle(&mut op, out);
        }
        op.resends += 1;
        self.send(&mut op, out);
        let pause = self.pause_ms(&op);
        self.sleep(now, op, pause);
    }

    fn pause_ms(&self, op: &Op) -> u64 {
        self.options.resend_ms << op.resends.min(4)
    }

    fn tick_clock(&mut self, now: Now, out: &mut Vec<EventualIntent>) -> Option<HybridTime> {
        if let Some(ceiling) = self.clock.to_reserve(now) {
            out.push(EventualIntent::Reserve(ceiling));
        }
        self.clock.tick(now)
    }
}

/// Answers.
impl EventualCoordinator {
    fn on_holding(
        &mut self,
        now: Now,
        mut op: Box<Op>,
        (from, held): (NodeId, crate::Held),
        out: &mut Vec<EventualIntent>,
    ) {
        let unix_ms = op.unix_ms;
        let Step::Reading { read, .. } = &mut op.step else {
            return self.put_back(op);
        };
        let newest = read.on_holding(from, held).cloned();
        let collecting = read.collecting();
        let Some(newest) = newest else {
            return self.conclude_settle(op, out);
        };
        if op.request == EventualRequest::Settle {
            return self.settle(&mut op, out);
        }
        for (to, envelope) in read.repairs(&op.at, &[]) {
            out.push(EventualIntent::Send { to, envelope });
        }
        let everybody = read.missing().next().is_none();
        if !op.is_answered {
            let at_ms = unix_ms.max(collecting.time.unix_ms());
            Self::answer(
                &mut op,
                outcome_of(&newest.content, newest.ballot, at_ms),
                out,
            );
        }
        // Who was asked and is late may be behind.
        if !everybody
            && op.request
                != (EventualRequest::Read {
                    quorum: Quorum::One,
                })
        {
            let pause = self.options.resend_ms;
            self.sleep(now, op, pause);
        }
    }

    fn on_stored(
        &mut self,
        now: Now,
        mut op: Box<Op>,
        from: NodeId,
        out: &mut Vec<EventualIntent>,
    ) {
        if let EventualRequest::HandOver(hint) = &op.request {
            let version = hint.record.ballot;
            return Self::answer(&mut op, EventualOutcome::Written { version }, out);
        }
        let Step::Writing { write, .. } = &mut op.step else {
            return self.put_back(op);
        };
        let is_done = write.on_stored(from);
        let everybody = write.missing().next().is_none();
        let version = op.record.as_ref().map(|record| record.ballot);
        match version.filter(|_| is_done) {
            None => self.put_back(op),
            Some(_) if everybody && op.is_answered => self.forget(&op),
            Some(_) if op.is_answered => self.put_back(op),
            Some(version) => {
                Self::answer(&mut op, EventualOutcome::Written { version }, out);
                if !everybody {
                    self.linger(now, op, out);
                }
            }
        }
    }

    /// The replica will not store it, ever.
    fn on_refused(&mut self, mut op: Box<Op>, from: NodeId, out: &mut Vec<EventualIntent>) {
        if matches!(op.request, EventualRequest::HandOver(_)) {
            return Self::answer(&mut op, EventualOutcome::Refused, out);
        }
        op.is_not_in_doubt(from);
        let Step::Writing { write, .. } = &mut op.step else {
            return self.put_back(op);
        };
        let is_possible = write.on_refused(from);
        let everybody = write.missing().next().is_none();
        if op.is_answered && everybody {
            self.forget(&op);
        } else if op.is_answered || is_possible {
            self.put_back(op);
        } else {
            self.give_up(&op, out);
        }
    }

    /// The replica did nothing this time.
    fn on_declined(
        &mut self,
        now: Now,
        mut op: Box<Op>,
        from: NodeId,
        out: &mut Vec<EventualIntent>,
    ) {
        op.is_not_in_doubt(from);
        match &mut op.step {
            Step::HandingOver => self.give_up(&op, out),
            Step::Reading { mute, .. } => {
                if !mute.contains(&from) {
                    mute.push(from);
                }
                // Where one was asked, another one may know.
                let one = EventualRequest::Read {
                    quorum: Quorum::One,
                };
                if op.request == one && op.resends == 0 && !op.is_answered {
                    return self.on_wake(now, op, out);
                }
                self.conclude_settle(op, out);
            }
            Step::Writing { .. } | Step::Waiting => self.put_back(op),
        }
    }

    /// Ends a settle that everybody has answered, be it that he has no say.
    fn conclude_settle(&mut self, mut op: Box<Op>, out: &mut Vec<EventualIntent>) {
        let complete = match &op.step {
            Step::Reading { read, mute } => read.missing().all(|node| mute.contains(&node)),
            _ => false,
        };
        if op.request == EventualRequest::Settle && complete {
            self.settle(&mut op, out);
        } else {
            self.put_back(op);
        }
    }

    /// Sends the newest version to those who need it.
    fn settle(&mut self, op: &mut Op, out: &mut Vec<EventualIntent>) {
        let Step::Reading { read, mute } = &mut op.step else {
            return self.give_up(op, out);
        };
        // Who has no say is told only what a majority of them knows (R9).
        let is_majority = read.is_met_by(Quorum::Majority);
        let mute: &[NodeId] = if is_majority { mute } else { &[] };
        for (to, envelope) in read.repairs(&op.at, mute) {
            out.push(EventualIntent::Send { to, envelope });
        }
        let outcome = if is_majority {
            EventualOutcome::Settled
        } else {
            EventualOutcome::Unavailable
        };
        Self::answer(op, outcome, out);
    }
}

/// Ends.
impl EventualCoordinator {
    fn answer(op: &mut Op, outcome: EventualOutcome, out: &mut Vec<EventualIntent>) {
        op.is_answered = true;
        let op = op.id;
        out.push(EventualIntent::Done { op, outcome });
    }

    /// The deadline is over, or no quorum is possible any more.
    fn give_up(&mut self, op: &Op, out: &mut Vec<EventualIntent>) {
        let outcome = if op.may_be_stored() {
            EventualOutcome::Unknown
        } else {
            EventualOutcome::Unavailable
        };
        out.push(EventualIntent::Done { op: op.id, outcome });
        if op.may_be_stored() {
            self.end(op, out);
        }
    }

    /// The time is over: who has not confirmed is to be told later.
    fn end(&mut self, op: &Op, out: &mut Vec<EventualIntent>) {
        self.lingering.remove(&op.id);
        let (Step::Writing { write, .. }, Some(record)) = (&op.step, &op.record) else {
            return;
        };
        let hints = write.missing().map(|to| Hint {
            to,
            record: record.clone(),
        });
        out.extend(hints.map(EventualIntent::Keep));
    }

    fn linger(&mut self, now: Now, op: Box<Op>, out: &mut Vec<EventualIntent>) {
        self.lingering.insert(op.id);
        let linger_ms = self.options.linger_ms.max(1);
        self.sleep_until(now.elapsed_ms.saturating_add(linger_ms), op);
        while self.lingering.len() > self.options.lingering {
            let Some(oldest) = self.lingering.pop_first() else {
                return;
            };
            if let Some(op) = self.remove(oldest) {
                self.end(&op, out);
            }
        }
    }

    /// Everybody has answered.
    fn forget(&mut self, op: &Op) {
        self.lingering.remove(&op.id);
    }

    /// Keeps the operation until an answer or its wake-up, whichever is first.
    fn put_back(&mut self, op: Box<Op>) {
        self.wakes.insert((op.wake_ms, op.id));
        self.ops.insert(op.id, op);
    }

    fn sleep(&mut self, now: Now, op: Box<Op>, ms: u64) {
        let wake_ms = now.elapsed_ms.saturating_add(ms.max(1));
        let latest = if op.is_answered {
            wake_ms
        } else {
            op.deadline_ms
        };
        self.sleep_until(wake_ms.min(latest), op);
    }

    fn sleep_until(&mut self, wake_ms: u64, mut op: Box<Op>) {
        op.wake_ms = wake_ms;
        self.put_back(op);
    }

    fn remove(&mut self, id: OpId) -> Option<Box<Op>> {
        let op = self.ops.remove(&id)?;
        self.wakes.remove(&(op.wake_ms, id));
        Some(op)
    }

    #[expect(clippy::vec_box, reason = "they are boxed where they come from and go")]
    fn take_where(&mut self, concerned: impl Fn(&Op) -> bool) -> Vec<Box<Op>> {
        let ids = self.ops.values().filter(|op| concerned(op)).map(|op| op.id);
        let ids: Vec<_> = ids.collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

impl Op {
    fn is_not_in_doubt(&mut self, node: NodeId) {
        let index = self.config.as_ref().and_then(|config| config.index(node));
        if let (Step::Writing { in_doubt, .. }, Some(index)) = (&mut self.step, index) {
            *in_doubt = in_doubt.without(Votes::one(index));
        }
    }

    fn may_be_stored(&self) -> bool {
        let now = match &self.step {
            Step::Writing { in_doubt, .. } => !in_doubt.is_empty(),
            Step::Waiting | Step::Reading { .. } | Step::HandingOver => false,
        };
        self.maybe_stored || now
    }

    fn leave_round(&mut self) {
        self.maybe_stored = self.may_be_stored();
        self.step = Step::Waiting;
    }
}

/// What a reader at `unix_ms` sees.
fn outcome_of(content: &Content, version: Ballot, unix_ms: u64) -> EventualOutcome {
    match content {
        Content::Value {
            expires_at_ms,
            value: Some(value),
        } if expires_at_ms.is_none_or(|at| at > unix_ms) => EventualOutcome::Found {
            value: value.clone(),
            version,
            expires_at_ms: *expires_at_ms,
        },
        Content::Value { .. } | Content::Tombstone | Content::Absent => EventualOutcome::Absent,
    }
}
