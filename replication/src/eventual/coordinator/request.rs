//! What a coordinator is asked, answers and wants done.

use bytes::Bytes;
use torc_record::{Ballot, HybridTime, State};
use torc_ring::NodeId;

use super::super::Quorum;
use crate::{Content, Envelope, Hint, OpId};

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
    /// Make this clock reading durable, then call [`EventualCoordinator::reserved`](super::EventualCoordinator::reserved).
    Reserve(HybridTime),
    /// Keep this for later.
    Keep(Hint),
}

/// What a reader at `unix_ms` sees.
pub(super) fn outcome_of(content: &Content, version: Ballot, unix_ms: u64) -> EventualOutcome {
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
