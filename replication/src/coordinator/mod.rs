//! The coordinator: operations on keys of both modes in one table, with the rules of each
//! mode. Any node coordinates any key.
//!
//! `linearizable`: a register for each key (this folder).
//! * R4: delete and compare-and-set prepare at a read quorum, take the highest version,
//!   change it, and accept at a write quorum.
//! * R4b: a blind write, whose outcome does not depend on the present value, accepts at
//!   once, under a fresh ballot.
//! * R5: a get returns a proven version after one round; else it continues as R4.
//! * R6: the accept of a conditional write carries the next ballot, so this
//!   coordinator's next write of the key needs only one round.
//! * R7: if a sent accept did not succeed, the coordinator determines the outcome or
//!   reports it as unknown.
//!
//! `eventual`: the last writer wins (`eventual/`). `static`: a get as in `eventual`, of one
//! replica; a replica without the key's slice abstains, and the get asks others.
//!
//! * `table`: running operations. `line`: one writer per key. `flow`: attempts, pauses, ends.
//! * `full`: replicas without space.
//! * `write`, `warm`, `resolve`: R4, R4b, R6, R7. `get`, `confirm`, `minimal`, `tally`: R5.
//!
//! Invariants:
//! * A round belongs to one epoch; its answers count only under its own tag.
//! * A ballot belongs to one version: rounds and ballots are clock readings, which
//!   are never issued twice.
//! * An operation is answered once, unless its caller abandons it.
//! * Per key of a `linearizable` namespace, one operation at a time runs rounds that write.
//!
//! Source: Rystsov, "CASPaxos: Replicated State Machines without logs", 2018.

mod confirm;
mod eventual;
mod flow;
mod full;
mod get;
mod line;
mod minimal;
mod request;
mod resolve;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod warm;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use torc_record::{Ballot, Epoch, HybridTime, NodeSlot, State};
use torc_ring::{NodeId, Partition};

use crate::locator::{LocatorTable, NumberTable};
use crate::{
    Config, Envelope, Held, Hint, Locator, Message, Mutation, Mutations, Now, OpId, ReservedClock,
    Votes,
};
pub use eventual::{EventualOptions, EventualRead, EventualWrite, Quorum};
use line::Lines;
pub use request::{Operation, Outcome, Request, Rules};
use table::{Pending, Table};
use tally::Tally;
use warm::Warm;

/// Consecutive rounds without an answer, after which an operation that has sent nothing
/// acceptable ends before its deadline: another node may succeed.
const MOST_TRIES: u32 = 4;

/// Limits of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinatorOptions {
    /// After this time, a round continues without silent replicas. Up to 8 times as long if
    /// recent rounds are slow, and doubled with every attempt, up to 32 times.
    pub round_ms: u64,
    /// How long an undecided get with a read quorum waits for slow replicas, how long it
    /// waits for a value before it asks the next replica, and how long for the minimal
    /// quorum before it asks all.
    pub hedge_ms: u64,
    /// The replica to ask for values first: the one on this node.
    pub near: Option<NodeId>,
    /// The first pause before another attempt; doubles up to 32 times.
    pub pause_ms: u64,
    /// Limit on the keys kept warm, about 150 bytes each in addition to the key.
    pub warm_keys: usize,
    /// Limit on the operations that wait in doubt without a quorum.
    pub doubtful: usize,
    /// Limits of operations in `eventual` namespaces.
    pub eventual: EventualOptions,
}

impl Default for CoordinatorOptions {
    fn default() -> Self {
        Self {
            round_ms: 50,
            hedge_ms: 5,
            near: None,
            pause_ms: 2,
            warm_keys: 1_024,
            doubtful: 256,
            eventual: EventualOptions::DEFAULT,
        }
    }
}

/// An intention of a coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// Send; may be lost.
    Send {
        /// The receiver, which may be this node's own replica.
        to: NodeId,
        /// The message.
        envelope: Envelope,
    },
    /// Answer the caller.
    Done {
        /// The operation.
        op: OpId,
        /// Its outcome.
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
    /// Keep this hint for later.
    Keep(Hint),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Waits for the clock, the topology, or the end of a pause.
    #[default]
    Waiting,
    /// Waits for its turn to write the key.
    InLine,
    /// Waits for the end of another blind write's round, which it shares.
    Sharing,
    Reading,
    Preparing,
    Accepting {
        resent: bool,
    },
}

