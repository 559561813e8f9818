//! What callers are told, and what is left to do then.

use super::{EventualCoordinator, EventualIntent, EventualOutcome, Op, Step};
use crate::{Hint, Now, OpId};

impl EventualCoordinator {
    pub(super) fn answer(op: &mut Op, outcome: EventualOutcome, out: &mut Vec<EventualIntent>) {
        op.is_answered = true;
        let op = op.id;
        out.push(EventualIntent::Done { op, outcome });
    }

    /// The deadline is over, or no quorum is possible any more.
    pub(super) fn give_up(&mut self, op: &Op, out: &mut Vec<EventualIntent>) {
        let outcome = if op.may_be_stored() {
            EventualOutcome::Unknown
        } else {
            EventualOutcome::Unavailable
        };
        out.push(EventualIntent::Done { op: op.id, outcome });
        if op.may_be_stored() {
            self.end(op, out);
        }
    }

    /// The time is over: who has not confirmed is to be told later.
    pub(super) fn end(&mut self, op: &Op, out: &mut Vec<EventualIntent>) {
        self.lingering.remove(&op.id);
        let (Step::Writing { write, .. }, Some(record)) = (&op.step, &op.record) else {
            return;
        };
        let hints = write.missing().map(|to| Hint {
            to,
            record: record.clone(),
        });
        out.extend(hints.map(EventualIntent::Keep));
    }

    pub(super) fn linger(&mut self, now: Now, op: Box<Op>, out: &mut Vec<EventualIntent>) {
        self.lingering.insert(op.id);
        let linger_ms = self.options.linger_ms.max(1);
        self.sleep_until(now.elapsed_ms.saturating_add(linger_ms), op);
        while self.lingering.len() > self.options.lingering {
            let Some(oldest) = self.lingering.pop_first() else {
                return;
            };
            if let Some(op) = self.remove(oldest) {
                self.end(&op, out);
            }
        }
    }

    /// Everybody has answered.
    pub(super) fn forget(&mut self, op: &Op) {
        self.lingering.remove(&op.id);
    }

    /// Keeps the operation until an answer or its wake-up, whichever is first.
    pub(super) fn put_back(&mut self, op: Box<Op>) {
        self.wakes.insert((op.wake_ms, op.id));
        self.ops.insert(op.id, op);
    }

    pub(super) fn sleep(&mut self, now: Now, op: Box<Op>, ms: u64) {
        let wake_ms = now.elapsed_ms.saturating_add(ms.max(1));
        let latest = if op.is_answered {
            wake_ms
        } else {
            op.deadline_ms
        };
        self.sleep_until(wake_ms.min(latest), op);
    }

    pub(super) fn sleep_until(&mut self, wake_ms: u64, mut op: Box<Op>) {
        op.wake_ms = wake_ms;
        self.put_back(op);
    }

    pub(super) fn remove(&mut self, id: OpId) -> Option<Box<Op>> {
        let op = self.ops.remove(&id)?;
        self.wakes.remove(&(op.wake_ms, id));
        Some(op)
    }

    #[expect(clippy::vec_box, reason = "they are boxed where they come from and go")]
    pub(super) fn take_where(&mut self, concerned: impl Fn(&Op) -> bool) -> Vec<Box<Op>> {
        let ids = self.ops.values().filter(|op| concerned(op)).map(|op| op.id);
        let ids: Vec<_> = ids.collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}
