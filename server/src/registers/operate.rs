//! Starts operations, one or many at a time, and delivers their outcomes to the callers.

#![expect(clippy::cast_possible_truncation, reason = "WINDOW is small")]

use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::PollSemaphore;
use torc_proto::TraceContext;
use torc_replication::{Locator, OpId, Operation, Outcome, Request, Rules};
use torc_ring::Partition;

use super::turn::{Outbox, Turn};
use super::{Mailbox, Registers, SHARDS, Told, WINDOW, shard_of};

/// An operation on a key, as its caller requests it.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) partition: Partition,
    pub(crate) at: Locator,
    pub(crate) rules: Rules,
    pub(crate) request: Request,
    pub(crate) deadline: Instant,
    /// The caller's span, if it is traced.
    pub(crate) trace: Option<TraceContext>,
}

/// Operations under way. Dropping this abandons those without an outcome.
pub(crate) struct Begun {
    registers: Arc<Registers>,
    /// By number: the operation's shard and its id there; `None` once it is answered.
    ops: Vec<Option<(usize, OpId)>>,
}

impl Begun {
    /// No operations yet.
    pub(crate) const fn new(registers: Arc<Registers>) -> Self {
        Self {
            registers,
            ops: Vec::new(),
        }
    }

    /// Starts operations with one visit to each shard. Each outcome is delivered to `mailbox` with
    /// the number given here. The caller bounds the number of operations under way.
    pub(crate) fn start(
        &mut self,
        mailbox: &Arc<Mailbox>,
        wanted: impl IntoIterator<Item = (u32, Wanted)>,
    ) {
        let registers = Arc::clone(&self.registers);
        let mut shards: [Vec<(u32, Wanted)>; SHARDS] = Default::default();
        for (number, wanted) in registers.answer_alone(mailbox, wanted) {
            shards[shard_of(wanted.partition)].push((number, wanted));
        }
        let mut outbox = Outbox::default();
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

    /// Frees the number of an operation that was answered.
    pub(crate) fn answered(&mut self, number: u32) {
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
    pub(crate) fn places(&self) -> PollSemaphore {
        PollSemaphore::new(Arc::clone(&self.window))
    }

    /// Runs an operation on a key. Returns its outcome by its deadline at the latest.
    pub(crate) async fn operate(self: &Arc<Self>, wanted: Wanted) -> Outcome {
        let unanswered = unanswered(&wanted.request);
        let told = self.operate_many(vec![wanted]).await.pop();
        told.and_then(Result::ok).unwrap_or(unanswered)
    }

    /// The places that an operation takes while it is under way. Upkeep frees resources for client
    /// operations and has its own limits, so it takes none.
    pub(crate) fn places_of(&self, request: &Request) -> usize {
        match request {
            Request::Get => self.budget.places_of_get(self.store.longest_record()),
            Request::Reconcile { .. } | Request::HandOver(_) => 0,
            _ => 1,
        }
    }

    /// Runs operations on keys and returns their outcomes in the same order. Operations on the same
    /// key run one after another, in this order.
    pub(crate) async fn operate_many(self: &Arc<Self>, mut wanted: Vec<Wanted>) -> Vec<Told> {
        let places = wanted.iter().map(|it| self.places_of(&it.request)).max();
        let at_once = WINDOW / places.unwrap_or(1).max(1);
        let mut told = Vec::with_capacity(wanted.len());
        while wanted.len() > at_once {
            let later = wanted.split_off(at_once);
            told.append(&mut self.operate_at_once(wanted).await);
            wanted = later;
        }
        told.append(&mut self.operate_at_once(wanted).await);
        told
    }

    async fn operate_at_once(self: &Arc<Self>, wanted: Vec<Wanted>) -> Vec<Told> {
        let unanswered = wanted.iter().map(|it| Ok(unanswered(&it.request)));
        let mut outcomes: Vec<Told> = unanswered.collect();
        let places: usize = wanted.iter().map(|it| self.places_of(&it.request)).sum();
        let places = places.min(WINDOW) as u32;
        let latest = wanted.iter().map(|it| it.deadline).max();
        let place = async {
            match latest {
                Some(latest) => {
                    let waiting = self.window.acquire_many(places);
                    tokio::time::timeout_at(latest.into(), waiting)
                        .await
                        .ok()?
                        .ok()
                }
                None => None,
            }
        };
        let Some(_places) = place.await else {
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
