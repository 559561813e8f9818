//! Sends requests to replicas in the newest configuration.

use std::sync::Arc;

use torc_record::{Ballot, Record, State};

use super::super::{Coordinator, Intent, Outcome, Request};
use super::quorum::envelope;
use super::{EventualOp, EventualRead, EventualWrite, Quorum, Step, asks_first, is_reconcile};
use crate::{Config, Message, Mutation, Now, Tag, Votes};

impl Coordinator {
    /// Asks all replicas of the newest configuration, or waits until the clock and the topology
    /// allow it.
    pub(in super::super) fn begin_round(
        &mut self,
        now: Now,
        mut op: Box<EventualOp>,
        out: &mut Vec<Intent>,
    ) {
        if now.elapsed_ms >= op.deadline_ms {
            return self.end_unanswered(&op, out);
        }
        op.own.leave_round();
        let config = self.configs.get(&op.partition).cloned();
        let round = config.and_then(|config| Some((config, self.tick_clock(now, out)?)));
        let Some((config, round)) = round else {
            if self.full.is_here && !op.own.may_be_stored() {
                return Self::answer(&mut op, Outcome::OutOfSpace, out);
            }
            let left = op.deadline_ms - now.elapsed_ms;
            return self.rest(now, op, left);
        };
        op.round = round;
        op.own.step = self.first_step(&mut op, &config);
        op.config = Some(config);
        self.ask_or_end(now, op, out);
    }

    /// Asks replicas, unless those within reach are too few.
    fn ask_or_end(&mut self, now: Now, mut op: Box<EventualOp>, out: &mut Vec<Intent>) {
        if self.lacks_replicas(&op)
            && !(op.own.may_be_stored() && self.may_wait_in_doubt(op.id, []))
        {
            return self.end_unanswered(&op, out);
        }
        self.ask(&mut op, out);
        let pause = self.resend_ms(&op);
        self.rest(now, op, pause);
    }

    fn lacks_replicas(&self, op: &EventualOp) -> bool {
        let lost = &self.out_of_reach.lost;
        let Some(config) = op.config.as_ref().filter(|_| !lost.is_empty()) else {
            return false;
        };
        let lost = config.members_where(|node| lost.contains(&node));
        match &op.own.step {
            // It waits for a while, and then does with a majority.
            Step::Reading { .. } if is_reconcile(op) => false,
            Step::Reading { read, .. } => !read.can_spare(lost),
            Step::Writing { write, .. } => !write.can_spare(lost),
            Step::Waiting | Step::HandingOver => false,
        }
    }

    pub(super) fn first_step(&self, op: &mut EventualOp, config: &Arc<Config>) -> Step {
        if op.request == (Request::Reconcile { rewrite: true }) {
            op.own.closes = self.ballot_at(config, op.time);
        } else if op.own.closes > Ballot::default() {
            // It may be from an earlier epoch.
            op.own.closes = self.ballot_at(config, op.own.closes.time);
        }
        let config = Arc::clone(config);
        let reading = |quorum| Step::Reading {
            read: EventualRead::new(Arc::clone(&config), quorum, self.mutations),
            mute: Vec::new(),
        };
        match &op.request {
            Request::Get if op.own.closes > Ballot::default() => Step::Reading {
                read: EventualRead::of_both(config, op.own.quorum, self.mutations),
                mute: Vec::new(),
            },
            Request::Get => reading(op.own.quorum),
            Request::Delete { .. } if asks_first(op) => reading(op.own.quorum),
            Request::Reconcile { .. } => Step::Reading {
                read: EventualRead::of_both(config, Quorum::All, self.mutations),
                mute: Vec::new(),
            },
            Request::HandOver(_) => Step::HandingOver,
            Request::Put { .. } | Request::Delete { .. } => {
                let state = op.request.blind().unwrap_or(State::Tombstone);
                if self.mutations.has(Mutation::EventualReissue) {
                    op.own.record = None;
                }
                let record = op.own.record.get_or_insert_with(|| Record {
                    namespace: op.at.namespace,
                    digest: op.at.digest,
                    key: op.at.key.clone(),
                    origin: None,
                    ballot: Ballot {
                        epoch: config.epoch,
                        time: op.round,
                        slot: self.slot,
                    },
                    state,
                });
                let tag = Tag {
                    op: op.id,
                    round: op.round,
                };
                Step::Writing {
                    write: EventualWrite::new(
                        config,
                        tag,
                        record.clone(),
                        op.own.quorum,
                        self.mutations,
                    ),
                    in_doubt: Votes::NONE,
                }
            }
        }
    }

    /// Asks the replicas that have not answered in this round.
    pub(super) fn ask(&self, op: &mut EventualOp, out: &mut Vec<Intent>) {
        let Some(config) = op.config.clone() else {
            return;
        };
        let tag = Tag {
            op: op.id,
            round: op.round,
        };
        match (&mut op.own.step, &op.request) {
            (Step::Writing { write, in_doubt }, _) => {
                for (to, envelope) in write.sends() {
                    if let Some(index) = config.index(to) {
                        // The replica's next answer may be to this message, and prove nothing about
                        // the earlier one.
                        op.own.maybe_stored |= in_doubt.contains(index);
                        in_doubt.insert(index);
                    }
                    out.push(Intent::Send { to, envelope });
                }
            }
            (Step::Reading { read, .. }, request) => {
                let closes = op.own.closes;
                let one = *request == Request::Get && op.own.quorum == Quorum::One;
                let all: Vec<_> = read.missing().collect();
                let near = all.iter().find(|node| Some(**node) == self.options.near);
                let first = near.or(all.first()).copied();
                // If one answer is enough, asks one replica first.
                let to = match first {
                    Some(first) if one && op.own.resends == 0 => vec![first],
                    _ => all,
                };
                for to in to {
                    let message = Message::Read {
                        tag,
                        at: op.at.clone(),
                        want_value: true,
                        closes,
                    };
                    let envelope = envelope(&config, message);
                    out.push(Intent::Send { to, envelope });
                }
            }
            (Step::HandingOver, Request::HandOver(hint)) => {
                let record = hint.record.clone();
                let envelope = envelope(&config, Message::Store { tag, record });
                out.push(Intent::Send {
                    to: hint.to,
                    envelope,
                });
            }
            (Step::Waiting | Step::HandingOver, _) => {}
        }
    }

    pub(in super::super) fn on_eventual_wake(
        &mut self,
        now: Now,
        mut op: Box<EventualOp>,
        out: &mut Vec<Intent>,
    ) {
        if op.own.is_answered {
            return self.end(&op, out);
        }
        if now.elapsed_ms >= op.deadline_ms {
            return self.end_unanswered(&op, out);
        }
        let waited_ms = now.elapsed_ms.saturating_sub(op.round_began_ms);
        if is_reconcile(&op) && waited_ms >= self.options.eventual.reconcile_ms {
            return self.bring_together(&mut op, out);
        }
        op.own.resends += 1;
        self.ask_or_end(now, op, out);
    }

    fn resend_ms(&self, op: &EventualOp) -> u64 {
        self.options.eventual.resend_ms << op.own.resends.min(4)
    }
}
