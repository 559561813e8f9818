//! The coordinators of some partitions, of both modes, and who waits for their operations.

use std::collections::HashMap;

use tokio::sync::oneshot;
use torc_record::{HybridTime, NodeSlot};
use torc_replication::{
    Coordinator, CoordinatorOptions, EventualCoordinator, EventualOptions, EventualOutcome,
    Mutations, OpId, Outcome,
};

use super::{Numbers, RegisterMetrics};

/// Who waits for an operation.
struct Waiting {
    is_write: bool,
    outcome: oneshot::Sender<Outcome>,
}

pub(super) struct Shard {
    pub(super) coordinator: Coordinator,
    /// Of `eventual` namespaces.
    pub(super) eventual: EventualCoordinator,
    /// Of operations of both: an answer tells its operation by the number alone.
    pub(super) numbers: Numbers,
    waiting: HashMap<OpId, Waiting>,
    metrics: RegisterMetrics,
    waiting_eventual: HashMap<OpId, oneshot::Sender<EventualOutcome>>,
}

impl Shard {
    pub(super) fn new(
        slot: NodeSlot,
        ceiling: HybridTime,
        options: CoordinatorOptions,
        mutations: Mutations,
        metrics: RegisterMetrics,
    ) -> Self {
        let eventual = EventualOptions {
            near: options.near,
            ..EventualOptions::default()
        };
        Self {
            coordinator: Coordinator::new(slot, ceiling, options, mutations),
            eventual: EventualCoordinator::new(slot, ceiling, eventual),
            numbers: Numbers::default(),
            waiting: HashMap::new(),
            waiting_eventual: HashMap::new(),
            metrics,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.coordinator.pending() == 0 && self.eventual.pending() == 0
    }

    /// When something of it is due, on the clock that nobody sets.
    pub(super) fn next_wake_ms(&self) -> Option<u64> {
        let wakes = [
            self.coordinator.next_wake_ms(),
            self.eventual.next_wake_ms(),
        ];
        wakes.into_iter().flatten().min()
    }

    pub(super) fn wait(&mut self, op: OpId, is_write: bool, outcome: oneshot::Sender<Outcome>) {
        self.waiting.insert(op, Waiting { is_write, outcome });
    }

    pub(super) fn done(&mut self, op: OpId, outcome: Outcome) {
        if let Some(waiting) = self.waiting.remove(&op) {
            // Whoever asked may have gone: it is counted here, not there.
            self.metrics.count(waiting.is_write, &outcome);
            let _ = waiting.outcome.send(outcome);
        }
    }

    pub(super) fn wait_eventual(&mut self, op: OpId, outcome: oneshot::Sender<EventualOutcome>) {
        self.waiting_eventual.insert(op, outcome);
    }

    pub(super) fn done_eventual(&mut self, op: OpId, outcome: EventualOutcome) {
        if let Some(waiting) = self.waiting_eventual.remove(&op) {
            // Whoever asked may have gone.
            let _ = waiting.send(outcome);
        }
    }
}
