//! Ends operations: outcomes for callers, and remaining work.

use super::super::table::Pending;
use super::super::{Coordinator, Intent, Outcome};
use super::{EventualOp, Step};
use crate::{Hint, Mutation, Now};

impl Coordinator {
    pub(super) fn answer(op: &mut EventualOp, outcome: Outcome, out: &mut Vec<Intent>) {
        op.own.is_answered = true;
        let op = op.id;
        out.push(Intent::Done { op, outcome });
    }

    /// The deadline has passed, or no quorum is possible any more.
    pub(super) fn end_unanswered(&mut self, op: &EventualOp, out: &mut Vec<Intent>) {
        let forgets = self.mutations.has(Mutation::EventualLostIsUnavailable);
        let outcome = if op.own.may_be_stored() && !forgets {
            Outcome::Unknown
        } else if self.lacks_space_for(op) {
            Outcome::OutOfSpace
        } else {
            Outcome::Unavailable
        };
        out.push(Intent::Done { op: op.id, outcome });
        if op.own.may_be_stored() {
            self.end(op, out);
        }
    }

    /// Whether a write needs replicas whose disks are full.
    pub(super) fn lacks_space_for(&self, op: &EventualOp) -> bool {
        let (Step::Writing { write, .. }, Some(config)) = (&op.own.step, &op.config) else {
            return false;
        };
        !write.can_spare(self.full(config))
    }

    /// The time is up: keeps hints for replicas that have not confirmed.
    pub(super) fn end(&mut self, op: &EventualOp, out: &mut Vec<Intent>) {
        self.lingering.remove(&op.id);
        let (Step::Writing { write, .. }, Some(record)) = (&op.own.step, &op.own.record) else {
            return;
        };
        let hints = write.missing().map(|to| Hint {
            to,
            record: record.clone(),
        });
        out.extend(hints.map(Intent::Keep));
    }

    pub(super) fn linger(&mut self, now: Now, op: Box<EventualOp>, out: &mut Vec<Intent>) {
        self.lingering.insert(op.id);
        let linger_ms = self.options.eventual.linger_ms.max(1);
        self.rest_until(now.elapsed_ms.saturating_add(linger_ms), op);
        while self.lingering.len() > self.options.eventual.lingering {
            let Some(oldest) = self.lingering.pop_first() else {
                return;
            };
            if let Some(Pending::Eventual(op)) = self.table.take(oldest) {
                self.end(&op, out);
            }
        }
    }

    /// Every replica has answered.
    pub(super) fn forget(&mut self, op: &EventualOp) {
        self.lingering.remove(&op.id);
    }

    pub(super) fn rest(&mut self, now: Now, op: Box<EventualOp>, ms: u64) {
        let wake_ms = now.elapsed_ms.saturating_add(ms.max(1));
        let latest = if op.own.is_answered {
            wake_ms
        } else {
            op.deadline_ms
        };
        self.rest_until(wake_ms.min(latest), op);
    }

    pub(super) fn rest_until(&mut self, wake_ms: u64, mut op: Box<EventualOp>) {
        op.wake_ms = wake_ms;
        self.put_back(op);
    }

    /// Abandons an operation. A write that may have been sent lingers as if it had been answered.
    pub(in super::super) fn abandon_eventual(
        &mut self,
        now: Now,
        mut op: Box<EventualOp>,
        out: &mut Vec<Intent>,
    ) {
        if op.own.is_answered {
            self.put_back(op);
        } else if op.own.may_be_stored() && matches!(op.own.step, Step::Writing { .. }) {
            op.own.is_answered = true;
            self.linger(now, op, out);
        }
    }
}
