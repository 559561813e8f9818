//! Operations of `eventual` namespaces: what drives their coordinator, beside the registers.
//!
//! A namespace has one mode for life. Operations come with the mode of their namespace; keys
//! that were found to differ are brought together by their namespace's mode, and left alone
//! while this node does not know the namespace.

use std::time::Instant;

use tokio::sync::oneshot;
use torc_record::{HybridTime, NamespaceId};
use torc_replication::{
    EventualCoordinator, EventualIntent, EventualOutcome, EventualRequest, Locator, Outcome,
    Request,
};
use torc_ring::Partition;
use torc_ring::topology::{NamespaceMode, RoutingTable};

use super::work::Work;
use super::{Modes, Registers};

impl Registers {
    /// Learns what namespaces there are, before anything of their topology is acted on.
    pub(crate) fn learn(&self, table: &RoutingTable) {
        let modes = table.namespaces.values();
        let modes: Modes = modes.map(|each| (each.id, each.mode)).collect();
        self.modes.store(modes.into());
    }

    /// How the replicas of a namespace agree; none if this node has not heard of it.
    pub(super) fn mode(&self, namespace: NamespaceId) -> Option<NamespaceMode> {
        self.modes.load().get(&namespace).copied()
    }

    /// Carries out an operation on a key of an `eventual` namespace. Its outcome is there at
    /// the latest when `deadline` is over.
    pub(crate) async fn operate_eventual(
        &self,
        partition: Partition,
        at: Locator,
        request: EventualRequest,
        deadline: Instant,
    ) -> EventualOutcome {
        let is_write = request.is_write();
        let is_read = matches!(request, EventualRequest::Read { .. });
        let (sender, outcome) = oneshot::channel();
        let deadline_ms = self.elapsed_ms(deadline);
        let mut work = Work::new(self);
        work.start_eventual((partition, at), request, deadline_ms, sender);
        work.finish();
        // The sender is dropped only with the node.
        let gone = if is_write {
            EventualOutcome::Unknown
        } else {
            EventualOutcome::Unavailable
        };
        let outcome = outcome.await.unwrap_or(gone);
        if is_write || is_read {
            self.metrics.eventual.count(is_write, &outcome);
        }
        outcome
    }

    /// Brings the replicas of a key together, by the mode of its namespace.
    pub(super) async fn settle(
        &self,
        partition: Partition,
        at: Locator,
        rewrite: bool,
        deadline: Instant,
    ) {
        match self.mode(at.namespace) {
            Some(NamespaceMode::Linearizable) => {
                let request = Request::Settle { rewrite };
                let _: Outcome = self.operate(partition, at, request, deadline).await;
            }
            Some(NamespaceMode::Eventual) => {
                let request = EventualRequest::Settle;
                let outcome = self.operate_eventual(partition, at, request, deadline);
                if outcome.await == EventualOutcome::Settled {
                    self.metrics.eventual.settled.inc();
                }
            }
            // Comparison finds it again.
            None => {
                self.metrics.settles_dropped.inc();
            }
        }
    }
}

impl Work<'_> {
    fn start_eventual(
        &mut self,
        at: (Partition, Locator),
        request: EventualRequest,
        deadline_ms: u64,
        outcome: oneshot::Sender<EventualOutcome>,
    ) {
        let now = self.now();
        let mut intents = Vec::new();
        let mut shard = self.registers().shard_of(at.0).lock();
        let was_idle = shard.is_idle();
        let op = shard.numbers.next();
        shard.wait_eventual(op, outcome);
        let coordinator = &mut shard.eventual;
        coordinator.start(now, op, at, request, deadline_ms, &mut intents);
        for (op, outcome) in self.perform_eventual(intents) {
            shard.done_eventual(op, outcome);
        }
        drop(shard);
        if was_idle {
            self.registers().busy.notify_one();
        }
    }

    /// Lets a partition's coordinator of `eventual` namespaces do something.
    pub(super) fn coordinate_eventual(
        &mut self,
        partition: Partition,
        act: impl FnOnce(&mut EventualCoordinator, &mut Vec<EventualIntent>),
    ) {
        let mut intents = Vec::new();
        let mut shard = self.registers().shard_of(partition).lock();
        act(&mut shard.eventual, &mut intents);
        for (op, outcome) in self.perform_eventual(intents) {
            shard.done_eventual(op, outcome);
        }
    }

    /// The time of a version that came by: this node's next ones are later.
    pub(super) fn observe(&mut self, partition: Partition, seen: HybridTime) {
        let now = self.now();
        self.coordinate_eventual(partition, |coordinator, _| coordinator.observe(now, seen));
    }

    /// Queues and sends; returns the operations that are done.
    fn perform_eventual(
        &mut self,
        intents: Vec<EventualIntent>,
    ) -> Vec<(torc_replication::OpId, EventualOutcome)> {
        let mut done = Vec::new();
        for intent in intents {
            match intent {
                EventualIntent::Send { to, envelope } => self.send(to, envelope),
                EventualIntent::Done { op, outcome } => done.push((op, outcome)),
                EventualIntent::Reserve(ceiling) => self.reserve(ceiling),
                EventualIntent::Keep(hint) => self.registers().hints.keep(hint),
            }
        }
        done
    }
}
