//! Handles the answers of replicas.

use torc_record::{Ballot, HybridTime};
use torc_ring::NodeId;

use super::super::{Coordinator, Intent, Outcome, Request};
use super::{
    EventualOp, Quorum, Step, asks_first, is_not_in_doubt, is_reconcile, outcome_of, written,
};
use crate::{Content, Mutation, Now};

impl Coordinator {
    pub(super) fn on_eventual_holding(
        &mut self,
        now: Now,
        mut op: Box<EventualOp>,
        (from, held): (NodeId, crate::Held),
        out: &mut Vec<Intent>,
    ) {
        let (unix_ms, reconciles) = (op.time.unix_ms(), is_reconcile(&op));
        let Step::Reading { read, .. } = &mut op.own.step else {
            return self.put_back(op);
        };
        let newest = read.on_holding(from, held).cloned();
        let collecting = read.collecting();
        let Some(newest) = newest else {
            return self.conclude_reconcile(op, out);
        };
        if reconciles {
            return self.bring_together(&mut op, out);
        }
        for (to, envelope) in read.repairs(&op.at, &[], Ballot::default()) {
            out.push(Intent::Send { to, envelope });
        }
        let everybody = read.missing().next().is_none();
        let at_ms = unix_ms.max(collecting.unix_ms());
        if op.request == Request::Get
            && op.own.quorum != Quorum::One
            && !op.own.is_answered
            && let Content::Value {
                expires_at_ms: Some(expiry_ms),
                ..
            } = newest.content
            && expiry_ms <= at_ms
            && !read.agrees_on_expiry(expiry_ms)
            && !self.mutations.has(Mutation::EventualExpiryOpen)
        {
            return self.close_up_to_expiry(now, op, expiry_ms, out);
        }
        let outcome = outcome_of(&newest.content, newest.ballot, at_ms);
        if asks_first(&op) {
            op.own.existed = Some(matches!(outcome, Outcome::Found { .. }));
            return self.begin_round(now, op, out);
        }
        if !op.own.is_answered {
            Self::answer(&mut op, outcome, out);
        }
        // Replicas that have not answered yet may have an older version.
        if !everybody && op.own.quorum != Quorum::One {
            let pause = self.options.eventual.resend_ms;
            self.rest(now, op, pause);
        }
    }

    /// Asks again, closing replicas up to the expiry of the found value. Replicas that were
    /// already asked this way in the round may still answer.
    fn close_up_to_expiry(
        &mut self,
        now: Now,
        mut op: Box<EventualOp>,
        expiry_ms: u64,
        out: &mut Vec<Intent>,
    ) {
        let time = HybridTime::from_unix_ms(expiry_ms);
        let known = op.own.closes.time;
        let config = op.config.clone().filter(|_| time > known);
        let Some(config) = config else {
            return self.put_back(op);
        };
        op.own.closes = self.ballot_at(&config, time);
        self.begin_round(now, op, out);
    }

    pub(super) fn on_stored(
        &mut self,
        now: Now,
        mut op: Box<EventualOp>,
        from: NodeId,
        out: &mut Vec<Intent>,
    ) {
        if let Request::HandOver(hint) = &op.request {
            let version = hint.record.ballot;
            let outcome = written(&op, version);
            return Self::answer(&mut op, outcome, out);
        }
        let Step::Writing { write, .. } = &mut op.own.step else {
            return self.put_back(op);
        };
        let is_done = write.on_stored(from);
        let everybody = write.missing().next().is_none();
        let version = op.own.record.as_ref().map(|record| record.ballot);
        match version.filter(|_| is_done) {
            None => self.put_back(op),
            Some(_) if everybody && op.own.is_answered => self.forget(&op),
            Some(_) if op.own.is_answered => self.put_back(op),
            Some(version) => {
                let outcome = written(&op, version);
                Self::answer(&mut op, outcome, out);
                if !everybody {
                    self.linger(now, op, out);
                }
            }
        }
    }

    /// The replica will not store it, ever.
    pub(super) fn on_store_refused(
        &mut self,
        mut op: Box<EventualOp>,
        (from, highest): (NodeId, Ballot),
        out: &mut Vec<Intent>,
    ) {
        if matches!(op.request, Request::HandOver(_)) {
            return Self::answer(&mut op, Outcome::Refused, out);
        }
        // A replica that may hold the record but cannot vouch for it sends the record's own ballot.
        if op.own.record.as_ref().map(|record| record.ballot) != Some(highest) {
            is_not_in_doubt(&mut op, from);
        }
        let Step::Writing { write, .. } = &mut op.own.step else {
            return self.put_back(op);
        };
        let is_possible = write.on_refused(from);
        let everybody = write.missing().next().is_none();
        if op.own.is_answered && everybody {
            self.forget(&op);
        } else if op.own.is_answered || is_possible {
            self.put_back(op);
        } else {
            self.end_unanswered(&op, out);
        }
    }

    /// The replica did nothing with this request.
    pub(super) fn on_declined(
        &mut self,
        now: Now,
        mut op: Box<EventualOp>,
        from: NodeId,
        out: &mut Vec<Intent>,
    ) {
        is_not_in_doubt(&mut op, from);
        // A resent message may have been stored although its first copy was not.
        let is_open = op.own.is_answered || op.own.resends > 0 || op.own.may_be_stored();
        let is_over = !is_open && self.lacks_space_for(&op);
        match &mut op.own.step {
            Step::HandingOver => self.end_unanswered(&op, out),
            Step::Reading { mute, .. } => {
                if !mute.contains(&from) {
                    mute.push(from);
                }
                // If only one replica was asked, another one may know.
                let asks_one = op.own.quorum == Quorum::One && op.request == Request::Get;
                if asks_one && op.own.resends == 0 && !op.own.is_answered {
                    return self.on_eventual_wake(now, op, out);
                }
                self.conclude_reconcile(op, out);
            }
            Step::Writing { .. } if is_over => self.end_unanswered(&op, out),
            Step::Writing { .. } | Step::Waiting => self.put_back(op),
        }
    }

    /// Ends a reconciliation once every replica has answered or abstained.
    pub(super) fn conclude_reconcile(&mut self, mut op: Box<EventualOp>, out: &mut Vec<Intent>) {
        let complete = match &op.own.step {
            Step::Reading { read, mute } => read.missing().all(|node| mute.contains(&node)),
            _ => false,
        };
        if is_reconcile(&op) && complete {
            self.bring_together(&mut op, out);
        } else {
            self.put_back(op);
        }
    }

    /// Sends the newest version to the replicas that need it.
    pub(super) fn bring_together(&mut self, op: &mut EventualOp, out: &mut Vec<Intent>) {
        let Step::Reading { read, mute } = &mut op.own.step else {
            return self.end_unanswered(op, out);
        };
        // A replica without a say may only get what a majority knows (R9).
        let is_majority = read.is_majority() || self.mutations.has(Mutation::MinorityRepairs);
        let mute: &[NodeId] = if is_majority { mute } else { &[] };
        for (to, envelope) in read.repairs(&op.at, mute, op.own.closes) {
            out.push(Intent::Send { to, envelope });
        }
        let outcome = if is_majority {
            Outcome::Reconciled
        } else {
            Outcome::Unavailable
        };
        Self::answer(op, outcome, out);
    }
}
