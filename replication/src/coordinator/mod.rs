//! Operations on registers, by whichever node is asked.
//!
//! * R4: put, delete and compare-and-set prepare at a read quorum, take the highest
//!   version, change it, and accept at a write quorum.
//! * R5: a get returns after one round what is proven chosen; else it goes on as R4.
//! * R6: an accept carries the next ballot, so that this coordinator's next write of the
//!   key needs one round.
//! * R7: once an accept was sent and did not succeed, the outcome is found out or
//!   reported as unknown.
//!
//! Invariants:
//! * A round belongs to one epoch; its answers count only under its own tag.
//! * A ballot is used for one version only: rounds and ballots are clock readings that
//!   are never given twice.
//! * An operation is answered once.
//!
//! Two writes of one key under way here at a time are safe but refuse each other;
//! whoever drives this should let them wait for one another.
//!
//! Source: Rystsov, "CASPaxos: Replicated State Machines without logs", 2018.

mod few;
mod flow;
mod get;
mod request;
mod resolve;
mod tally;
#[cfg(test)]
mod tests;
mod warm;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use torc_record::{Ballot, Epoch, HybridTime, NodeSlot, State};
use torc_ring::{NodeId, Partition};

use crate::locator::KeyTable;
use crate::{
    Config, Envelope, Held, Locator, Message, Mutation, Mutations, Now, OpId, ReservedClock, Votes,
};
pub use request::{Condition, Outcome, Request};
use tally::Tally;
use warm::Warm;

/// Bounds of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinatorOptions {
    /// A round that is not complete after this goes on without those who are silent: up to 8
    /// times as long where rounds take long of late, and doubled with every attempt, up to 32
    /// times.
    pub round_ms: u64,
    /// A get that a read quorum has answered, and that is not decided, waits so long for
    /// those who are slow; so long has a replica that was asked for a value before the
    /// next one is, and the few that a get asks first before everyone is asked.
    pub hedge_ms: u64,
    /// The replica that is asked for values first: the one on this node.
    pub near: Option<NodeId>,
    /// The first pause before another attempt; doubles up to 32 times.
    pub pause_ms: u64,
    /// Rounds in a row that nobody answers, until an operation of which nothing was sent that may be
    /// accepted is given up before its deadline: another node may have more luck.
    pub tries: u32,
    /// Most keys kept warm. About 200 bytes each, beside the value.
    pub warm_keys: usize,
}

impl Default for CoordinatorOptions {
    fn default() -> Self {
        Self {
            round_ms: 50,
            hedge_ms: 5,
            near: None,
            pause_ms: 2,
            tries: 4,
            warm_keys: 4_096,
        }
    }
}

/// What a coordinator wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
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
        outcome: Outcome,
    },
    /// Make this clock reading durable, then call [`Coordinator::reserved`].
    Reserve(HybridTime),
    /// Fetch the topology, which is at least at this epoch for the partition.
    NeedTopology {
        /// The partition.
        partition: Partition,
        /// At least this epoch.
        epoch: Epoch,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For the clock, the topology, or a pause to be over.
    Waiting,
    Reading,
    Preparing,
    Accepting {
        resent: bool,
    },
}

/// What is being accepted.
#[derive(Debug, Clone)]
struct Plan {
    state: State,
    /// Under which it was written: another ballot than this accept's where it is accepted anew.
    version: Ballot,
    outcome: Outcome,
    /// By the caller's wish, not for completing what was there.
    wished: bool,
    next: Option<Ballot>,
    warm: bool,
}

#[derive(Debug)]
struct Op {
    id: OpId,
    request: Request,
    partition: Partition,
    at: Locator,
    deadline_ms: u64,
    /// The wall clock when it began, which expiry is judged by. Not the hybrid clock: that
    /// runs ahead for a while after restarts, and values would expire early.
    time: HybridTime,
    config: Option<Arc<Config>>,
    /// Members that are not asked.
    silent: Votes,
    /// Members that this round of a get has asked.
    few: Votes,
    /// Those of them that were asked for the value.
    asked: Votes,
    phase: Phase,
    round: HybridTime,
    round_began_ms: u64,
    ballot: Ballot,
    tally: Tally,
    plan: Option<Plan>,
    /// The version the first accept was based on.
    predecessor: Ballot,
    /// Ballots under which the wish may have been accepted.
    mine: Vec<Ballot>,
    attempts: u32,
    /// A get that must take the two rounds.
    slow: bool,
    wake_ms: u64,
}

/// The operations of one node.
///
/// * Commands: [`start`](Self::start), [`on_message`](Self::on_message),
///   [`on_topology`](Self::on_topology), [`reserved`](Self::reserved),
///   [`tick`](Self::tick).
/// * Getters: [`next_wake_ms`](Self::next_wake_ms), [`pending`](Self::pending).
#[derive(Debug)]
pub struct Coordinator {
    slot: NodeSlot,
    clock: ReservedClock,
    options: CoordinatorOptions,
    mutations: Mutations,
    configs: BTreeMap<Partition, Arc<Config>>,
    ops: BTreeMap<OpId, Box<Op>>,
    wakes: BTreeSet<(u64, OpId)>,
    /// Eight times what a round takes of late, milliseconds.
    round_ms_x8: u64,
    late: few::Latecomers,
    warm: KeyTable<Warm>,
}

