//! R4 and R6: prepare, decide, accept.

use std::sync::Arc;

use torc_record::Record;

use super::request::{Change, Current, apply};
use super::table::Pending;
use super::{Coordinator, Intent, Outcome, Phase, Plan, RegisterOp};
use crate::{Config, Message, Mutation, Now, Votes};

impl Coordinator {
    pub(super) fn write(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        config: &Arc<Config>,
        out: &mut Vec<Intent>,
    ) {
        if !self.lacks_space(config)
            && let Some(plan) = self.warm_plan(&mut op, config)
        {
            return self.accept(now, op, config, plan, out);
        }
        op.own.ballot = self.ballot_at(config, op.round);
        op.own.phase = Phase::Preparing;
        let (at, ballot) = (op.at.clone(), op.own.ballot);
        let doubted = op.own.doubted(config.epoch);
        Self::broadcast(&op, config, config.readers(), out, |_, tag| {
            Message::Prepare {
                tag,
                at: at.clone(),
                ballot,
                doubted,
            }
        });
        let round_ms = self.round_ms(&op);
        self.sleep(now, op, round_ms);
    }

    /// A read quorum has promised: decides what to accept, or that nothing need be accepted.
    pub(super) fn decide(&mut self, now: Now, op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        let Some(config) = op.config.clone() else {
            return self.put_back(op);
        };
        let (seen, holders) = op.own.tally.highest(&config);
        let current = Self::current(&op, &seen);
        let proven = config.is_chosen(seen.ballot, holders, self.mutations);
        if !op.own.mine.is_empty() && !self.mutations.has(Mutation::RetryReapplies) {
            return self.resolve(now, op, (&config, proven), &seen, &current, out);
        }
        match apply(&op.request, &current, self.mutations) {
            Change::Keep(outcome) if self.may_answer(&op, proven) => {
                self.finish(&op, outcome, out);
            }
            Change::Expire(outcome) if self.mutations.has(Mutation::ExpiryUnwritten) => {
                self.finish(&op, outcome, out);
            }
            change => self.carry_out(now, op, (&config, proven), &current, change, out),
        }
    }

    /// Accepts the caller's write, or the present version again.
    pub(super) fn carry_out(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        (config, proven): (&Arc<Config>, bool),
        current: &Current,
        change: Change,
        out: &mut Vec<Intent>,
    ) {
        let builds = op.request.blind().is_none() && matches!(change, Change::Write { .. });
        if builds && !proven && !self.mutations.has(Mutation::BuildsOnUnproven) {
            return self.complete_first(now, op, config, current, out);
        }
        let tombstone = torc_record::State::Tombstone;
        // Accepting the present version again creates no new version.
        let (state, outcome, requested, version) = match change {
            Change::Write { state, existed } => {
                let (version, fast) = (op.own.ballot, false);
                if !existed {
                    op.own.found_nothing.push(version);
                }
                let outcome = Outcome::Written {
                    version,
                    fast,
                    existed,
                };
                (state, outcome, true, version)
            }
            Change::Keep(outcome) => {
                let state = current.state.clone().unwrap_or(tombstone);
                (state, outcome, false, current.version)
            }
            Change::Expire(outcome) => (tombstone, outcome, false, current.version),
        };
        let version = if self.mutations.has(Mutation::IdentityRenames) {
            op.own.ballot
        } else {
            version
        };
        let plan = Plan {
            state,
            version,
            outcome,
            requested,
            again: false,
            next: None,
            warm: false,
        };
        self.accept(now, op, config, plan, out);
    }

    /// First completes the version that a write builds on. So a version that no write quorum has
    /// stored has had no effect, and its writer may retry (R7).
    fn complete_first(
        &mut self,
        now: Now,
        op: Box<RegisterOp>,
        config: &Arc<Config>,
        current: &Current,
        out: &mut Vec<Intent>,
    ) {
        let state = current.state.clone();
        let plan = Plan {
            state: state.unwrap_or(torc_record::State::Tombstone),
            version: current.version,
            outcome: Outcome::Unavailable,
            requested: false,
            again: true,
            next: None,
            warm: false,
        };
        self.accept(now, op, config, plan, out);
    }