/// The version being accepted.
#[derive(Debug, Clone)]
struct Plan {
    state: State,
    /// The version under which it was written; differs from this accept's ballot if it is accepted
    /// again.
    version: Ballot,
    outcome: Outcome,
    /// Whether the caller requested it; otherwise it completes the present version.
    requested: bool,
    /// Whether the operation itself still has to follow.
    again: bool,
    next: Option<Ballot>,
    warm: bool,
}

/// An operation and its progress; the rules of its mode use `own`.
#[derive(Debug)]
struct Op<R> {
    id: OpId,
    request: Request,
    partition: Partition,
    at: Locator,
    deadline_ms: u64,
    /// The wall clock at its start, to judge expiry. Not the hybrid clock, which runs
    /// ahead after restarts, so values would expire early.
    time: HybridTime,
    config: Option<Arc<Config>>,
    round: HybridTime,
    round_began_ms: u64,
    attempts: u32,
    wake_ms: u64,
    /// The wake-up stored in the table.
    noted_ms: u64,
    own: R,
}

type RegisterOp = Op<Register>;

/// State of an operation on a register.
#[derive(Debug, Default)]
struct Register {
    /// Members to skip.
    silent: Votes,
    /// Members that this round of a get has asked.
    asked: Votes,
    /// The asked members that must also send the value.
    asked_value: Votes,
    phase: Phase,
    ballot: Ballot,
    tally: Tally,
    plan: Option<Plan>,
    /// Ballots under which its own write may have been accepted.
    mine: Vec<Ballot>,
    /// Those of them that delete a key without a value.
    found_nothing: Vec<Ballot>,
    /// The version above its own that leaves it in doubt.
    overtaken_by: Option<Ballot>,
    /// Whether a get must take two rounds.
    slow: bool,
    /// Whether it may write the key.
    holds: bool,
    /// Blind writes that share its round, with their versions.
    sharers: Vec<(OpId, Ballot)>,
    /// Whether its caller was answered or is gone, and it continues only for those that share its
    /// round.
    abandoned: bool,
}

impl Register {
    /// Whether replicas may have accepted its write (R7).
    fn may_take_effect(&self) -> bool {
        !self.mine.is_empty() || self.phase == Phase::Sharing
    }

    /// The lowest ballot under which replicas may have stored its write; `None` if earlier epochs
    /// may have, which replicas do not remember.
    fn doubted(&self, epoch: Epoch) -> Option<Ballot> {
        let lowest = self.mine.iter().min().copied();
        lowest.filter(|lowest| lowest.epoch == epoch)
    }
}

/// Unresponsive nodes. Roughly, the second set is a subset of the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutOfReach {
    /// Recently silent: gets do not wait for them while others form a quorum.
    pub silent: BTreeSet<NodeId>,
    /// Unreachable: operations without a quorum fail at once, except for some that may have been accepted.
    pub lost: BTreeSet<NodeId>,
}

/// The operations of one node on some partitions.
///
/// * Commands: [`start`](Self::start), [`start_many`](Self::start_many), [`abandon`](Self::abandon),
///   [`on_message`](Self::on_message), [`on_topology`](Self::on_topology),
///   [`on_peers`](Self::on_peers), [`reserved`](Self::reserved),
///   [`unreserved`](Self::unreserved), [`on_full`](Self::on_full), [`tick`](Self::tick), [`observe`](Self::observe).
/// * Getters: [`next_wake_ms`](Self::next_wake_ms), [`pending`](Self::pending), [`is_idle`](Self::is_idle).
#[derive(Debug)]
pub struct Coordinator {
    slot: NodeSlot,
    clock: ReservedClock,
    options: CoordinatorOptions,
    mutations: Mutations,
    configs: NumberTable<Partition, Arc<Config>>,
    table: Table,
    lines: Lines,
    /// By the id of the first get.
    confirming: BTreeMap<OpId, confirm::Group>,
    /// Operations whose turn has come.
    turns: VecDeque<OpId>,
    /// Eight times the usual duration of a round.
    round_ms_x8: u64,
    suspects: minimal::Suspects,
    out_of_reach: OutOfReach,
    /// Operations that wait in doubt without a quorum, and some that have ended.
    doubtful: BTreeSet<OpId>,
    full: full::Full,
    warm: LocatorTable<Warm>,
    /// Answered `eventual` writes that wait for confirmations, in the order of their ids.
    lingering: BTreeSet<OpId>,
}

