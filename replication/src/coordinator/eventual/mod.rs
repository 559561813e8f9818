//! Operations of `eventual` namespaces: last writer wins by hybrid clock.
//!
//! * A write is one version with one ballot: it may be resent, even in a later epoch, but
//!   never under another ballot. Once it is answered, replicas that have not confirmed get
//!   some more time; then the node keeps a [`Hint`](crate::Hint) for each.
//! * A read returns the newest of the requested number of answers, and sends it to
//!   replicas that answered with an older one.
//! * An expired value is absent once a majority also judges by that time: the read tells them
//!   to, as a collection does, and asks again. So no majority finds the value any more,
//!   whatever the reading node's clock. A read of one replica uses its own clock.
//! * A reconciliation asks all replicas, and sends the newest version to those that answered.
//!
//! Invariant: if a replica may hold a write's version, the outcome is unknown, never
//! unavailable.
//!
//! * `quorum`: a read and a write. `rounds`: requests. `answers`: answers of replicas. `ends`:
//!   outcomes and hints.

mod answers;
mod ends;
mod quorum;
mod rounds;
#[cfg(test)]
mod tests;

use torc_record::{Ballot, Record};
use torc_ring::NodeId;

use super::{Coordinator, Intent, Op, Operation, Outcome, Request, new_op};
use crate::{Content, Message, Now, OpId, Votes};
pub use quorum::{EventualRead, EventualWrite, Quorum};

/// Limits of operations in `eventual` namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventualOptions {
    /// The first pause before silent replicas are asked again; doubles up to 16 times.
    pub resend_ms: u64,
    /// How long a reconciliation waits for all replicas before a majority suffices.
    pub reconcile_ms: u64,
    /// How long a write that was answered waits for replicas that have not confirmed.
    pub linger_ms: u64,
    /// Limit on such waiting writes; beyond it, the oldest stop waiting.
    pub lingering: usize,
}

impl EventualOptions {
    /// The default settings of nodes.
    pub const DEFAULT: Self = Self {
        resend_ms: 50,
        reconcile_ms: 500,
        linger_ms: 1_000,
        lingering: 8_192,
    };
}

/// The state of an operation.
#[derive(Debug, Default)]
pub(super) enum Step {
    /// Waits for the clock or the topology.
    #[default]
    Waiting,
    Reading {
        read: EventualRead,
        /// Replicas that abstained.
        mute: Vec<NodeId>,
    },
    Writing {
        write: EventualWrite,
        /// Replicas asked in this round that have not denied any effect.
        in_doubt: Votes,
    },
    HandingOver,
}

pub(super) type EventualOp = Op<Eventual>;

/// State of an operation in an `eventual` namespace.
#[derive(Debug)]
pub(super) struct Eventual {
    pub(super) quorum: Quorum,
    /// A write's version, once it has one.
    record: Option<Record>,
    /// Whether an earlier round may have stored it.
    maybe_stored: bool,
    pub(super) is_answered: bool,
    /// Whether a reporting delete found a value.
    existed: Option<bool>,
    /// The ballot up to which replicas close before they answer: afterwards they confirm no
    /// write at or below it that their answer lacks, and values expired by its time stay
    /// expired.
    closes: Ballot,
    step: Step,
    resends: u32,
}

impl Eventual {
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.step, Step::Waiting)
    }

    pub(super) const fn is_asking(&self) -> bool {
        !self.is_waiting()
    }

    pub(super) fn may_be_stored(&self) -> bool {
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

impl Coordinator {
    pub(super) fn start_eventual(
        &mut self,
        now: Now,
        id: OpId,
        operation: Operation,
        quorum: Quorum,
        out: &mut Vec<Intent>,
    ) {
        let own = Eventual {
            quorum,
            record: None,
            maybe_stored: false,
            is_answered: false,
            existed: None,
            closes: Ballot::default(),
            step: Step::Waiting,
            resends: 0,
        };
        let mut op = new_op(now, id, operation, own);
        if op.request.condition().is_some() {
            return Self::answer(&mut op, Outcome::Refused, out);
        }
        self.begin_round(now, op, out);
    }

    pub(super) fn on_eventual_answer(
        &mut self,
        now: Now,
        op: Box<EventualOp>,
        from: NodeId,
        message: Message,
        out: &mut Vec<Intent>,
    ) {
        match message {
            Message::Holding { held, .. } => {
                self.observe(now, held.ballot.time);
                self.on_eventual_holding(now, op, (from, held), out);
            }
            Message::Accepted { .. } => self.on_stored(now, op, from, out),
            Message::Nack { highest, .. } => {
                self.observe(now, highest.time);
                self.on_store_refused(op, (from, highest), out);
            }
            Message::Abstain { .. } | Message::Epoch { .. } => {
                self.on_declined(now, op, from, out);
            }
            _ => self.put_back(op),
        }
    }
}

fn is_reconcile(op: &EventualOp) -> bool {
    matches!(op.request, Request::Reconcile { .. })
}

fn is_not_in_doubt(op: &mut EventualOp, node: NodeId) {
    let index = op.config.as_ref().and_then(|config| config.index(node));
    if let (Step::Writing { in_doubt, .. }, Some(index)) = (&mut op.own.step, index) {
        *in_doubt = in_doubt.without(Votes::one(index));
    }
}

/// The outcome of a write.
fn written(op: &EventualOp, version: Ballot) -> Outcome {
    Outcome::Written {
        version,
        fast: true,
        existed: op.own.existed.unwrap_or(true),
    }
}

/// Whether a delete must still find out if there is a value.
const fn asks_first(op: &EventualOp) -> bool {
    let tells = matches!(
        op.request,
        Request::Delete {
            tells_existed: true,
            ..
        }
    );
    tells && op.own.existed.is_none()
}

/// What a reader whose clock is at `unix_ms` sees.
fn outcome_of(content: &Content, version: Ballot, unix_ms: u64) -> Outcome {
    match content {
        Content::Value {
            expires_at_ms,
            value: Some(value),
        } if expires_at_ms.is_none_or(|at| at > unix_ms) => Outcome::Found {
            value: value.clone(),
            version,
            expires_at_ms: *expires_at_ms,
            fast: true,
        },
        Content::Value { .. } | Content::Tombstone | Content::Absent => {
            Outcome::Absent { fast: true }
        }
    }
}
