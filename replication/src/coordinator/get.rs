//! R5: the one-round get, and read repair.

use std::sync::Arc;

use torc_record::{Ballot, Record, State};

use super::request::{Current, has_expired};
use super::{Coordinator, Intent, Outcome, Phase, RegisterOp};
use crate::{Config, Content, Held, Message, Mutation, Now, Votes};

impl Coordinator {
    /// Asks a quorum, or all replicas, for their versions, and one of them also for the value: the
    /// nearest one first, then another one in each attempt.
    pub(super) fn read(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        config: &Arc<Config>,
        out: &mut Vec<Intent>,
    ) {
        op.own.phase = Phase::Reading;
        op.own.asked = self.minimal_quorum(now, &op, config);
        let readers = config.readers().without(op.own.silent).iter();
        let readers: Vec<_> = readers
            .filter(|index| op.own.asked.contains(*index))
            .collect();
        let near = self.options.near.and_then(|near| config.index(near));
        let near = readers.iter().position(|index| Some(*index) == near);
        let turn = near.unwrap_or(0) + op.attempts as usize - 1;
        let first = readers.get(turn % readers.len().max(1)).copied();
        op.own.asked_value = first.map_or(Votes::NONE, Votes::one);
        let at = op.at.clone();
        Self::broadcast(&op, config, op.own.asked, out, |index, tag| Message::Read {
            tag,
            at: at.clone(),
            want_value: Some(index) == first,
            closes: Ballot::default(),
        });
        let ms = if Self::asked_minimal(&op, config) {
            self.widen_after_ms()
        } else {
            self.round_ms(&op)
        };
        self.sleep(now, op, ms);
    }

    pub(super) fn on_holding(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        index: usize,
        held: Held,
        out: &mut Vec<Intent>,
    ) {
        op.own.tally.add(index, held);
        let Some(config) = op.config.clone() else {
            return self.put_back(op);
        };
        self.note_in_time(now, &op, &config, index);
        let all = config.acceptors().without(op.own.silent);
        let heard = op.own.tally.answered.union(op.own.tally.refused);
        let (everyone, all_asked) = (heard.covers(all), heard.covers(op.own.asked));
        if !config.may_read(op.own.tally.answered, self.mutations)
            || Self::is_reconcile(&op) && !everyone
        {
            if all_asked && !everyone {
                return self.widen(now, op, &config, false, out);
            }
            return self.put_back(op);
        }
        let (seen, holders) = op.own.tally.highest(&config);
        let proven = config.is_chosen(seen.ballot, holders, self.mutations)
            || self.mutations.has(Mutation::GetWithoutWriteBack);
        if !Self::is_reconcile(&op) {
            self.note_round(now, &op);
        }
        if proven {
            self.on_proven(now, op, &config, (&seen, holders), out);
        } else if everyone {
            self.go_slow(now, op, out);
        } else if all_asked {
            self.widen(now, op, &config, false, out);
        } else {
            self.hurry(now, op);
        }
    }

    fn on_proven(
        &mut self,
        now: Now,
        op: Box<RegisterOp>,
        config: &Arc<Config>,
        (seen, holders): (&Held, Votes),
        out: &mut Vec<Intent>,
    ) {
        let current = Self::current(&op, seen);
        if current.expired && !self.mutations.has(Mutation::ExpiryUnwritten) {
            return self.go_slow(now, op, out);
        }
        let outcome = match &seen.content {
            Content::Value { value: None, .. } if !current.expired => {
                // The replica asked for the value is behind or silent: asks a holder, unless a
                // holder was asked already.
                if holders.without(op.own.asked_value) == holders {
                    return self.ask_value(now, op, config, holders, out);
                }
                return self.hurry(now, op);
            }
            _ if Self::is_reconcile(&op) => Outcome::Reconciled,
            Content::Value {
                value: Some(value),
                expires_at_ms,
            } if !current.expired => Outcome::Found {
                value: value.clone(),
                version: seen.version(),
                expires_at_ms: *expires_at_ms,
                fast: true,
            },
            _ => Outcome::Absent { fast: true },
        };
        Self::repair(&op, config, seen, out);
        self.finish(&op, outcome, out);
    }

