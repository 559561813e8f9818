//! The flow of operations: attempts, rounds, pauses, turns and ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use torc_record::{Ballot, Epoch, HybridTime};
use torc_ring::Partition;

use super::line::Sharing;
use super::table::Pending;
use super::tally::Tally;
use super::{Coordinator, Intent, Op, Outcome, Phase, RegisterOp, Request};
use crate::{Config, Envelope, Message, Mutation, Now, OpId, Tag, Votes};

impl Coordinator {
    /// Starts another attempt, or waits until that is possible.
    pub(super) fn attempt(&mut self, now: Now, mut op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        if matches!(op.request, Request::HandOver(_)) {
            return self.finish(&op, Outcome::Refused, out);
        }
        if self.is_over(now, &mut op, out) || self.is_hopeless(now, &op) {
            return self.give_up(&op, out);
        }
        let Some(config) = self.configs.get(&op.partition).cloned() else {
            out.push(Intent::NeedTopology {
                partition: op.partition,
                epoch: Epoch(0),
            });
            return self.wait(now, op, self.options.round_ms);
        };
        if self.lacks_quorum(&op, &config) && !self.waits_in_doubt(&op) {
            return self.give_up(&op, out);
        }
        let writes = op.own.slow || op.request.is_write();
        if writes && !op.own.holds {
            let sharing = if op.request.blind().is_some() {
                Sharing::Blind
            } else {
                Sharing::Alone
            };
            op.own.holds = self.lines.enter(&op.at, op.id, sharing);
            if !op.own.holds && self.mutations.has(Mutation::NobodyWaits) {
                self.lines.leave(&op.at, op.id);
            } else if !op.own.holds {
                return self.stand_in_line(op);
            }
        }
        let Some(round) = self.begin_round_of(now, &mut op, &config, out) else {
            return self.await_clock(now, op, out);
        };
        op.attempts += 1;
        op.round = round;
        op.round_began_ms = now.elapsed_ms;
        op.own.tally = Tally::default();
        op.own.plan = None;
        op.own.silent = config.not_counting(self.mutations);
        op.own.asked = Votes::NONE;
        op.own.asked_value = Votes::NONE;
        op.config = Some(config.clone());
        if writes {
            self.write(now, op, &config, out);
        } else {
            self.read(now, op, &config, out);
        }
    }

    /// Whether another coordinator would do better, as long as nothing was sent that may be
    /// accepted: no replica has answered for a while, or this node's clock is so far ahead that
    /// none will.
    fn is_hopeless(&self, now: Now, op: &RegisterOp) -> bool {
        if !op.own.mine.is_empty() || Self::is_reconcile(op) {
            return false;
        }
        let silent = op.attempts >= super::MOST_TRIES && op.own.tally.is_empty();
        silent || op.request.is_write() && self.clock.is_ahead(now)
    }

    /// Whether no quorum is reachable.
    fn lacks_quorum(&self, op: &RegisterOp, config: &Config) -> bool {
        let out = &self.out_of_reach.lost;
        if out.is_empty() {
            return false;
        }
        let lost = config.members_where(|node| out.contains(&node));
        let here = config.acceptors().union(config.readers()).without(lost);
        let may_read = config.may_read(here, self.mutations);
        !may_read || op.request.is_write() && !config.may_accept(here, self.mutations)
    }

    /// Whether an operation may wait without a quorum: only one that may have been accepted.
    fn waits_in_doubt(&mut self, op: &RegisterOp) -> bool {
        let sharers = op.own.sharers.iter().map(|(id, _)| *id);
        if op.own.mine.is_empty() || !self.may_wait_in_doubt(op.id, sharers) {
            return false;
        }
        // Writes that wait for the key end at once: nothing was sent for them.
        let table = &self.table;
        let is_write = |id: &OpId| matches!(table.get(*id), Some(Pending::Register(it)) if it.request.is_write());
        let waiting = self.lines.waiting(&op.at).filter(is_write);
        self.turns.extend(waiting);
        true
    }