    /// A version that is proven chosen needs no second round, unless an accept of our own may still
    /// be under way: only a higher ballot ends that accept.
    fn may_answer(&self, op: &RegisterOp, proven: bool) -> bool {
        let rewrites = matches!(op.request, super::Request::Reconcile { rewrite: true });
        let careless = self.mutations.has(Mutation::CasMissUnchosen) && op.request.is_write()
            || self.mutations.has(Mutation::GetWithoutWriteBack) && !op.request.is_write();
        op.own.mine.is_empty() && !rewrites && (proven || careless)
    }

    pub(super) fn accept(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        config: &Arc<Config>,
        mut plan: Plan,
        out: &mut Vec<Intent>,
    ) {
        if plan.requested {
            op.own.mine.push(op.own.ballot);
            // A blind write needs no promise, and makes none.
            if op.request.blind().is_none() {
                let next = self.tick_clock(now, out);
                plan.next = next.map(|time| self.ballot_at(config, time));
            }
        }
        op.own.phase = Phase::Accepting { resent: false };
        op.round_began_ms = now.elapsed_ms;
        op.own.plan = Some(plan);
        Self::send_accepts(&op, config, config.acceptors(), out);
        let round_ms = self.round_ms(&op);
        self.sleep(now, op, round_ms);
    }

    fn send_accepts(op: &RegisterOp, config: &Arc<Config>, to: Votes, out: &mut Vec<Intent>) {
        let Some(plan) = &op.own.plan else {
            return;
        };
        let record = Record {
            namespace: op.at.namespace,
            digest: op.at.digest,
            key: op.at.key.clone(),
            ballot: op.own.ballot,
            origin: (plan.version != op.own.ballot).then_some(plan.version),
            state: plan.state.clone(),
        };
        Self::broadcast(op, config, to, out, |_, tag| Message::Accept {
            tag,
            record: record.clone(),
            next: plan.next,
        });
    }

    /// Resends to silent replicas with the same ballot, which is safe.
    pub(super) fn resend(&mut self, now: Now, op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        if let Some(config) = op.config.clone() {
            let silent = config.acceptors().without(op.own.tally.accepted);
            Self::send_accepts(&op, &config, silent, out);
        }
        let round_ms = self.round_ms(&op);
        self.sleep(now, op, round_ms);
    }

    pub(super) fn on_accepted(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        index: usize,
        out: &mut Vec<Intent>,
    ) {
        op.own.tally.accepted.insert(index);
        let complete = op
            .config
            .as_ref()
            .is_some_and(|config| config.may_accept(op.own.tally.accepted, self.mutations));
        let Some(plan) = op.own.plan.take_if(|_| complete) else {
            return self.put_back(op);
        };
        self.note_round(now, &op);
        if plan.again {
            return self.attempt(now, op, out);
        }
        self.keep_warm(&op, &plan);
        self.finish(&op, plan.outcome, out);
    }

    /// Breaks R2 on purpose: continues with an accept of the previous epoch.
    pub(super) fn carry_into(&mut self, config: &Arc<Config>, out: &mut Vec<Intent>) {
        for op in self.table.values_mut() {
            let Pending::Register(op) = op else {
                continue;
            };
            let accepting = matches!(op.own.phase, Phase::Accepting { .. });
            if accepting && op.partition == config.partition {
                op.config = Some(config.clone());
                op.own.tally = super::Tally::default();
                Self::send_accepts(op, config, config.acceptors(), out);
            }
        }
    }

    /// Breaks R6 on purpose: a refused warm write continues with a higher ballot.
    pub(super) fn presses_on(&self, op: &RegisterOp) -> bool {
        self.mutations.has(Mutation::WarmAfterRefusal)
            && matches!(op.own.phase, Phase::Accepting { .. })
            && op.own.plan.as_ref().is_some_and(|plan| plan.warm)
    }

    pub(super) fn press_on(&mut self, now: Now, mut op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        let (Some(config), Some(time)) = (op.config.clone(), self.tick_clock(now, out)) else {
            return self.fail_round(now, op, out);
        };
        let Some(plan) = op.own.plan.take() else {
            return self.fail_round(now, op, out);
        };
        op.round = time;
        op.own.ballot = self.ballot_at(&config, time);
        op.own.tally = super::Tally::default();
        self.accept(now, op, &config, plan, out);
    }
}
