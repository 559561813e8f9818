//! Spans of a shard: the work of its coordinator and replicas for traced operations.
//!
//! This module makes no decisions. An untraced operation, the normal case, costs a check of two
//! empty lists.

use std::collections::VecDeque;
use std::time::Instant;

use torc_proto::TraceContext;
use torc_record::Digest;
use torc_replication::{Envelope, Message, NumberTable, OpId, Outcome, Tag};
use torc_ring::{NodeId, Partition};

use torc_telemetry::spans::{OpenSpan, Span};

/// Limit on the traced requests whose replies are awaited. The oldest is dropped first, because a
/// message that a replica cannot handle is never answered.
const MOST_REPLYING: usize = 256;

/// An operation that this node coordinates.
struct Coordinated {
    open: OpenSpan,
    partition: Partition,
    digest: Digest,
}

/// A message that a replica handles.
struct Replying {
    open: OpenSpan,
    partition: Partition,
    to: NodeId,
    tag: Tag,
}

/// The open spans of a shard, and those that have ended in this turn.
#[derive(Default)]
pub(super) struct Spans {
    coordinated: NumberTable<OpId, Coordinated>,
    replying: VecDeque<Replying>,
    ended: Vec<Span>,
}

impl Spans {
    /// Whether nothing of this shard is traced.
    pub(super) fn is_idle(&self) -> bool {
        self.coordinated.is_empty() && self.replying.is_empty()
    }

    /// Takes the spans that have ended since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.ended)
    }

    /// The coordinator begins an operation.
    pub(super) fn begin(
        &mut self,
        op: OpId,
        trace: TraceContext,
        is_write: bool,
        (partition, digest): (Partition, Digest),
    ) {
        let open = OpenSpan::child(trace, coordinator(is_write), Instant::now());
        let coordinated = Coordinated {
            open,
            partition,
            digest,
        };
        self.coordinated.insert(op, coordinated);
    }

    /// The coordinator has ended an operation; `None` if the caller has abandoned it.
    pub(super) fn end(&mut self, op: OpId, outcome: Option<&Outcome>) {
        if let Some(it) = self.coordinated.remove(&op) {
            let span = coordinated(it.open, it.partition, outcome);
            self.ended.push(span);
        }
    }

    /// The span on whose behalf a message is sent. An answer ends a replica's span instead.
    pub(super) fn sent(&mut self, to: NodeId, message: &Message) -> Option<Box<TraceContext>> {
        if let Some(tag) = message.answers() {
            self.end_reply(to, tag, message);
            return None;
        }
        let of = match message {
            // Confirms gets of many operations; its number is that of the first.
            Message::Confirm { tag, claims } => {
                let is_claimed =
                    |it: &&Coordinated| claims.iter().any(|claim| claim.at.digest == it.digest);
                let first = self.coordinated.get(&tag.op);
                first.or_else(|| self.coordinated.values().find(is_claimed))
            }
            Message::Read { tag, .. }
            | Message::Prepare { tag, .. }
            | Message::Accept { tag, .. }
            | Message::Store { tag, .. } => self.coordinated.get(&tag.op),
            _ => None,
        };
        of.map(|it| Box::new(it.open.context))
    }

    /// A replica is about to handle the message of a traced operation.
    pub(super) fn received(
        &mut self,
        from: NodeId,
        envelope: &Envelope,
        trace: TraceContext,
    ) -> Option<TraceContext> {
        let (name, tag) = asked(&envelope.message)?;
        if self.replying.len() == MOST_REPLYING {
            self.replying.pop_front();
        }
        let open = OpenSpan::child(trace, name, Instant::now());
        self.replying.push_back(Replying {
            open,
            partition: envelope.partition,
            to: from,
            tag,
        });
        Some(open.context)
    }

    /// The span of a message that a replica received earlier and handles now.
    pub(super) fn handling(&self, from: NodeId, message: &Message) -> Option<TraceContext> {
        let (_, tag) = asked(message)?;
        let mut replying = self.replying.iter();
        let it = replying.find(|it| it.to == from && it.tag == tag)?;
        Some(it.open.context)
    }

    fn end_reply(&mut self, to: NodeId, tag: Tag, answer: &Message) {
        let is_it = |it: &Replying| it.to == to && it.tag == tag;
        let Some(it) = self.replying.iter().position(is_it) else {
            return;
        };
        if let Some(it) = self.replying.remove(it) {
            let outcome = match answer {
                Message::Nack { .. } => "nack",
                Message::Abstain { .. } => "abstain",
                Message::Epoch { .. } => "later epoch",
                _ => "ok",
            };
            self.ended.push(Span {
                partition: Some(it.partition),
                ..it.open.end(outcome)
            });
        }
    }
}

/// The name and tag of a coordinator's request to a replica.
const fn asked(message: &Message) -> Option<(&'static str, Tag)> {
    match message {
        Message::Read { tag, .. } => Some(("replica read", *tag)),
        Message::Confirm { tag, .. } => Some(("replica confirm", *tag)),
        Message::Prepare { tag, .. } => Some(("replica prepare", *tag)),
        Message::Accept { tag, .. } => Some(("replica accept", *tag)),
        Message::Store { tag, .. } => Some(("replica store", *tag)),
        _ => None,
    }
}

pub(super) const fn coordinator(is_write: bool) -> &'static str {
    if is_write {
        "coordinator write"
    } else {
        "coordinator read"
    }
}

/// The finished span of a coordinator.
pub(super) fn coordinated(open: OpenSpan, partition: Partition, outcome: Option<&Outcome>) -> Span {
    let (outcome, is_error) = match outcome {
        Some(Outcome::Found { .. }) => ("found", false),
        Some(Outcome::Absent { .. }) => ("absent", false),
        Some(Outcome::Written { .. }) => ("written", false),
        Some(Outcome::Mismatch { .. }) => ("mismatch", false),
        Some(Outcome::Reconciled) => ("reconciled", false),
        Some(Outcome::Refused) => ("refused", true),
        Some(Outcome::Unavailable) => ("unavailable", true),
        Some(Outcome::OutOfSpace) => ("out of space", true),
        Some(Outcome::Unknown) => ("unknown", true),
        Some(Outcome::Overtaken) => ("overtaken", true),
        None => ("given up", true),
    };
    Span {
        partition: Some(partition),
        is_error,
        ..open.end(outcome)
    }
}
