//! Attempts, rounds, pauses and ends of operations.

use std::sync::Arc;

use torc_record::{Ballot, Epoch, HybridTime};
use torc_ring::Partition;

use super::tally::Tally;
use super::{Coordinator, Intent, Op, Outcome, Phase, Request};
use crate::{Config, Envelope, Message, Now, OpId, Tag, Votes};

impl Coordinator {
    /// Begins another attempt, or waits for what it needs.
    pub(super) fn attempt(&mut self, now: Now, mut op: Box<Op>, out: &mut Vec<Intent>) {
        if now.elapsed_ms >= op.deadline_ms || self.is_hopeless(now, &op) {
            return Self::give_up(&op, out);
        }
        let Some(config) = self.configs.get(&op.partition).cloned() else {
            out.push(Intent::NeedTopology {
                partition: op.partition,
                epoch: Epoch(0),
            });
            return self.wait(now, op, self.options.round_ms);
        };
        let Some(round) = self.tick_clock(now, out) else {
            return self.wait(now, op, self.options.round_ms);
        };
        op.attempts += 1;
        op.round = round;
        op.round_began_ms = now.elapsed_ms;
        op.tally = Tally::default();
        op.plan = None;
        op.config = Some(config.clone());
        op.silent = config.not_counting(self.mutations);
        op.few = Votes::NONE;
        op.asked = Votes::NONE;
        if !op.slow && !op.request.is_write() {
            self.read(now, op, &config, out);
        } else {
            self.write(now, op, &config, out);
        }
    }

    /// Whether somebody else had better be asked, as long as nothing was sent that may be accepted: nobody has
    /// answered for a while, or this node's clock is so far ahead that nobody will.
    fn is_hopeless(&self, now: Now, op: &Op) -> bool {
        if !op.mine.is_empty() || Self::is_settle(op) {
            return false;
        }
        let silent = op.attempts >= self.options.tries && op.tally.is_empty();
        silent || op.request.is_write() && self.clock.is_ahead(now)
    }

    /// A clock reading, and a word to the disk in time for the next.
    pub(super) fn tick_clock(&mut self, now: Now, out: &mut Vec<Intent>) -> Option<HybridTime> {
        if let Some(ceiling) = self.clock.to_reserve(now) {
            out.push(Intent::Reserve(ceiling));
        }
        self.clock.tick(now)
    }

    /// Sends one message to each of these members, built from its index.
    pub(super) fn broadcast(
        op: &Op,
        config: &Arc<Config>,
        to: Votes,
        out: &mut Vec<Intent>,
        message: impl Fn(usize, Tag) -> Message,
    ) {
        let tag = Tag {
            op: op.id,
            round: op.round,
        };
        for index in to.without(op.silent).iter() {
            let Some(member) = config.members.get(index) else {
                continue;
            };
            out.push(Intent::Send {
                to: member.node,
                envelope: Envelope {
                    partition: op.partition,
                    epoch: config.epoch,
                    message: message(index, tag),
                },
            });
        }
    }

    /// The round cannot succeed any more, or took too long.
    pub(super) fn fail_round(&mut self, now: Now, op: Box<Op>, out: &mut Vec<Intent>) {
        if now.elapsed_ms >= op.deadline_ms {
            return Self::give_up(&op, out);
        }
        let pause = self.pause_ms(&op);
        self.wait(now, op, pause);
    }

    pub(super) fn on_refused(&mut self, now: Now, op: Box<Op>, out: &mut Vec<Intent>) {
        let Some(config) = &op.config else {
            return self.put_back(op);
        };
        let heard = op.tally.answered.union(op.tally.refused);
        if op.phase == Phase::Reading && Self::asked_few(&op, config) && heard.covers(op.few) {
            let config = Arc::clone(config);
            return self.widen(now, op, &config, false, out);
        }
        let possible = config.acceptors().without(op.tally.refused);
        let hopeful = match op.phase {
            Phase::Waiting => true,
            Phase::Reading | Phase::Preparing => config.may_read(possible, self.mutations),
            Phase::Accepting { .. } => config.may_accept(possible, self.mutations),
        };
        if hopeful {
            self.put_back(op);
        } else if self.presses_on(&op) {
            self.press_on(now, op, out);
        } else {
            self.fail_round(now, op, out);
        }
    }

