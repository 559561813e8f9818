//! Requests to a coordinator, and their outcomes.

use bytes::Bytes;
use torc_record::{Ballot, Condition, HybridTime, State};
use torc_ring::Partition;

use super::Quorum;
use crate::{Hint, Locator, Mutation, Mutations};

/// How the replicas of a key agree: as the mode of its namespace says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// A register for each key.
    Linearizable,
    /// The last writer wins; this many replicas must answer.
    Eventual(Quorum),
    /// Immutable: any replica that holds the key's slice answers.
    Static,
}

/// One operation on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The key's partition.
    pub partition: Partition,
    /// The key.
    pub at: Locator,
    /// The rules of its namespace.
    pub rules: Rules,
    /// The request.
    pub request: Request,
    /// Deadline on the monotonic clock.
    pub deadline_ms: u64,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Read it.
    Get,
    /// Store a value.
    Put {
        /// The value.
        value: Bytes,
        /// Its expiry, Unix milliseconds.
        expires_at_ms: Option<u64>,
        /// Only if this holds. None in an `eventual` namespace.
        condition: Option<Condition>,
    },
    /// Delete it.
    Delete {
        /// Only if this holds. `IfAbsent` deletes nothing; while a merge is open, it leaves a
        /// tombstone.
        condition: Option<Condition>,
        /// Whether to report if there was a value, which takes another round.
        tells_existed: bool,
    },
    /// Change nothing, but bring all answering replicas to one version. Read repair and
    /// anti-entropy use it.
    Reconcile {
        /// Write even if the version is proven chosen, because a replica's record is unreadable.
        rewrite: bool,
    },
    /// Give a replica of an `eventual` namespace a write that it missed.
    HandOver(Hint),
}

impl Request {
    /// Whether it may change the register.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Delete { .. })
    }

    /// The condition of a write that has one.
    #[must_use]
    pub const fn condition(&self) -> Option<Condition> {
        match self {
            Self::Put { condition, .. } | Self::Delete { condition, .. } => *condition,
            Self::Get | Self::Reconcile { .. } | Self::HandOver(_) => None,
        }
    }

    /// The state that a blind write accepts (R4b); `None` for other requests.
    pub(super) fn blind(&self) -> Option<State> {
        match self {
            Self::Put {
                value,
                expires_at_ms,
                condition: None,
            } => Some(State::Value {
                value: value.clone(),
                expires_at_ms: *expires_at_ms,
            }),
            Self::Delete {
                condition: None,
                tells_existed: false,
            } => Some(State::Tombstone),
            _ => None,
        }
    }
}

/// The outcome of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// `Get`: this is its value.
    Found {
        /// The value.
        value: Bytes,
        /// Its version.
        version: Ballot,
        /// Its expiry, Unix milliseconds.
        expires_at_ms: Option<u64>,
        /// Whether one round of messages was enough.
        fast: bool,
    },
    /// `Get`, `Delete`: there is no value.
    Absent {
        /// Whether one round of messages was enough.
        fast: bool,
    },
    /// `Put`, `Delete`: done.
    Written {
        /// The new version.
        version: Ballot,
        /// Whether one round of messages was enough (R4b, R6).
        fast: bool,
        /// False if a reporting `Delete` found no value.
        existed: bool,
    },
    /// The condition does not hold; nothing was changed.
    Mismatch {
        /// The present value and version, if there is one.
        current: Option<(Bytes, Ballot)>,
    },
    /// `Reconcile`: the replicas that answered hold one version, or were sent it.
    Reconciled,
    /// `HandOver`: the replica will not take it, ever. Any other: the namespace's mode has no
    /// such operation; nothing was changed.
    Refused,
    /// The deadline passed, or too few replicas answered, before anything was changed.
    /// A retry is safe.
    Unavailable,
    /// Too few replicas, or the coordinator, have disk space. Nothing was changed. A retry is safe.
    OutOfSpace,
    /// The write may have happened, or may still happen, or not (R7). Only its author
    /// can decide whether to repeat it.
    Unknown,
    /// Like `Unknown`, with a known cause: another write is above it, and too few replicas
    /// remember the outcome of this one.
    Overtaken,
}