impl Coordinator {
    /// A coordinator without operations. `ceiling` is the last reservation that was
    /// made durable on this node, zero for none.
    #[must_use]
    pub fn new(
        slot: NodeSlot,
        ceiling: HybridTime,
        options: CoordinatorOptions,
        mutations: Mutations,
    ) -> Self {
        Self {
            slot,
            clock: ReservedClock::resume(ceiling),
            options,
            mutations,
            configs: BTreeMap::new(),
            ops: BTreeMap::new(),
            wakes: BTreeSet::new(),
            round_ms_x8: 0,
            late: few::Latecomers::default(),
            warm: KeyTable::default(),
        }
    }

    /// When to [`tick`](Self::tick) next, on the clock that nobody sets.
    #[must_use]
    pub fn next_wake_ms(&self) -> Option<u64> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Operations under way.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.ops.len()
    }

    /// The configuration operations of a partition start in.
    #[must_use]
    pub fn config(&self, partition: Partition) -> Option<&Arc<Config>> {
        self.configs.get(&partition)
    }

    /// Starts an operation. It is answered by one [`Intent::Done`], at the latest when
    /// `deadline_ms` on the clock that nobody sets is over. An id under way is refused
    /// by doing nothing.
    pub fn start(
        &mut self,
        now: Now,
        id: OpId,
        (partition, at): (Partition, Locator),
        request: Request,
        deadline_ms: u64,
        out: &mut Vec<Intent>,
    ) {
        if self.ops.contains_key(&id) {
            return;
        }
        let slow = matches!(request, Request::Settle { rewrite: true });
        let op = Box::new(Op {
            id,
            request,
            partition,
            at,
            deadline_ms,
            time: HybridTime::from_unix_ms(now.unix_ms),
            config: None,
            silent: Votes::NONE,
            few: Votes::NONE,
            asked: Votes::NONE,
            phase: Phase::Waiting,
            round: HybridTime::default(),
            round_began_ms: 0,
            ballot: Ballot::default(),
            tally: Tally::default(),
            plan: None,
            predecessor: Ballot::default(),
            mine: Vec::new(),
            attempts: 0,
            slow,
            wake_ms: 0,
        });
        self.attempt(now, op, out);
    }

    /// Takes an answer of a replica. What answers no round of now is ignored.
    pub fn on_message(
        &mut self,
        now: Now,
        from: NodeId,
        envelope: Envelope,
        out: &mut Vec<Intent>,
    ) {
        let Some(tag) = envelope.message.answers() else {
            return;
        };
        self.note_epoch(&envelope, out);
        let Some(mut op) = self.take_op(tag) else {
            return;
        };
        let index = op.config.as_ref().and_then(|config| config.index(from));
        let Some(index) = index else {
            self.put_back(op);
            return;
        };
        match envelope.message {
            Message::Holding { held, .. } if op.phase == Phase::Reading => {
                self.on_holding(now, op, index, held, out);
            }
            Message::Promised { held, .. } if op.phase == Phase::Preparing => {
                self.on_promised(now, op, index, held, out);
            }
            Message::Accepted { .. } if matches!(op.phase, Phase::Accepting { .. }) => {
                self.on_accepted(now, op, index, out);
            }
            Message::Nack { highest, .. } => {
                // A clock too far ahead is not followed; that replica stays out of reach.
                let _ = self.clock.observe(highest.time, now);
                op.tally.refused.insert(index);
                self.on_refused(now, op, out);
            }
            Message::Abstain { .. } | Message::Epoch { .. } => {
                op.tally.refused.insert(index);
                self.on_refused(now, op, out);
            }
            _ => self.put_back(op),
        }
    }

    /// A partition's configuration, in any order.
    pub fn on_topology(&mut self, now: Now, config: &Arc<Config>, out: &mut Vec<Intent>) {
        let known = self.configs.get(&config.partition);
        if known.is_some_and(|known| known.epoch >= config.epoch) {
            return;
        }
        self.configs.insert(config.partition, config.clone());
        if self.mutations.has(Mutation::MixedEpochs) {
            self.carry_into(config, out);
        }
        self.wake_waiting(now, Some(config.partition), out);
    }

    /// A reservation of the clock is durable.
    pub fn reserved(&mut self, now: Now, ceiling: HybridTime, out: &mut Vec<Intent>) {
        self.clock.reserved(ceiling);
        self.wake_waiting(now, None, out);
    }

    /// Handles what is due: see [`next_wake_ms`](Self::next_wake_ms).
    pub fn tick(&mut self, now: Now, out: &mut Vec<Intent>) {
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
}

impl Coordinator {
    fn on_promised(
        &mut self,
        now: Now,
        mut op: Box<Op>,
        index: usize,
        held: Held,
        out: &mut Vec<Intent>,
    ) {
        op.tally.add(index, held);
        let complete = op
            .config
            .as_ref()
            .is_some_and(|config| config.may_read(op.tally.answered, self.mutations));
        if complete {
            self.note_round(now, &op);
            self.decide(now, op, out);
        } else {
            self.put_back(op);
        }
    }
}