    fn ask_value(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        config: &Arc<Config>,
        holders: Votes,
        out: &mut Vec<Intent>,
    ) {
        let holder = holders.iter().next().map_or(Votes::NONE, Votes::one);
        op.own.asked_value = op.own.asked_value.union(holder);
        let at = op.at.clone();
        Self::broadcast(&op, config, holder, out, |_, tag| Message::Read {
            tag,
            at: at.clone(),
            want_value: true,
            closes: Ballot::default(),
        });
        self.hurry(now, op);
    }

    /// Waits for slow replicas, but not for the whole round. A reconciliation waits for the
    /// whole round: it needs all replicas and is not urgent.
    fn hurry(&mut self, now: Now, mut op: Box<RegisterOp>) {
        if !Self::is_reconcile(&op) {
            let soon_ms = now.elapsed_ms.saturating_add(self.widen_after_ms());
            let is_over = op.wake_ms <= now.elapsed_ms;
            op.wake_ms = if is_over { op.deadline_ms } else { op.wake_ms }.min(soon_ms);
        }
        self.put_back(op);
    }

    /// Sends the proven version to replicas that answered with an older one (R8).
    fn repair(op: &RegisterOp, config: &Arc<Config>, seen: &Held, out: &mut Vec<Intent>) {
        let state = match &seen.content {
            Content::Absent => return,
            content => content.to_state(),
        };
        let Some(state) = state else {
            return;
        };
        let record = Record {
            namespace: op.at.namespace,
            digest: op.at.digest,
            key: op.at.key.clone(),
            ballot: seen.ballot,
            origin: seen.origin,
            state,
        };
        let behind = op.own.tally.behind(seen.ballot);
        let behind = behind.fold(Votes::NONE, |votes, index| votes.union(Votes::one(index)));
        Self::broadcast(op, config, behind, out, |_, _| Message::Learn {
            record: record.clone(),
        });
    }

    /// The time of the round or of the hedge has passed. Asks another holder for the value or, with
    /// a read quorum, falls back to two rounds.
    pub(super) fn on_read_late(&mut self, now: Now, op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        let Some(config) = op.config.clone() else {
            return self.attempt(now, op, out);
        };
        if Self::asked_minimal(&op, &config) {
            return self.widen(now, op, &config, true, out);
        }
        let enough = config.may_read(op.own.tally.answered, self.mutations);
        let (seen, holders) = op.own.tally.highest(&config);
        let proven = enough && config.is_chosen(seen.ballot, holders, self.mutations);
        let lacks_value = matches!(seen.content, Content::Value { value: None, .. });
        let others = holders.without(op.own.asked_value);
        if proven && Self::is_reconcile(&op) && !lacks_value {
            self.on_proven(now, op, &config, (&seen, holders), out);
        } else if proven && lacks_value && !Self::is_reconcile(&op) && !others.is_empty() {
            self.ask_value(now, op, &config, others, out);
        } else if enough {
            self.go_slow(now, op, out);
        } else {
            self.attempt(now, op, out);
        }
    }

    fn go_slow(&mut self, now: Now, mut op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        op.own.slow = true;
        self.attempt(now, op, out);
    }

    /// The answers as input of the operation's rule. A value is expired if it had
    /// expired at the operation's time, or by the time of a started collection.
    pub(super) fn current(op: &RegisterOp, seen: &Held) -> Current {
        let state = match &seen.content {
            Content::Absent => None,
            content => content.to_state(),
        };
        let time = op.time.max(seen.collecting.time);
        let expires_at_ms = match &seen.content {
            Content::Value { expires_at_ms, .. } => *expires_at_ms,
            Content::Absent | Content::Tombstone => None,
        };
        Current {
            version: seen.version(),
            expired: has_expired(expires_at_ms, time),
            state: state.filter(|state| *state != State::Tombstone),
            merging: op.config.as_ref().is_some_and(|config| config.merging),
        }
    }
}
