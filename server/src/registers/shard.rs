//! One coordinator and who waits for its operations.

use std::collections::HashMap;

use tokio::sync::oneshot;
use torc_record::{HybridTime, NodeSlot};
use torc_replication::{Coordinator, CoordinatorOptions, Mutations, OpId, Outcome};

use super::Numbers;

pub(super) struct Shard {
    pub(super) coordinator: Coordinator,
    pub(super) numbers: Numbers,
    waiting: HashMap<OpId, oneshot::Sender<Outcome>>,
}

impl Shard {
    pub(super) fn new(
        slot: NodeSlot,
        ceiling: HybridTime,
        options: CoordinatorOptions,
        mutations: Mutations,
    ) -> Self {
        Self {
            coordinator: Coordinator::new(slot, ceiling, options, mutations),
            numbers: Numbers::default(),
            waiting: HashMap::new(),
        }
    }

    pub(super) fn wait(&mut self, op: OpId, outcome: oneshot::Sender<Outcome>) {
        self.waiting.insert(op, outcome);
    }

    pub(super) fn done(&mut self, op: OpId, outcome: Outcome) {
        if let Some(waiting) = self.waiting.remove(&op) {
            // Whoever asked may have gone.
            let _ = waiting.send(outcome);
        }
    }
}
