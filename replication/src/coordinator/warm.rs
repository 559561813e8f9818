//! R6: one-round writes.
//!
//! An accept carries this coordinator's next ballot on the key, which every replica
//! that accepts promises at the same moment. So a write quorum has promised it, and
//! none of them held anything newer than the version just accepted: what a Prepare
//! would find out is known already. A refusal, a failed round or another epoch ends it.

use std::sync::Arc;

use torc_record::{Ballot, State};

use super::request::{Change, Current, apply, has_expired};
use super::{Condition, Coordinator, Op, Outcome, Plan, Request};
use crate::{Config, Mutation};

/// What this coordinator knows of a key that it wrote last.
#[derive(Debug, Clone)]
pub(super) struct Warm {
    /// Promised by a write quorum, in its epoch.
    next: Ballot,
    version: Ballot,
    state: State,
}

impl Coordinator {
    /// What a warm write accepts, with its ballot set; none if the key is cold or the
    /// rule would not write: a version that may not be the latest proves nothing.
    pub(super) fn warm_plan(&mut self, op: &mut Op, config: &Arc<Config>) -> Option<Plan> {
        if !op.request.is_write() || !op.mine.is_empty() {
            return None;
        }
        if self.mutations.has(Mutation::LastWriterWins) {
            return self.blind_plan(op, config);
        }
        let warm = self.warm.remove(&op.at.id())?;
        if warm.next.epoch != config.epoch {
            return None;
        }
        let expires_at_ms = match &warm.state {
            State::Value { expires_at_ms, .. } => *expires_at_ms,
            State::Tombstone => None,
        };
        let current = Current {
            version: warm.version,
            expired: has_expired(expires_at_ms, op.time),
            state: Some(warm.state).filter(|state| *state != State::Tombstone),
        };
        let Change::Write(state) = apply(&op.request, &current) else {
            return None;
        };
        op.ballot = warm.next;
        op.predecessor = warm.version;
        Some(plan(op, state))
    }

    /// Breaks R4 on purpose: a put that asks nobody.
    fn blind_plan(&self, op: &mut Op, config: &Arc<Config>) -> Option<Plan> {
        let Request::Put {
            value,
            expires_at_ms,
            condition: Condition::None,
        } = &op.request
        else {
            return None;
        };
        let state = State::Value {
            value: value.clone(),
            expires_at_ms: *expires_at_ms,
        };
        op.ballot = self.ballot_at(config, op.round);
        Some(plan(op, state))
    }

    /// Remembers a version that a write quorum has just accepted, with its promise.
    pub(super) fn keep_warm(&mut self, op: &Op, plan: &Plan) {
        let Some(next) = plan.next.filter(|_| plan.wished) else {
            return;
        };
        if self.warm.len() >= self.options.warm_keys
            && let Some(any) = self.warm.keys().next().copied()
        {
            self.warm.remove(&any);
        }
        let warm = Warm {
            next,
            version: plan.version,
            state: plan.state.clone(),
        };
        self.warm.insert(op.at.id(), warm);
    }
}

fn plan(op: &Op, state: State) -> Plan {
    Plan {
        state,
        version: op.ballot,
        outcome: Outcome::Written {
            version: op.ballot,
            fast: true,
        },
        wished: true,
        next: None,
        warm: true,
    }
}
