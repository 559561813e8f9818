//! Asking replicas, by the newest configuration.

use std::sync::Arc;

use torc_record::{Ballot, HybridTime, Record};

use super::super::{EventualRead, EventualWrite, Quorum, envelope};
use super::{EventualCoordinator, EventualIntent, EventualRequest, Op, Step};
use crate::{Config, Message, Now, Tag, Votes};

impl EventualCoordinator {
    /// Asks everybody by the newest configuration, or waits for what that needs.
    pub(super) fn begin_round(&mut self, now: Now, mut op: Box<Op>, out: &mut Vec<EventualIntent>) {
        if now.elapsed_ms >= op.deadline_ms {
            return self.give_up(&op, out);
        }
        op.leave_round();
        let config = self.configs.get(&op.partition).cloned();
        let round = config.and_then(|config| Some((config, self.tick_clock(now, out)?)));
        let Some((config, round)) = round else {
            let left = op.deadline_ms - now.elapsed_ms;
            return self.sleep(now, op, left);
        };
        op.round = round;
        op.step = self.first_step(&mut op, &config);
        op.config = Some(config);
        self.send(&mut op, out);
        let pause = self.pause_ms(&op);
        self.sleep(now, op, pause);
    }

    pub(super) fn first_step(&self, op: &mut Op, config: &Arc<Config>) -> Step {
        let config = Arc::clone(config);
        let reading = |quorum| Step::Reading {
            read: EventualRead::new(Arc::clone(&config), quorum),
            mute: Vec::new(),
        };
        match &op.request {
            EventualRequest::Read { quorum } => reading(*quorum),
            EventualRequest::Settle => reading(Quorum::All),
            EventualRequest::HandOver(_) => Step::HandingOver,
            EventualRequest::Write { state, quorum } => {
                let record = op.record.get_or_insert_with(|| Record {
                    namespace: op.at.namespace,
                    digest: op.at.digest,
                    key: op.at.key.clone(),
                    origin: None,
                    ballot: Ballot {
                        epoch: config.epoch,
                        time: op.round,
                        slot: self.slot,
                    },
                    state: state.clone(),
                });
                let tag = Tag {
                    op: op.id,
                    round: op.round,
                };
                Step::Writing {
                    write: EventualWrite::new(config, tag, record.clone(), *quorum),
                    in_doubt: Votes::NONE,
                }
            }
        }
    }

    /// Asks those who have not answered in this round.
    pub(super) fn send(&self, op: &mut Op, out: &mut Vec<EventualIntent>) {
        let Some(config) = op.config.clone() else {
            return;
        };
        let tag = Tag {
            op: op.id,
            round: op.round,
        };
        match (&mut op.step, &op.request) {
            (Step::Writing { write, in_doubt }, _) => {
                for (to, envelope) in write.sends() {
                    if let Some(index) = config.index(to) {
                        in_doubt.insert(index);
                    }
                    out.push(EventualIntent::Send { to, envelope });
                }
            }
            (Step::Reading { read, .. }, request) => {
                let one = *request
                    == EventualRequest::Read {
                        quorum: Quorum::One,
                    };
                let all: Vec<_> = read.missing().collect();
                let near = all.iter().find(|node| Some(**node) == self.options.near);
                let first = near.or(all.first()).copied();
                // One replica is asked at first where one is enough.
                let to = match first {
                    Some(first) if one && op.resends == 0 => vec![first],
                    _ => all,
                };
                for to in to {
                    let message = Message::Read {
                        tag,
                        at: op.at.clone(),
                        want_value: true,
                    };
                    let envelope = envelope(&config, message);
                    out.push(EventualIntent::Send { to, envelope });
                }
            }
            (Step::HandingOver, EventualRequest::HandOver(hint)) => {
                let record = hint.record.clone();
                let envelope = envelope(&config, Message::Store { tag, record });
                out.push(EventualIntent::Send {
                    to: hint.to,
                    envelope,
                });
            }
            (Step::Waiting | Step::HandingOver, _) => {}
        }
    }

    pub(super) fn on_wake(&mut self, now: Now, mut op: Box<Op>, out: &mut Vec<EventualIntent>) {
        if op.is_answered {
            return self.end(&op, out);
        }
        if now.elapsed_ms >= op.deadline_ms {
            return self.give_up(&op, out);
        }
        let waited_ms = now.elapsed_ms.saturating_sub(op.began_ms);
        if op.request == EventualRequest::Settle && waited_ms >= self.options.settle_ms {
            return self.settle(&mut op, out);
        }
        op.resends += 1;
        self.send(&mut op, out);
        let pause = self.pause_ms(&op);
        self.sleep(now, op, pause);
    }

    pub(super) fn pause_ms(&self, op: &Op) -> u64 {
        self.options.resend_ms << op.resends.min(4)
    }

    pub(super) fn tick_clock(
        &mut self,
        now: Now,
        out: &mut Vec<EventualIntent>,
    ) -> Option<HybridTime> {
        if let Some(ceiling) = self.clock.to_reserve(now) {
            out.push(EventualIntent::Reserve(ceiling));
        }
        self.clock.tick(now)
    }
}