impl Coordinator {
    /// A coordinator without operations. `ceiling` is the last durable reservation on
    /// this node, or zero.
    #[must_use]
    pub fn new(
        slot: NodeSlot,
        ceiling: HybridTime,
        options: CoordinatorOptions,
        mutations: Mutations,
    ) -> Self {
        Self {
            slot,
            clock: ReservedClock::resume(if mutations.has(Mutation::ClockForgotten) {
                HybridTime::default()
            } else {
                ceiling
            }),
            options,
            mutations,
            configs: NumberTable::default(),
            table: Table::default(),
            lines: Lines::default(),
            confirming: BTreeMap::new(),
            turns: VecDeque::new(),
            round_ms_x8: 0,
            suspects: minimal::Suspects::default(),
            out_of_reach: OutOfReach::default(),
            doubtful: BTreeSet::new(),
            full: full::Full::default(),
            warm: LocatorTable::default(),
            lingering: BTreeSet::new(),
        }
    }

    /// When to call [`tick`](Self::tick) next, on the monotonic clock; possibly a little too early.
    #[must_use]
    pub fn next_wake_ms(&self) -> Option<u64> {
        let (table, confirming) = (self.table.next_wake_ms(), self.next_confirm_ms());
        table.into_iter().chain(confirming).min()
    }

    /// Running operations, including answered `eventual` writes that wait for
    /// confirmations.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.table.len() + self.gets_confirming()
    }

    /// Whether no operation is running. O(1), unlike [`pending`](Self::pending).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.table.len() == 0 && self.confirming.is_empty()
    }

    /// The configuration operations of a partition start in.
    #[must_use]
    pub fn config(&self, partition: Partition) -> Option<&Arc<Config>> {
        self.configs.get(&partition)
    }

    /// Starts an operation. One [`Intent::Done`] answers it, at its deadline at the
    /// latest. Ignores an id that is already running.
    pub fn start(&mut self, now: Now, id: OpId, operation: Operation, out: &mut Vec<Intent>) {
        if self.table.get(id).is_some() {
            return;
        }
        match operation.rules {
            Rules::Linearizable => {
                let own = Register {
                    slow: matches!(operation.request, Request::Reconcile { rewrite: true }),
                    ..Register::default()
                };
                self.attempt(now, new_op(now, id, operation, own), out);
            }
            Rules::Eventual(quorum) => self.start_eventual(now, id, operation, quorum, out),
            Rules::Static if operation.request == Request::Get => {
                self.start_eventual(now, id, operation, Quorum::One, out);
            }
            Rules::Static => out.push(Intent::Done {
                op: id,
                outcome: Outcome::Refused,
            }),
        }
        self.take_turns(now, out);
    }

    /// Abandons an operation. Returns whether it may still take effect.
    pub fn abandon(&mut self, now: Now, id: OpId, out: &mut Vec<Intent>) -> bool {
        let may_take_effect = match self.table.take(id) {
            Some(Pending::Register(op)) => {
                let may = op.own.may_take_effect() || !op.own.sharers.is_empty();
                self.abandon_register(op);
                may
            }
            Some(Pending::Eventual(op)) => {
                let may = !op.own.is_answered && op.own.may_be_stored();
                self.abandon_eventual(now, op, out);
                may
            }
            None => {
                self.abandon_confirming(id);
                false
            }
        };
        self.take_turns(now, out);
        may_take_effect
    }

    /// A shared round continues for the other operations.
    fn abandon_register(&mut self, mut op: Box<RegisterOp>) {
        if op.own.sharers.is_empty() {
            return self.leave_line(&op);
        }
        op.own.abandoned = true;
        self.put_back(op);
    }

    /// Takes an answer of a replica. Answers to earlier rounds are ignored.
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
        self.note_space(from, &envelope.message);
        if let Message::Confirmed { confirmed, .. } = &envelope.message {
            return self.on_confirmed(now, from, tag, confirmed, out);
        }
        match self.take_op(tag) {
            Some(Pending::Register(op)) => self.on_answer(now, op, from, envelope.message, out),
            Some(Pending::Eventual(op)) => {
                self.on_eventual_answer(now, op, from, envelope.message, out);
            }
            None => {}
        }
        self.take_turns(now, out);
    }

    /// Takes a partition's configuration; configurations may arrive in any order.
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
        self.take_turns(now, out);
    }

    /// Sets the unresponsive nodes.
    pub fn on_peers(&mut self, out_of_reach: &OutOfReach) {
        let OutOfReach { silent, lost } = out_of_reach;
        self.suspects
            .set_unreachable(silent.union(lost).copied().collect());
        self.full.forget(lost);
        self.out_of_reach.clone_from(out_of_reach);
    }

    /// Observes a time seen in a message: ballots issued from now on are later.
    pub fn observe(&mut self, now: Now, seen: HybridTime) {
        // A clock that is too far ahead is ignored.
        let _ = self.clock.observe(seen, now);
    }

    /// A clock reservation is durable.
    pub fn reserved(&mut self, now: Now, ceiling: HybridTime, out: &mut Vec<Intent>) {
        self.clock.reserved(now, ceiling);
        self.wake_waiting(now, None, out);
        self.take_turns(now, out);
    }

    /// Handles what is due: see [`next_wake_ms`](Self::next_wake_ms).
    pub fn tick(&mut self, now: Now, out: &mut Vec<Intent>) {
        self.confirm_late(now, out);
        while let Some(op) = self.table.take_due(now.elapsed_ms) {
            match op {
                Pending::Register(op) => self.on_wake(now, op, out),
                Pending::Eventual(op) => self.on_eventual_wake(now, op, out),
            }
        }
        self.take_turns(now, out);
    }
}

