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
//! * `request`: what is asked and answered. `rounds`: asking. `answers`: what replicas say. `ends`: what callers
//!   are told, and who is to get a hint.
//!
//! Absent: fetching the topology; an operation waits until it is told of a newer one.

mod answers;
mod ends;
mod request;
mod rounds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use torc_record::{HybridTime, NodeSlot, Record};
use torc_ring::{NodeId, Partition};

use super::{EventualRead, EventualWrite};
use crate::{Config, Envelope, Locator, Message, Now, OpId, ReservedClock, Tag, Votes};
pub use request::{EventualIntent, EventualOptions, EventualOutcome, EventualRequest};

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

impl Op {
    pub(super) fn is_not_in_doubt(&mut self, node: NodeId) {
        let index = self.config.as_ref().and_then(|config| config.index(node));
        if let (Step::Writing { in_doubt, .. }, Some(index)) = (&mut self.step, index) {
            *in_doubt = in_doubt.without(Votes::one(index));
        }
    }

    pub(super) fn may_be_stored(&self) -> bool {
        let now = match &self.step {
            Step::Writing { in_doubt, .. } => !in_doubt.is_empty(),
            Step::Waiting | Step::Reading { .. } | Step::HandingOver => false,
        };
        self.maybe_stored || now
    }

    pub(super) fn leave_round(&mut self) {
        self.maybe_stored = self.may_be_stored();
        self.step = Step::Waiting;
    }
}