    pub(super) fn on_wake(&mut self, now: Now, mut op: Box<Op>, out: &mut Vec<Intent>) {
        if now.elapsed_ms >= op.deadline_ms {
            return Self::give_up(&op, out);
        }
        match op.phase {
            Phase::Reading => self.on_read_late(now, op, out),
            Phase::Accepting { resent: false } => {
                op.phase = Phase::Accepting { resent: true };
                self.resend(now, op, out);
            }
            Phase::Waiting | Phase::Preparing | Phase::Accepting { resent: true } => {
                self.attempt(now, op, out);
            }
        }
    }

    /// The deadline is over. If the wish may have been accepted, nobody can tell (R7).
    fn give_up(op: &Op, out: &mut Vec<Intent>) {
        let outcome = if op.mine.is_empty() {
            Outcome::Unavailable
        } else {
            Outcome::Unknown
        };
        Self::finish(op, outcome, out);
    }

    pub(super) fn finish(op: &Op, outcome: Outcome, out: &mut Vec<Intent>) {
        out.push(Intent::Done { op: op.id, outcome });
    }

    /// Keeps the operation until an answer or its wake-up, whichever is first.
    pub(super) fn put_back(&mut self, op: Box<Op>) {
        self.wakes.insert((op.wake_ms, op.id));
        self.ops.insert(op.id, op);
    }

    pub(super) fn sleep(&mut self, now: Now, mut op: Box<Op>, ms: u64) {
        let wake_ms = now.elapsed_ms.saturating_add(ms.max(1));
        op.wake_ms = wake_ms.min(op.deadline_ms);
        self.put_back(op);
    }

    fn wait(&mut self, now: Now, mut op: Box<Op>, ms: u64) {
        op.phase = Phase::Waiting;
        self.sleep(now, op, ms);
    }

    pub(super) fn take_op(&mut self, tag: Tag) -> Option<Box<Op>> {
        let op = self.ops.get(&tag.op)?;
        if op.round != tag.round || op.phase == Phase::Waiting {
            return None;
        }
        self.remove(tag.op)
    }

    fn remove(&mut self, id: OpId) -> Option<Box<Op>> {
        let op = self.ops.remove(&id)?;
        self.wakes.remove(&(op.wake_ms, id));
        Some(op)
    }

    /// Lets those go on that wait for a topology or the clock.
    pub(super) fn wake_waiting(
        &mut self,
        now: Now,
        partition: Option<Partition>,
        out: &mut Vec<Intent>,
    ) {
        let concerns = |op: &Op| {
            op.phase == Phase::Waiting
                && partition.is_none_or(|partition| op.partition == partition)
        };
        let waiting: Vec<_> = self
            .ops
            .values()
            .filter(|op| concerns(op))
            .map(|op| op.id)
            .collect();
        for id in waiting {
            if let Some(op) = self.remove(id) {
                self.attempt(now, op, out);
            }
        }
    }

    pub(super) fn note_epoch(&self, envelope: &Envelope, out: &mut Vec<Intent>) {
        let known = self.configs.get(&envelope.partition);
        if known.is_none_or(|known| known.epoch < envelope.epoch) {
            out.push(Intent::NeedTopology {
                partition: envelope.partition,
                epoch: envelope.epoch,
            });
        }
    }

    /// How long a round may take: some times as long as rounds take of late, and twice as
    /// long with every attempt. Where answers are late because there is much to do, asking
    /// anew for what is on its way only adds to it, until nothing but late answers is left.
    pub(super) fn round_ms(&self, op: &Op) -> u64 {
        let shortest = self.options.round_ms;
        let usual = self.round_ms_x8 / 8 * 3;
        usual.clamp(shortest, 8 * shortest) << op.attempts.saturating_sub(1).min(5)
    }

    /// A round has got enough answers: a moving average over about eight of them.
    pub(super) fn note_round(&mut self, now: Now, op: &Op) {
        let took_ms = now.elapsed_ms.saturating_sub(op.round_began_ms);
        self.round_ms_x8 = self.round_ms_x8 - self.round_ms_x8 / 8 + took_ms;
    }

    /// Doubles with every attempt, and differs between operations that refuse each other.
    fn pause_ms(&self, op: &Op) -> u64 {
        let longest = self.options.pause_ms << op.attempts.saturating_sub(1).min(5);
        let spread = op.round.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 ^ u64::from(self.slot.0);
        longest / 2 + spread % longest.max(1)
    }

    pub(super) fn ballot_at(&self, config: &Config, time: HybridTime) -> Ballot {
        Ballot {
            epoch: config.epoch,
            time,
            slot: self.slot,
        }
    }

    pub(super) fn is_settle(op: &Op) -> bool {
        matches!(op.request, Request::Settle { .. })
    }
}
