//! Starts operations, one or many at a time, and delivers their outcomes to the callers.

#![expect(clippy::cast_possible_truncation, reason = "WINDOW is small")]

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use torc_proto::TraceContext;
use torc_replication::{Locator, OpId, Operation, Outcome, Request, Rules};
use torc_ring::Partition;

use super::turn::{Outbox, Turn};
use super::{Mailbox, Registers, Told, WINDOW};
use torc_limits::budget::{LongValues, SMALL};

/// An operation on a key, as its caller requests it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The partition of its key.
    pub partition: Partition,
    /// Its key.
    pub at: Locator,
    /// The mode of its namespace.
    pub rules: Rules,
    /// What to do.
    pub request: Request,
    /// When it ends at the latest.
    pub deadline: Instant,
    /// The caller's span, if it is traced.
    pub trace: Option<TraceContext>,
}

/// Operations under way. Dropping this abandons those without an outcome.
pub struct Begun {
    registers: Arc<Registers>,
    /// By number: the operation's shard and its id there; `None` once it is answered.
    ops: Vec<Option<(usize, OpId)>>,
}

impl Begun {
    /// No operations yet.
    pub const fn new(registers: Arc<Registers>) -> Self {
        Self {
            registers,
            ops: Vec::new(),
        }
    }

    /// Starts operations with one visit to each shard. Each outcome is delivered to `mailbox` with
    /// the number given here. The caller bounds the number of operations under way.
    pub fn start(
        &mut self,
        mailbox: &Arc<Mailbox>,
        wanted: impl IntoIterator<Item = (u32, Wanted)>,
    ) {
        let registers = Arc::clone(&self.registers);
        let wanted = registers.answer_alone(mailbox, wanted);
        let shards = registers.by_shard(wanted, |(_, wanted)| wanted.partition);
        let mut outbox = Outbox::of_thread();
        for (shard, wanted) in shards.into_iter().enumerate() {
            if wanted.is_empty() {
                continue;
            }
            let mut traced = Vec::new();
            let operation = |(number, wanted): (u32, Wanted)| {
                if let Some(trace) = wanted.trace {
                    traced.push((number, trace));
                }
                let operation = Operation {
                    partition: wanted.partition,
                    at: wanted.at,
                    rules: wanted.rules,
                    request: wanted.request,
                    deadline_ms: registers.elapsed_ms(wanted.deadline),
                };
                (number, operation)
            };
            let operations = wanted.into_iter().map(operation).collect();
            let mut turn = Turn::with(&registers, shard, outbox);
            turn.start(mailbox, operations, &traced, |number, op| {
                let number = number as usize;
                if self.ops.len() <= number {
                    self.ops.resize(number + 1, None);
                }
                self.ops[number] = Some((shard, op));
            });
            outbox = turn.close();
        }
        outbox.send(&registers.links);
    }

    /// Abandons an operation and frees its number. Returns `false` if it already has an outcome, which is delivered.
    pub fn abandon(&mut self, number: u32) -> bool {
        let Some((shard, op)) = self.ops.get(number as usize).copied().flatten() else {
            return false;
        };
        let mut turn = Turn::of(&self.registers, shard);
        let is_abandoned = turn.abandon(op);
        turn.end();
        if is_abandoned {
            self.answered(number);
        }
        is_abandoned
    }

    /// Frees the number of an operation that was answered.
    pub fn answered(&mut self, number: u32) {
        if let Some(op) = self.ops.get_mut(number as usize) {
            *op = None;
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut left: Vec<_> = self.ops.iter().flatten().copied().collect();
        left.sort_unstable();
        for ops in left.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((shard, _)) = ops.first() else {
                continue;
            };
            let mut turn = Turn::of(&self.registers, *shard);
            for (_, op) in ops {
                turn.abandon(*op);
            }
            turn.end();
        }
    }
}

impl Registers {
    /// Permits for client operations: the caller holds one for each operation under way.
    pub fn places(&self) -> Arc<Semaphore> {
        Arc::clone(&self.window)
    }

    /// Runs an operation on a key. Returns its outcome by its deadline at the latest.
    pub async fn operate(self: &Arc<Self>, wanted: Wanted) -> Outcome {
        let unanswered = unanswered(&wanted.request);
        let told = self.operate_many(vec![wanted]).await.pop();
        told.and_then(Result::ok).unwrap_or(unanswered)
    }

    /// The permits that an operation takes to read a long value.
    pub fn permits_of(&self, request: &Request, at: &Locator) -> u32 {
        if *request != Request::Get || LongValues::permits_of(self.store.longest_record()) == 0 {
            return 0;
        }
        let bytes = self.store.len_hint(at.borrowed());
        LongValues::permits_of(bytes)
    }

