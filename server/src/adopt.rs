//! Adopts committed topologies.
//!
//! The topology group publishes a topology once it is durable here. This node then replaces its
//! routing table, and after that gives the replica of each changed partition its new configuration.

use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use torc_ring::topology::{Member, RoutingTable, Topology};
use torc_ring::{NodeId, Partition};

use crate::bearers::Bearers;
use crate::config::Settings;
use crate::registers::Beginning;

/// What adopting a topology needs of a node.
pub(crate) struct Adoption {
    pub(crate) beginning: Beginning,
    pub(crate) bearers: Arc<Bearers>,
    pub(crate) epoch: Gauge,
}

/// Adopts every topology that the group publishes, until the node stops.
pub(crate) async fn run(node: Adoption, cancel: CancellationToken) {
    let tasks = TaskTracker::new();
    let own = &node.beginning.own;
    let mut published = own.group.watch();
    let mut confirmed = own.member.confirmed.subscribe();
    loop {
        let topology = published.borrow_and_update().clone();
        if let (Some(topology), Some(me)) = (topology, own.member.identity.node()) {
            adopt(&node, me, &topology, &tasks);
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { break },
            _ = confirmed.changed() => {}
            () = cancel.cancelled() => break,
        }
    }
    tasks.close();
    tasks.wait().await;
}

fn adopt(node: &Adoption, me: NodeId, topology: &Topology, tasks: &TaskTracker) {
    let member = &node.beginning.own.member;
    // Must come first: a caller that sees the epoch as adopted may rely on its tokens.
    node.bearers.renew(topology);
    let known = member.routing.load_full();
    let is_known = known
        .as_ref()
        .is_some_and(|table| table.epoch >= topology.epoch());
    let may_begin = *member.confirmed.borrow() && member.registers.get().is_none();
    if is_known && !may_begin {
        return;
    }
    let table = Arc::new(topology.routing());
    let next_namespace = topology.next_namespace();
    // First, because the routing table sends requests to what this node has learned.
    if let Some(registers) = member.registers.get() {
        registers.learn(&table, next_namespace);
    }
    member.routing.store(Some(Arc::clone(&table)));
    let before = |partition: Partition| {
        known
            .as_ref()
            .and_then(|table| table.state(partition))
            .map(|state| state.config.epoch)
    };
    // New registers have not heard of any partition, even if this node's table has: without a place
    // in the topology, a node has no registers.
    let begins = member.registers.get().is_none();
    let registers = node.beginning.begin(&table, next_namespace, tasks);
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
    member.adopted.send_replace(table.epoch);
    node.epoch.set(table.epoch.0.cast_signed());
    tracing::debug!(epoch = %table.epoch, "adopted a topology");
    let settings = &node.beginning.own.settings;
    let is_first = known.is_none();
    let was_member = known.is_some_and(|table| table.members.contains_key(&me));
    match table.members.get(&me) {
        Some(it) if !was_member => tell_of_the_beginning(settings, me, it, topology, &table),
        // A node that joins first hears of topologies that are older than its id.
        None if was_member || is_first && topology.has_assigned(me) => {
            tracing::warn!(node = %me, "this node is no longer in the cluster: stop it");
        }
        _ => {}
    }
}

/// Logs that this node serves as a member, and the settings that the topology overrides.
fn tell_of_the_beginning(
    settings: &Settings,
    me: NodeId,
    member: &Member,
    topology: &Topology,
    table: &RoutingTable,
) {
    tracing::info!(epoch = %table.epoch, node = %me, "serving");
    let given = &settings.given;
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
    for address in &settings.found_with {
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
