//! R6: one-round writes.
//!
//! An accept carries this coordinator's next ballot on the key, which every accepting replica
//! promises at the same time. So a write quorum has promised it, and none of them held anything
//! newer than the accepted version: a Prepare would learn nothing new. A refusal, a failed round or
//! another epoch ends this.

use std::sync::Arc;

use bytes::Bytes;
use torc_record::{Ballot, State};

use super::request::{Change, Current, apply, has_expired};
use super::{Coordinator, Outcome, Plan, RegisterOp};
use crate::{Config, Mutation};

/// This coordinator's knowledge of a key that it wrote last.
#[derive(Debug, Clone)]
pub(super) struct Warm {
    /// Promised by a write quorum in its epoch.
    next: Ballot,
    version: Ballot,
    /// Whether there is a value, and its expiry.
    holds_value: bool,
    expires_at_ms: Option<u64>,
}

impl Coordinator {
    /// The plan of a warm write; `None` if the key is cold, or if the rule would not
    /// write, because a version that may not be the latest proves nothing.
    pub(super) fn warm_plan(&mut self, op: &mut RegisterOp, config: &Arc<Config>) -> Option<Plan> {
        let again = self.mutations.has(Mutation::BlindTriesAgain) && op.request.blind().is_some();
        if !op.request.is_write() || !op.own.mine.is_empty() && !again {
            return None;
        }
        let warm = self.warm.remove(&op.at);
        if let Some(state) = op.request.blind() {
            op.own.ballot = self.ballot_at(config, op.round);
            return Some(plan(op, state, true));
        }
        let warm = warm?;
        // A collection below `next` may have dropped the value, whatever this node's clock says.
        let time = op.time.max(warm.next.time);
        if warm.next.epoch != config.epoch || has_expired(warm.expires_at_ms, time) {
            return None;
        }
        let state = warm.holds_value.then(|| State::Value {
            value: Bytes::new(),
            expires_at_ms: warm.expires_at_ms,
        });
        let current = Current {
            version: warm.version,
            expired: false,
            state,
            merging: config.merging,
        };
        let Change::Write { state, existed } = apply(&op.request, &current, self.mutations) else {
            return None;
        };
        op.own.ballot = warm.next;
        if !existed {
            op.own.found_nothing.push(warm.next);
        }
        Some(plan(op, state, existed))
    }

    /// Remembers a version that a write quorum has just accepted, with its promise.
    pub(super) fn keep_warm(&mut self, op: &RegisterOp, plan: &Plan) {
        let Some(next) = plan.next.filter(|_| plan.requested) else {
            return;
        };
        if self.warm.len() >= self.options.warm_keys
            && let Some(any) = self.warm.keys().next().cloned()
        {
            self.warm.remove(&any);
        }
        let expires_at_ms = match &plan.state {
            State::Value { expires_at_ms, .. } => *expires_at_ms,
            State::Tombstone => None,
        };
        let warm = Warm {
            next,
            version: plan.version,
            holds_value: plan.state != State::Tombstone,
            expires_at_ms,
        };
        // A copy, because the key may be part of a long message, which it would keep in memory.
        let at = op.at.detached();
        self.warm.insert(at, warm);
    }
}

fn plan(op: &RegisterOp, state: State, existed: bool) -> Plan {
    Plan {
        state,
        version: op.own.ballot,
        outcome: Outcome::Written {
            existed,
            version: op.own.ballot,
            fast: true,
        },
        requested: true,
        again: false,
        next: None,
        warm: op.request.blind().is_none(),
    }
}