fn new_op<R>(now: Now, id: OpId, operation: Operation, own: R) -> Box<Op<R>> {
    Box::new(Op {
        id,
        request: operation.request,
        partition: operation.partition,
        at: operation.at,
        deadline_ms: operation.deadline_ms,
        time: HybridTime::from_unix_ms(now.unix_ms),
        config: None,
        round: HybridTime::default(),
        round_began_ms: now.elapsed_ms,
        attempts: 0,
        wake_ms: 0,
        noted_ms: u64::MAX,
        own,
    })
}

impl Coordinator {
    fn on_answer(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        from: NodeId,
        message: Message,
        out: &mut Vec<Intent>,
    ) {
        let index = op.config.as_ref().and_then(|config| config.index(from));
        let Some(index) = index else {
            return self.put_back(op);
        };
        match message {
            Message::Holding { held, .. } if op.own.phase == Phase::Reading => {
                self.on_holding(now, op, index, held, out);
            }
            Message::Promised { held, recall, .. } if op.own.phase == Phase::Preparing => {
                op.own.tally.remember(index, recall);
                self.on_promised(now, op, index, held, out);
            }
            Message::Accepted { .. } if matches!(op.own.phase, Phase::Accepting { .. }) => {
                self.on_accepted(now, op, index, out);
            }
            Message::Nack { highest, .. } => {
                self.observe(now, highest.time);
                op.own.tally.refused.insert(index);
                self.on_refused(now, op, out);
            }
            Message::Abstain { .. } | Message::Epoch { .. } => {
                op.own.tally.refused.insert(index);
                self.on_refused(now, op, out);
            }
            _ => self.put_back(op),
        }
    }

    fn on_promised(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        index: usize,
        held: Held,
        out: &mut Vec<Intent>,
    ) {
        op.own.tally.add(index, held);
        let complete = op
            .config
            .as_ref()
            .is_some_and(|config| config.may_read(op.own.tally.answered, self.mutations));
        if complete {
            self.note_round(now, &op);
            self.decide(now, op, out);
        } else {
            self.put_back(op);
        }
    }
}
