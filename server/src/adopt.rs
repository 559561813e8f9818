//! Taking a committed topology into force.
//!
//! The topology group publishes a topology once it is durable here. The routing
//! table is replaced first, so that writes waiting for the other side of a move see
//! that their epoch is over; then each changed partition's gate is taken, which
//! waits for the operations of the epoch before.

use std::sync::Arc;

use futures::future::join_all;
use tokio_util::task::TaskTracker;
use torc_replication::Role;
use torc_ring::topology::{RoutingTable, Topology};
use torc_ring::{NodeId, Partition};

use crate::gate::Adopted;
use crate::registers;
use crate::shared::Shared;

/// Adopts every topology that the group publishes, until the node stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let tasks = TaskTracker::new();
    let mut published = shared.group.watch();
    loop {
        let topology = published.borrow_and_update().clone();
        if let (Some(topology), Some(me)) = (topology, shared.identity.node()) {
            adopt(&shared, me, &topology, &tasks).await;
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { break },
            () = shared.cancel.cancelled() => break,
        }
    }
    tasks.close();
    tasks.wait().await;
}

async fn adopt(shared: &Arc<Shared>, me: NodeId, topology: &Topology, tasks: &TaskTracker) {
    let known = shared.routing.load_full();
    if known
        .as_ref()
        .is_some_and(|table| table.epoch >= topology.epoch())
    {
        return;
    }
    let table = Arc::new(topology.routing());
    shared.routing.store(Some(Arc::clone(&table)));
    let before = |partition: Partition| {
        known
            .as_ref()
            .and_then(|table| table.state(partition))
            .map(|state| state.epoch)
    };
    // What begins now has not heard of any partition, although this node may know them: as long as it
    // has no place in the topology there are no registers.
    let begins = shared.registers.get().is_none();
    let registers = registers::begin(shared, &table, tasks);
    let begins = begins && registers.is_some();
    let changed = table
        .states
        .iter()
        .filter(|state| begins || before(state.config.partition) != Some(state.epoch));
    if let Some(registers) = registers {
        registers.learn(&table);
        for state in changed {
            registers.configure(&state.config);
        }
        registers.discard_where(|partition| topology.may_discard(partition));
        return announce(shared, &table, known.is_none(), me);
    }
    let adoptions = changed.map(|state| {
        let adopted = Adopted::new(state.epoch, Role::of(me, state));
        shared.gates.adopt(state.config.partition, adopted)
    });
    let count = join_all(adoptions).await.len();
    tracing::debug!(partitions = count, "fenced");
    announce(shared, &table, known.is_none(), me);
}

fn announce(shared: &Shared, table: &RoutingTable, is_first: bool, me: NodeId) {
    shared.gates.announce();
    shared.metrics.topology_epoch.set(table.epoch.0 as i64);
    tracing::debug!(epoch = %table.epoch, "adopted a topology");
    if is_first {
        tracing::info!(epoch = %table.epoch, node = %me, "serving");
    }
}