/// The register as an operation found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) version: Ballot,
    /// `None` for an absent key.
    pub(super) state: Option<State>,
    /// Whether the value had expired at the operation's time.
    pub(super) expired: bool,
    /// Whether a merge into the partition is open.
    pub(super) merging: bool,
}

impl Current {
    fn visible(&self) -> Option<(&Bytes, Option<u64>)> {
        match &self.state {
            Some(State::Value {
                value,
                expires_at_ms,
            }) if !self.expired => Some((value, *expires_at_ms)),
            _ => None,
        }
    }
}

/// What an operation does to the register it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A new version, as the caller requested.
    Write {
        state: State,
        /// False for a delete that found no value.
        existed: bool,
    },
    /// Nothing, if the found version is proven chosen; else accept it again.
    Keep(Outcome),
    /// The found value had expired: make it absent for all readers, then answer.
    Expire(Outcome),
}

/// Whether a value has expired at an operation's time.
pub(super) fn has_expired(expires_at_ms: Option<u64>, time: HybridTime) -> bool {
    expires_at_ms.is_some_and(|at| at <= time.unix_ms())
}

/// The operation's rule: its change, given the present state.
pub(super) fn apply(request: &Request, current: &Current, mutations: Mutations) -> Change {
    let visible = current.visible();
    let keep = |outcome| {
        if current.expired {
            Change::Expire(outcome)
        } else {
            Change::Keep(outcome)
        }
    };
    let mismatch = || {
        let current = visible.map(|(value, _)| (value.clone(), current.version));
        Outcome::Mismatch { current }
    };
    let write = |state, existed| Change::Write { state, existed };
    match request {
        Request::Get => keep(match visible {
            Some((value, expires_at_ms)) => Outcome::Found {
                value: value.clone(),
                version: current.version,
                expires_at_ms,
                fast: false,
            },
            None => Outcome::Absent { fast: false },
        }),
        Request::Reconcile { .. } => keep(Outcome::Reconciled),
        Request::HandOver(_) => keep(Outcome::Refused),
        Request::Put {
            value,
            expires_at_ms,
            condition,
        } => {
            let revives = mutations.has(Mutation::MergesOverTombstones)
                && matches!(condition, Some(Condition::IfOlderThan(_)))
                && visible.is_none();
            if holds(*condition, visible.is_some(), current.version) || revives {
                let state = State::Value {
                    value: value.clone(),
                    expires_at_ms: *expires_at_ms,
                };
                write(state, true)
            } else {
                keep(mismatch())
            }
        }
        Request::Delete {
            condition: None,
            tells_existed: false,
        } => write(State::Tombstone, true),
        Request::Delete { condition, .. } => match (visible, condition) {
            (None, Some(Condition::IfVersion(_))) => keep(mismatch()),
            // The merged record would take effect after the delete.
            (None, _)
                if current.merging
                    && holds(*condition, false, current.version)
                    && !mutations.has(Mutation::UnrecordedDeletes) =>
            {
                write(State::Tombstone, false)
            }
            (None, _) => keep(Outcome::Absent { fast: false }),
            (Some(_), _) if holds(*condition, true, current.version) => {
                write(State::Tombstone, true)
            }
            (Some(_), _) => keep(mismatch()),
        },
    }
}

fn holds(condition: Option<Condition>, visible: bool, version: Ballot) -> bool {
    match condition {
        None => true,
        Some(Condition::IfAbsent) => !visible,
        Some(Condition::IfVersion(wanted)) => visible && wanted == version,
        Some(Condition::IfOlderThan(bound)) => version < bound,
    }
}
