//! One coordinator and who waits for its operations.

use std::collections::HashMap;

use tokio::sync::oneshot;
use torc_record::{HybridTime, NodeSlot};
use torc_replication::{Coordinator, CoordinatorOptions, Mutations, OpId, Outcome};

use super::{Numbers, RegisterMetrics};

/// Who waits for an operation.
struct Waiting {
    is_write: bool,
    outcome: oneshot::Sender<Outcome>,
}

pub(super) struct Shard {
    pub(super) coordinator: Coordinator,
    pub(super) numbers: Numbers,
    waiting: HashMap<OpId, Waiting>,
    metrics: RegisterMetrics,
}

impl Shard {
    pub(super) fn new(
        slot: NodeSlot,
        ceiling: HybridTime,
        options: CoordinatorOptions,
        mutations: Mutations,
        metrics: RegisterMetrics,
    ) -> Self {
        Self {
            coordinator: Coordinator::new(slot, ceiling, options, mutations),
            numbers: Numbers::default(),
            waiting: HashMap::new(),
            metrics,
        }
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
}
