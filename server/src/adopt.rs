//! Taking a committed topology into force.
//!
//! The topology group publishes a topology once it is durable here. The routing
//! table is replaced first, so that writes waiting for the other side of a move see
//! that their epoch is over; then each changed partition's gate is taken, which
//! waits for the operations of the epoch before.

use std::sync::Arc;

use futures::future::join_all;
use torc_replication::Role;
use torc_ring::topology::Topology;
use torc_ring::{NodeId, Partition};

use crate::gate::Adopted;
use crate::shared::Shared;

/// Adopts every topology that the group publishes, until the node stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut published = shared.group.watch();
    loop {
        let topology = published.borrow_and_update().clone();
        if let (Some(topology), Some(me)) = (topology, shared.identity.node()) {
            adopt(&shared, me, &topology).await;
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { return },
            () = shared.cancel.cancelled() => return,
        }
    }
}

async fn adopt(shared: &Shared, me: NodeId, topology: &Topology) {
    let known = shared.routing.load_full();
    if known
        .as_ref()
        .is_some_and(|table| table.epoch >= topology.epoch())
    {
        return;
    }
    let table = Arc::new(topology.routing());
    shared.routing.store(Some(Arc::clone(&table)));
    let before = |index: usize| {
        known
            .as_ref()
            .and_then(|table| table.states.get(index))
            .map(|state| state.epoch)
    };
    let changed = table
        .states
        .iter()
        .enumerate()
        .filter(|(i, s)| before(*i) != Some(s.epoch));
    let adoptions = changed.map(|(index, state)| {
        let adopted = Adopted::new(state.epoch, Role::of(me, state));
        shared.gates.adopt(Partition(index as u32), adopted)
    });
    let count = join_all(adoptions).await.len();
    shared.gates.announce();
    shared.metrics.topology_epoch.set(table.epoch.0 as i64);
    tracing::debug!(epoch = %table.epoch, partitions = count, "adopted a topology");
    if known.is_none() {
        tracing::info!(epoch = %table.epoch, node = %me, "serving");
    }
}