    /// Whether an operation that may take effect, and those that share its round, may wait without a quorum until
    /// their deadlines: a node that stalls or restarts soon returns and resolves the doubt. But only a few may,
    /// because operations that have a quorum need the places.
    pub(super) fn may_wait_in_doubt(
        &mut self,
        id: OpId,
        sharers: impl IntoIterator<Item = OpId>,
    ) -> bool {
        let mut ids: BTreeSet<_> = sharers.into_iter().collect();
        ids.insert(id);
        let (table, doubtful) = (&self.table, &mut self.doubtful);
        ids.retain(|id| !doubtful.contains(id));
        let most = self.options.doubtful;
        if doubtful.len() + ids.len() > most {
            doubtful.retain(|it| *it == id || table.get(*it).is_some());
        }
        let may = doubtful.len() + ids.len() <= most;
        if may {
            doubtful.append(&mut ids);
        }
        may
    }

    /// Waits for its turn, at most until its deadline.
    fn stand_in_line(&mut self, mut op: Box<RegisterOp>) {
        op.own.phase = Phase::InLine;
        op.wake_ms = op.deadline_ms;
        self.put_back(op);
    }

    /// Called when the operation ends or leaves the line: gives the next one its turn.
    pub(super) fn leave_line(&mut self, op: &RegisterOp) {
        if !op.own.holds && op.own.phase != Phase::InLine {
            return;
        }
        let mut next = self.lines.leave(&op.at, op.id);
        if self.mutations.has(Mutation::FirstSharerWins) {
            self.lines.first_holds(&op.at, &mut next);
        }
        let Some(holder) = next.holder else {
            return;
        };
        let mut sharers = Vec::with_capacity(next.sharers.len());
        for id in next.sharers {
            if let Some(Pending::Register(mut sharer)) = self.table.take(id) {
                sharer.own.phase = Phase::Sharing;
                self.put_back(sharer);
                sharers.push((id, Ballot::default()));
            }
        }
        if let Some(Pending::Register(mut op)) = self.table.take(holder) {
            op.own.holds = true;
            op.own.sharers = sharers;
            self.put_back(op);
        }
        self.turns.push_back(holder);
    }

    /// Continues operations whose turn has come.
    pub(super) fn take_turns(&mut self, now: Now, out: &mut Vec<Intent>) {
        while let Some(id) = self.turns.pop_front() {
            if let Some(Pending::Register(op)) = self.table.take(id) {
                self.attempt(now, op, out);
            }
        }
    }

    /// The clock reading of a round. Operations that share the round get their readings first,
    /// because their versions are older.
    fn begin_round_of(
        &mut self,
        now: Now,
        op: &mut RegisterOp,
        config: &Config,
        out: &mut Vec<Intent>,
    ) -> Option<HybridTime> {
        let unnamed = |(_, version): &&mut (OpId, Ballot)| *version == Ballot::default();
        for (_, version) in op.own.sharers.iter_mut().filter(unnamed) {
            let time = self.tick_clock(now, out)?;
            *version = self.ballot_at(config, time);
        }
        self.tick_clock(now, out)
    }

    /// Takes a clock reading, and reserves further ones early enough.
    pub(super) fn tick_clock(&mut self, now: Now, out: &mut Vec<Intent>) -> Option<HybridTime> {
        if let Some(ceiling) = self.clock.to_reserve(now) {
            out.push(Intent::Reserve(ceiling));
        }
        self.clock.tick(now)
    }

