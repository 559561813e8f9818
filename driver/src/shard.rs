//! A shard: some partitions of a node, with their coordinator, this node's replicas, and the
//! callers that wait for operations.
//!
//! One lock protects a shard and is held only briefly: code under it never reads long stretches of
//! the disk (see [`Reading`](torc_replication::Reading)).

use std::collections::BTreeSet;
use std::sync::Arc;

use torc_record::{HybridTime, NodeSlot};
use torc_replication::{Coordinator, CoordinatorOptions, Mutations, NumberTable, OpId};
use torc_ring::Partition;

use super::mailbox::Mailbox;
use super::replica_slot::ReplicaSlot;
use super::spans::Spans;

/// The caller that waits for an operation.
pub(super) struct Waiting {
    pub(super) is_write: bool,
    pub(super) is_eventual: bool,
    /// Whether metrics count it as an operation of a client.
    pub(super) is_counted: bool,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) number: u32,
}

pub(super) struct Shard {
    pub(super) coordinator: Coordinator,
    last_op: OpId,
    pub(super) waiting: NumberTable<OpId, Waiting>,
    pub(super) slots: NumberTable<Partition, Box<ReplicaSlot>>,
    pub(super) spans: Spans,
    /// Partitions that are not stable: their replicas may have to repeat requests for copies. And
    /// those whose epoch the disk did not take.
    pub(super) moving: BTreeSet<Partition>,
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
            last_op: OpId(0),
            waiting: NumberTable::default(),
            slots: NumberTable::default(),
            spans: Spans::default(),
            moving: BTreeSet::new(),
        }
    }

    /// The next operation id of this shard.
    pub(super) const fn next_op(&mut self) -> OpId {
        self.last_op.0 += 1;
        self.last_op
    }

    pub(super) fn is_idle(&self) -> bool {
        self.coordinator.is_idle()
    }
}
