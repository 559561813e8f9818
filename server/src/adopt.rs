//! Adopts committed topologies.
//!
//! The topology group publishes a topology once it is durable here. This node then replaces its
//! routing table, and after that gives the replica of each changed partition its new configuration.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use torc_ring::topology::{Member, RoutingTable, Topology};
use torc_ring::{NodeId, Partition};

use crate::registers;
use crate::shared::Shared;

/// Adopts every topology that the group publishes, until the node stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let tasks = TaskTracker::new();
    let mut published = shared.group.watch();
    let mut confirmed = shared.member.confirmed.subscribe();
    loop {
        let topology = published.borrow_and_update().clone();
        if let (Some(topology), Some(me)) = (topology, shared.member.identity.node()) {
            adopt(&shared, me, &topology, &tasks);
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { break },
            _ = confirmed.changed() => {}
            () = shared.cancel.cancelled() => break,
        }
    }
    tasks.close();
    tasks.wait().await;
}

fn adopt(shared: &Arc<Shared>, me: NodeId, topology: &Topology, tasks: &TaskTracker) {
    // Must come first: a caller that sees the epoch as adopted may rely on its tokens.
    shared.bearers.renew(topology);
    let known = shared.member.routing.load_full();
    let is_known = known
        .as_ref()
        .is_some_and(|table| table.epoch >= topology.epoch());
    let may_begin = *shared.member.confirmed.borrow() && shared.member.registers.get().is_none();
    if is_known && !may_begin {
        return;
    }
    let table = Arc::new(topology.routing());
    let next_namespace = topology.next_namespace();
    // First, because the routing table sends requests to what this node has learned.
    if let Some(registers) = shared.member.registers.get() {
        registers.learn(&table, next_namespace);
    }
    shared.member.routing.store(Some(Arc::clone(&table)));
    let before = |partition: Partition| {
        known
            .as_ref()
            .and_then(|table| table.state(partition))
            .map(|state| state.config.epoch)
    };
    // New registers have not heard of any partition, even if this node's table has: without a place
    // in the topology, a node has no registers.
    let begins = shared.member.registers.get().is_none();
    let registers = registers::begin(shared, &table, next_namespace, tasks);
    let begins = begins && registers.is_some();
    let changed = table
        .states
        .iter()
        .filter(|state| begins || before(state.config.partition) != Some(state.config.epoch));
    if let Some(registers) = registers {
        registers.meet(table.members.keys().copied());
        for state in changed {
            registers.configure(&state.config);
        }
        registers.discard_where(|partition| topology.may_discard(partition));
    }
    shared.member.adopted.send_replace(table.epoch);
    shared
        .metrics
        .topology_epoch
        .set(table.epoch.0.cast_signed());
    tracing::debug!(epoch = %table.epoch, "adopted a topology");
    let is_first = known.is_none();
    let was_member = known.is_some_and(|table| table.members.contains_key(&me));
    match table.members.get(&me) {
        Some(member) if !was_member => tell_of_the_beginning(shared, me, member, topology, &table),
        // A node that joins first hears of topologies that are older than its id.
        None if is_first && topology.has_assigned(me) => {
            tracing::warn!(node = %me, "the cluster has removed this node: stop it");
        }
        _ => {}
    }
}

/// Logs that this node serves as a member, and the settings that the topology overrides.
fn tell_of_the_beginning(
    shared: &Shared,
    me: NodeId,
    member: &Member,
    topology: &Topology,
    table: &RoutingTable,
) {
    tracing::info!(epoch = %table.epoch, node = %me, "serving");
    let given = &shared.settings.given;
    let identity = &member.identity;
    if let Some(zone) = given.zone.as_ref().filter(|zone| **zone != identity.zone) {
        tracing::warn!(%zone, joined_with = %identity.zone, "ignored --zone: a member keeps its zone");
    }
    if let Some(weight) = given
        .weight
        .filter(|weight| *weight != identity.weight.percent())
    {
        let weighs = identity.weight.percent();
        tracing::warn!(
            weight,
            weighs,
            "ignored --weight: use `kvctl reweight-node`"
        );
    }
    let founded_with = topology.positions();
    if let Some(positions) = given.positions.filter(|count| *count != founded_with) {
        tracing::warn!(
            positions,
            founded_with,
            "ignored --positions: a cluster keeps those that it was founded with"
        );
    }
    if let Some(replicas) = given.replicas.filter(|count| *count != table.replicas()) {
        let founded_with = table.replicas();
        tracing::warn!(
            replicas,
            founded_with,
            "ignored --replicas: use `kvctl namespace alter`"
        );
    }
    for address in &shared.settings.found_with {
        let mut members = table.members.values().map(|member| &member.identity);
        if !members.any(|it| [&it.address, &it.peer_address].contains(&address)) {
            tracing::warn!(
                address,
                "ignored --found-with: the cluster exists, and no member has this address: use `kvctl \
                 join-node`"
            );
        }
    }
}