    /// Runs operations on keys and returns their outcomes in the same order. Writes of the same key
    /// take effect in this order.
    ///
    /// Long values are read only as far as there is room for them.
    pub async fn operate_many(self: &Arc<Self>, wanted: Vec<Wanted>) -> Vec<Told> {
        if LongValues::permits_of(self.store.longest_record()) == 0 {
            return self.operate_at_once(wanted, 0).await;
        }
        let mut told = Vec::with_capacity(wanted.len());
        let (mut next, mut permits) = (Vec::with_capacity(wanted.len()), 0);
        for it in wanted {
            let more = self.permits_of(&it.request, &it.at);
            if more > 0 && permits + more > LongValues::ALL {
                told.append(
                    &mut self
                        .operate_at_once(std::mem::take(&mut next), permits)
                        .await,
                );
                permits = 0;
            }
            if more > 0 && !self.budget.has_room(SMALL + 1) {
                told.append(
                    &mut self
                        .operate_at_once(std::mem::take(&mut next), permits)
                        .await,
                );
                permits = 0;
                told.push(Err(self.budget.refuse()));
                continue;
            }
            permits += more;
            next.push(it);
        }
        told.append(&mut self.operate_at_once(next, permits).await);
        told
    }

    async fn operate_at_once(self: &Arc<Self>, wanted: Vec<Wanted>, permits: u32) -> Vec<Told> {
        let unanswered = wanted.iter().map(|it| Ok(unanswered(&it.request)));
        let mut outcomes: Vec<Told> = unanswered.collect();
        // Upkeep frees resources for client operations and has its own limits, so it takes no
        // places.
        let is_upkeep =
            |it: &Wanted| matches!(it.request, Request::Reconcile { .. } | Request::HandOver(_));
        let places = if wanted.iter().any(is_upkeep) {
            0
        } else {
            wanted.len().min(WINDOW) as u32
        };
        let window = if wanted.len() > 1 {
            &self.batches
        } else {
            &*self.window
        };
        let latest = wanted.iter().map(|it| it.deadline).max();
        let place = async {
            match latest {
                Some(latest) => {
                    let long = self.long_values.take(permits, latest).await?;
                    let waiting = window.acquire_many(places);
                    let place = tokio::time::timeout_at(latest.into(), waiting).await;
                    Some((long, place.ok()?.ok()?))
                }
                None => None,
            }
        };
        let Some((_long, mut places)) = place.await else {
            for outcome in &mut outcomes {
                *outcome = Ok(Outcome::Unavailable);
            }
            return outcomes;
        };
        let mailbox = Mailbox::new(&self.budget);
        let mut begun = Begun::new(Arc::clone(self));
        begun.start(&mailbox, (0..).zip(wanted));
        let (mut told, mut left) = (Vec::new(), outcomes.len());
        while left > 0 {
            mailbox.take(&mut told).await;
            left -= told.len();
            // The others may wait for long.
            drop(places.split(places.num_permits().saturating_sub(left)));
            for (number, outcome) in told.drain(..) {
                begun.answered(number);
                outcomes[number as usize] = outcome;
            }
        }
        outcomes
    }
}

/// The outcome of an operation whose answer never arrived because the node is stopping.
const fn unanswered(request: &Request) -> Outcome {
    if request.is_write() {
        Outcome::Unknown
    } else {
        Outcome::Unavailable
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use torc_record::Epoch;
    use torc_replication::{Config, Quorum};
    use torc_ring::NodeId;

    use super::*;
    use crate::rig::{HERE, ME, Rig, record, until};

    /// One write in doubt kept the places of the thousand around it.
    #[tokio::test]
    async fn a_batch_returns_the_place_of_each_operation_that_ends() {
        let mut rig = Rig::start(|_| {});
        let founded = Config::founded(HERE, Epoch(2), &[ME, NodeId(2), NodeId(3)]);
        rig.adopt(&Arc::new(founded)).await;
        let registers = Arc::clone(&rig.registers);
        let put = |number, quorum| Wanted {
            partition: HERE,
            at: Locator::of(&record(number, Vec::new())),
            rules: Rules::Eventual(quorum),
            request: Request::Put {
                value: "v".into(),
                expires_at_ms: None,
                condition: None,
            },
            deadline: Instant::now() + Duration::from_secs(120),
            trace: None,
        };
        let wanted = vec![put(1, Quorum::One), put(2, Quorum::All)];
        let batch = tokio::spawn({
            let registers = Arc::clone(&registers);
            async move { registers.operate_many(wanted).await }
        });
        let one_left = || registers.batches.available_permits() == WINDOW - 1;
        rig.during(until("one of two has ended", one_left)).await;
        assert!(!batch.is_finished());
        batch.abort();
        let none_left = || registers.batches.available_permits() == WINDOW;
        rig.during(until("the batch was abandoned", none_left))
            .await;
    }
}