    /// Sends one message to each of these members, built from its index.
    pub(super) fn broadcast(
        op: &RegisterOp,
        config: &Arc<Config>,
        to: Votes,
        out: &mut Vec<Intent>,
        message: impl Fn(usize, Tag) -> Message,
    ) {
        let tag = Tag {
            op: op.id,
            round: op.round,
        };
        for index in to.without(op.own.silent).iter() {
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

    /// The round can no longer succeed, or took too long.
    pub(super) fn fail_round(&mut self, now: Now, mut op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        if self.is_over(now, &mut op, out) {
            return self.give_up(&op, out);
        }
        let pause = self.pause_ms(&op);
        self.wait(now, op, pause);
    }

    pub(super) fn on_refused(&mut self, now: Now, mut op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        let Some(config) = op.config.clone() else {
            return self.put_back(op);
        };
        let heard = op.own.tally.answered.union(op.own.tally.refused);
        if op.own.phase == Phase::Reading
            && Self::asked_minimal(&op, &config)
            && heard.covers(op.own.asked)
        {
            return self.widen(now, op, &config, false, out);
        }
        if self.mutations.has(Mutation::BlindRefusedIsClean) && op.request.blind().is_some() {
            op.own.mine.clear();
        }
        let possible = config.acceptors().without(op.own.tally.refused);
        let hopeful = match op.own.phase {
            Phase::Waiting | Phase::InLine | Phase::Sharing => true,
            Phase::Reading | Phase::Preparing => config.may_read(possible, self.mutations),
            Phase::Accepting { .. } => config.may_accept(possible, self.mutations),
        };
        if hopeful {
            self.put_back(op);
        } else if self.presses_on(&op) {
            self.press_on(now, op, out);
        } else if !op.own.may_take_effect()
            && op.own.phase == Phase::Preparing
            && self.lacks_space(&config)
        {
            self.give_up(&op, out);
        } else {
            self.fail_round(now, op, out);
        }
    }

    pub(super) fn on_wake(&mut self, now: Now, mut op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        if self.is_over(now, &mut op, out) {
            return self.give_up(&op, out);
        }
        match op.own.phase {
            Phase::Reading => self.on_read_late(now, op, out),
            Phase::Accepting { resent: false } => {
                op.own.phase = Phase::Accepting { resent: true };
                self.resend(now, op, out);
            }
            Phase::Waiting | Phase::Preparing | Phase::Accepting { resent: true } => {
                self.attempt(now, op, out);
            }
            Phase::InLine | Phase::Sharing => self.put_back(op),
        }
    }

    /// Whether the operation must end because its deadline has passed. If others that share its
    /// round have more time, only its caller is answered: the round goes on until their deadlines,
    /// so the outcome is unknown.
    fn is_over(&self, now: Now, op: &mut RegisterOp, out: &mut Vec<Intent>) -> bool {
        if now.elapsed_ms < op.deadline_ms {
            return false;
        }
        let deadline = |(id, _): &(OpId, Ballot)| match self.table.get(*id) {
            Some(Pending::Register(sharer)) if sharer.own.phase == Phase::Sharing => {
                Some(sharer.deadline_ms)
            }
            _ => None,
        };
        let latest = op.own.sharers.iter().filter_map(deadline).max();
        let Some(latest) = latest.filter(|latest| now.elapsed_ms < *latest) else {
            return true;
        };
        op.deadline_ms = latest;
        if !op.own.abandoned {
            op.own.abandoned = true;
            let outcome = Outcome::Unknown;
            out.push(Intent::Done { op: op.id, outcome });
        }
        false
    }

    /// The deadline has passed, or success is impossible. If the write may have been accepted, the
    /// outcome is unknown (R7).
    fn give_up(&mut self, op: &RegisterOp, out: &mut Vec<Intent>) {
        let forgets = self.mutations.has(Mutation::UnknownIsUnavailable);
        let outcome = if op.own.overtaken_by.is_some() && !forgets {
            Outcome::Overtaken
        } else if op.own.may_take_effect() && !forgets {
            Outcome::Unknown
        } else {
            self.unavailable(op)
        };
        self.finish(op, outcome, out);
    }

    /// Answers the operation, and those that shared its round.
    pub(super) fn finish(&mut self, op: &RegisterOp, outcome: Outcome, out: &mut Vec<Intent>) {
        for (id, version) in &op.own.sharers {
            let is_sharing = matches!(self.table.get(*id),
                Some(Pending::Register(sharer)) if sharer.own.phase == Phase::Sharing);
            if is_sharing && self.table.take(*id).is_some() {
                let outcome = match &outcome {
                    Outcome::Written { fast, .. } => Outcome::Written {
                        existed: true,
                        version: *version,
                        fast: *fast,
                    },
                    other => other.clone(),
                };
                out.push(Intent::Done { op: *id, outcome });
            }
        }
        if self.mutations.has(Mutation::SharesEarlierRound) && op.request.blind().is_some() {
            for id in self.lines.take_blind(&op.at) {
                self.table.take(id);
                let outcome = outcome.clone();
                out.push(Intent::Done { op: id, outcome });
            }
        }
        self.leave_line(op);
        if !op.own.abandoned {
            out.push(Intent::Done { op: op.id, outcome });
        }
    }

    /// Keeps the operation until an answer or its wake-up.
    pub(super) fn put_back<R>(&mut self, op: Box<Op<R>>)
    where
        Box<Op<R>>: Into<Pending>,
    {
        self.table.put(op);
    }

    pub(super) fn sleep(&mut self, now: Now, mut op: Box<RegisterOp>, ms: u64) {
        let wake_ms = now.elapsed_ms.saturating_add(ms.max(1));
        op.wake_ms = wake_ms.min(op.deadline_ms);
        self.put_back(op);
    }

    pub(super) fn wait(&mut self, now: Now, mut op: Box<RegisterOp>, ms: u64) {
        op.own.phase = Phase::Waiting;
        self.sleep(now, op, ms);
    }

    /// Takes out the operation with this round.
    pub(super) fn take_op(&mut self, tag: Tag) -> Option<Pending> {
        let expects = match self.table.get(tag.op)? {
            Pending::Register(op) => {
                let waits = matches!(
                    op.own.phase,
                    Phase::Waiting | Phase::InLine | Phase::Sharing
                );
                op.round == tag.round && !waits
            }
            Pending::Eventual(op) => op.round == tag.round && op.own.is_asking(),
        };
        expects.then(|| self.table.take(tag.op)).flatten()
    }

    /// Continues operations that wait for a topology or the clock.
    pub(super) fn wake_waiting(
        &mut self,
        now: Now,
        partition: Option<Partition>,
        out: &mut Vec<Intent>,
    ) {
        let concerns = |op: &Pending| match op {
            Pending::Register(op) => {
                let here = partition.is_none_or(|partition| op.partition == partition);
                here && op.own.phase == Phase::Waiting
            }
            Pending::Eventual(op) => match partition {
                Some(partition) => op.partition == partition && !op.own.is_answered,
                None => op.own.is_waiting(),
            },
        };
        let ids: Vec<OpId> = self.table.ids_where(concerns);
        for id in ids {
            match self.table.take(id) {
                Some(Pending::Register(op)) => self.attempt(now, op, out),
                Some(Pending::Eventual(op)) => self.begin_round(now, op, out),
                None => {}
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

    /// The time limit of a round: a multiple of recent rounds, doubled with every attempt, at most
    /// 256 times the shortest. Under overload, asking again for answers that are on their way only
    /// adds load, until all answers are late.
    pub(super) fn round_ms(&self, op: &RegisterOp) -> u64 {
        let shortest = self.options.round_ms;
        let usual = (self.round_ms_x8 / 8 * 3).clamp(shortest, 8 * shortest);
        (usual << op.attempts.saturating_sub(1).min(8)).min(256 * shortest)
    }

    /// Records the time of a successful round, as a moving average over about eight rounds.
    pub(super) fn note_round(&mut self, now: Now, op: &RegisterOp) {
        self.note_round_since(now, op.round_began_ms);
    }

    pub(super) fn note_round_since(&mut self, now: Now, began_ms: u64) {
        let took_ms = now.elapsed_ms.saturating_sub(began_ms);
        self.round_ms_x8 = self.round_ms_x8 - self.round_ms_x8 / 8 + took_ms;
    }

    /// The pause doubles with every attempt, and differs between conflicting operations.
    fn pause_ms(&self, op: &RegisterOp) -> u64 {
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

    pub(super) fn is_reconcile(op: &RegisterOp) -> bool {
        matches!(op.request, Request::Reconcile { .. })
    }
}
