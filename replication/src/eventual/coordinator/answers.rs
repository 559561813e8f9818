//! What replicas say.

use torc_ring::NodeId;

use super::super::Quorum;
use super::request::outcome_of;
use super::{EventualCoordinator, EventualIntent, EventualOutcome, EventualRequest, Op, Step};
use crate::Now;

impl EventualCoordinator {
    pub(super) fn on_holding(
        &mut self,
        now: Now,
        mut op: Box<Op>,
        (from, held): (NodeId, crate::Held),
        out: &mut Vec<EventualIntent>,
    ) {
        let unix_ms = op.unix_ms;
        let Step::Reading { read, .. } = &mut op.step else {
            return self.put_back(op);
        };
        let newest = read.on_holding(from, held).cloned();
        let collecting = read.collecting();
        let Some(newest) = newest else {
            return self.conclude_settle(op, out);
        };
        if op.request == EventualRequest::Settle {
            return self.settle(&mut op, out);
        }
        for (to, envelope) in read.repairs(&op.at, &[]) {
            out.push(EventualIntent::Send { to, envelope });
        }
        let everybody = read.missing().next().is_none();
        if !op.is_answered {
            let at_ms = unix_ms.max(collecting.time.unix_ms());
            Self::answer(
                &mut op,
                outcome_of(&newest.content, newest.ballot, at_ms),
                out,
            );
        }
        // Who was asked and is late may be behind.
        if !everybody
            && op.request
                != (EventualRequest::Read {
                    quorum: Quorum::One,
                })
        {
            let pause = self.options.resend_ms;
            self.sleep(now, op, pause);
        }
    }

    pub(super) fn on_stored(
        &mut self,
        now: Now,
        mut op: Box<Op>,
        from: NodeId,
        out: &mut Vec<EventualIntent>,
    ) {
        if let EventualRequest::HandOver(hint) = &op.request {
            let version = hint.record.ballot;
            return Self::answer(&mut op, EventualOutcome::Written { version }, out);
        }
        let Step::Writing { write, .. } = &mut op.step else {
            return self.put_back(op);
        };
        let is_done = write.on_stored(from);
        let everybody = write.missing().next().is_none();
        let version = op.record.as_ref().map(|record| record.ballot);
        match version.filter(|_| is_done) {
            None => self.put_back(op),
            Some(_) if everybody && op.is_answered => self.forget(&op),
            Some(_) if op.is_answered => self.put_back(op),
            Some(version) => {
                Self::answer(&mut op, EventualOutcome::Written { version }, out);
                if !everybody {
                    self.linger(now, op, out);
                }
            }
        }
    }

    /// The replica will not store it, ever.
    pub(super) fn on_refused(
        &mut self,
        mut op: Box<Op>,
        from: NodeId,
        out: &mut Vec<EventualIntent>,
    ) {
        if matches!(op.request, EventualRequest::HandOver(_)) {
            return Self::answer(&mut op, EventualOutcome::Refused, out);
        }
        op.is_not_in_doubt(from);
        let Step::Writing { write, .. } = &mut op.step else {
            return self.put_back(op);
        };
        let is_possible = write.on_refused(from);
        let everybody = write.missing().next().is_none();
        if op.is_answered && everybody {
            self.forget(&op);
        } else if op.is_answered || is_possible {
            self.put_back(op);
        } else {
            self.give_up(&op, out);
        }
    }

    /// The replica did nothing this time.
    pub(super) fn on_declined(
        &mut self,
        now: Now,
        mut op: Box<Op>,
        from: NodeId,
        out: &mut Vec<EventualIntent>,
    ) {
        op.is_not_in_doubt(from);
        match &mut op.step {
            Step::HandingOver => self.give_up(&op, out),
            Step::Reading { mute, .. } => {
                if !mute.contains(&from) {
                    mute.push(from);
                }
                // Where one was asked, another one may know.
                let one = EventualRequest::Read {
                    quorum: Quorum::One,
                };
                if op.request == one && op.resends == 0 && !op.is_answered {
                    return self.on_wake(now, op, out);
                }
                self.conclude_settle(op, out);
            }
            Step::Writing { .. } | Step::Waiting => self.put_back(op),
        }
    }

    /// Ends a settle that everybody has answered, be it that he has no say.
    pub(super) fn conclude_settle(&mut self, mut op: Box<Op>, out: &mut Vec<EventualIntent>) {
        let complete = match &op.step {
            Step::Reading { read, mute } => read.missing().all(|node| mute.contains(&node)),
            _ => false,
        };
        if op.request == EventualRequest::Settle && complete {
            self.settle(&mut op, out);
        } else {
            self.put_back(op);
        }
    }

    /// Sends the newest version to those who need it.
    pub(super) fn settle(&mut self, op: &mut Op, out: &mut Vec<EventualIntent>) {
        let Step::Reading { read, mute } = &mut op.step else {
            return self.give_up(op, out);
        };
        // Who has no say is told only what a majority of them knows (R9).
        let is_majority = read.is_met_by(Quorum::Majority);
        let mute: &[NodeId] = if is_majority { mute } else { &[] };
        for (to, envelope) in read.repairs(&op.at, mute) {
            out.push(EventualIntent::Send { to, envelope });
        }
        let outcome = if is_majority {
            EventualOutcome::Settled
        } else {
            EventualOutcome::Unavailable
        };
        Self::answer(op, outcome, out);
    }
}
