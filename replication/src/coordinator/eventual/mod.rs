//! Operations of `eventual` namespaces: last writer wins by hybrid clock.
//!
//! * A write is one version with one ballot: it is sent again, in a later epoch too if need
//!   be, but never under another one. Once it is answered, those who have not confirmed
//!   have some time left; then each is to be given a [`Hint`](crate::Hint).
//! * A read answers with the newest of as many answers as asked for, and sends it to those
//!   who answered with an older one.
//! * A value that has expired is absent once a majority answers by that time too: they are told
//!   to, as by a collection, and asked again. So no majority finds it any more, whatever the
//!   clock says of the node that asks. A read of one replica goes by its own clock.
//! * A reconciliation asks all replicas, and brings those that answered to the newest version.
//!
//! Invariant: a write whose version may be at a replica is never called unavailable, but
//! unknown.
//!
//! * `quorum`: a read and a write. `rounds`: asking. `answers`: what replicas say. `ends`:
//!   what callers are told, and who is to get a hint.

mod answers;
mod ends;
mod quorum;
mod rounds;
#[cfg(test)]
mod tests;

use torc_record::{Ballot, Record};
use torc_ring::NodeId;

use super::{Condition, Coordinator, Intent, Op, Operation, Outcome, Request, new_op};
use crate::{Content, Message, Now, OpId, Votes};
pub use quorum::{EventualRead, EventualWrite, Quorum};

/// Bounds of operations in `eventual` namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventualOptions {
    /// The first pause before those who are silent are asked again; doubles up to 16 times.
    pub resend_ms: u64,
    /// How long a reconciliation waits for all replicas before a majority is enough.
    pub reconcile_ms: u64,
    /// How long an answered write waits for those who have not confirmed.
    pub linger_ms: u64,
    /// Most answered writes that wait so; beyond, the oldest wait no longer.
    pub lingering: usize,
}

impl EventualOptions {
    /// What nodes run with.
    pub const DEFAULT: Self = Self {
        resend_ms: 50,
        reconcile_ms: 500,
        linger_ms: 1_000,
        lingering: 8_192,
    };
}

/// What an operation is at.
#[derive(Debug, Default)]
pub(super) enum Step {
    /// For the clock or the topology.
    #[default]
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

pub(super) type EventualOp = Op<Eventual>;

/// What an operation of an `eventual` namespace keeps.
#[derive(Debug)]
pub(super) struct Eventual {
    pub(super) quorum: Quorum,
    /// A write's version, once it has one.
    record: Option<Record>,
    /// A round that is over may have stored it.
    maybe_stored: bool,
    pub(super) is_answered: bool,
    /// What a delete that is to tell found before.
    existed: Option<bool>,
    /// Up to where replicas are closed before they tell what they hold: no write at or below is
    /// confirmed afterwards that they do not tell of, and what has expired by its time stays so.
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
        let condition = match &op.request {
            Request::Put { condition, .. } | Request::Delete { condition, .. } => *condition,
            Request::Get | Request::Reconcile { .. } | Request::HandOver(_) => Condition::None,
        };
        if condition != Condition::None {
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

/// What the caller of a write is told.
fn written(op: &EventualOp, version: Ballot) -> Outcome {
    Outcome::Written {
        version,
        fast: true,
        existed: op.own.existed.unwrap_or(true),
    }
}

/// Whether a delete has yet to find out if there is a value.
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

/// What a reader at `unix_ms` sees.
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
