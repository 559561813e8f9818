//! The status of the cluster, as far as the answering node knows it.

#![expect(
    clippy::cast_possible_truncation,
    reason = "there are fewer than 2^32 partitions"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, UNIX_EPOCH};

use futures::future::join_all;
use tokio::time::timeout_at;
use torc_group::GroupError;
use torc_member::peers::within;
use torc_proto::v1::{LayerStatus, MissingSlices, NodeStatus, StatusRequest, StatusResponse};
use torc_proto::{Fault, generation_to_wire, member_to_wire, transition_to_wire};
use torc_ring::NodeId;
use torc_ring::topology::{Member, RoutingTable, Topology};
use torc_store::StoreHealth;
use torc_telemetry::clock::unix_ms;

use torc_record::{Layer, to_millis};

use super::node::ClusterNode;

const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for what the topology group has committed. The group answers within milliseconds,
/// or has no leader.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until this node has adopted all that the topology group committed before the call. Few
/// requests may wait; they take no permits of statuses, which need no majority.
pub(super) async fn catch_up(this: &ClusterNode, deadline: Instant) -> Result<(), Fault> {
    let _place = this.kv.limits.classes.current.enter()?;
    let deadline = deadline.min(Instant::now() + CATCH_UP_TIMEOUT);
    let committed = this.group.read_current(deadline).await?.epoch();
    let mut adopted = this.member.adopted.subscribe();
    let reached = adopted.wait_for(|epoch| *epoch >= committed);
    match timeout_at(deadline.into(), reached).await {
        Ok(_) => Ok(()),
        Err(_) => Err(GroupError::Lagging.into()),
    }
}

/// Asks every member (unless `local`) and combines the answers.
pub(crate) async fn gather(
    this: &ClusterNode,
    request: &StatusRequest,
) -> Result<StatusResponse, Fault> {
    let StatusRequest { local, load_ms, .. } = *request;
    let table = this.member.routing()?;
    let me = this.member.node()?;
    let nodes = if local {
        table
            .members
            .get(&me)
            .map(|member| own(this, &table, me, member, load_ms))
            .into_iter()
            .collect()
    } else {
        let _place = this.kv.limits.classes.statuses.enter_soon().await?;
        let asked = table
            .members
            .iter()
            .map(|(id, member)| one(this, &table, *id, member, load_ms));
        join_all(asked).await
    };
    let topology = this.group.topology();
    let transition = topology.as_ref().and_then(|topology| topology.transition());
    let last = topology
        .as_ref()
        .and_then(|topology| topology.last_transition());
    let topology_known = topology.as_ref().filter(|_| !local);
    let generations = topology_known.map_or_else(Vec::new, |topology| {
        let all = topology.generations();
        all.map(|it| generation_to_wire(topology, it)).collect()
    });
    let short = topology_known.map(|topology| Short::of(topology, &nodes));
    Ok(StatusResponse {
        cluster_id: table.cluster.0.to_vec().into(),
        epoch: table.epoch.0,
        feature_level: table.feature_level,
        answered_by: me.0,
        topology_leader: this.group.leader().map_or(0, |leader| leader.0),
        nodes,
        transition: transition.map(transition_to_wire),
        last_transition: last.map(transition_to_wire),
        partitions: table.states.len() as u32,
        replicas: table.replicas().into(),
        under_replicated: short.map(|short| short.under_replicated),
        without_quorum: short.map(|short| short.without_quorum),
        generations,
        layers: layers(&table),
    })
}

/// The partitions of each layer in use, and their replicas.
fn layers(table: &RoutingTable) -> Vec<LayerStatus> {
    let mut layers = BTreeMap::<Layer, LayerStatus>::new();
    for state in &table.states {
        let Some(layer) = table.partitions.layer(state.config.partition) else {
            continue;
        };
        let layer = layers.entry(layer).or_default();
        layer.partitions += 1;
        layer.replicas = layer.replicas.max(state.nodes.len() as u32);
    }
    layers.into_values().collect()
}

/// Counts of partitions that lack replicas, because replicas do not answer or there are too few.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Short {
    under_replicated: u32,
    without_quorum: u32,
}

impl Short {
    fn of(topology: &Topology, nodes: &[NodeStatus]) -> Self {
        let answering: BTreeSet<NodeId> = nodes
            .iter()
            .filter(|node| node.reachable)
            .filter_map(|node| Some(NodeId(node.member.as_ref()?.id)))
            .collect();
        let mut short = Self::default();
        for partition in topology.partitions_in_use() {
            let Some(config) = topology.config(partition) else {
                continue;
            };
            let (count, is_quorum) = config.answering(|node| answering.contains(&node));
            let due = u32::from(topology.replicas_due(partition));
            short.under_replicated += u32::from(count < due);
            short.without_quorum += u32::from(!is_quorum);
        }
        short
    }
}

async fn one(
    this: &ClusterNode,
    table: &RoutingTable,
    id: NodeId,
    member: &Member,
    load_ms: u64,
) -> NodeStatus {
    if this.member.identity.node() == Some(id) {
        return own(this, table, id, member, load_ms);
    }
    match ask_with_load(this, id, load_ms).await {
        Ok(status) => NodeStatus {
            voter: is_voter(this, id),
            ..status
        },
        Err(fault) => NodeStatus {
            member: Some(member_to_wire(id, member)),
            voter: is_voter(this, id),
            version: member.identity.release.version.clone(),
            problem: fault.message,
            ..counts(table, id)
        },
    }
}

pub(super) async fn ask(this: &ClusterNode, node: NodeId) -> Result<NodeStatus, Fault> {
    ask_with_load(this, node, 0).await
}

async fn ask_with_load(
    this: &ClusterNode,
    node: NodeId,
    load_ms: u64,
) -> Result<NodeStatus, Fault> {
    let member = &this.member;
    let mut client = member.peers.cluster(&member.recipient(node)?)?;
    let request = StatusRequest {
        local: true,
        load_ms,
        current: false,
    };
    let answer = client.status(within(ASK_TIMEOUT, request)).await;
    let answer = answer
        .map_err(|status| Fault::from_status(&status))?
        .into_inner();
    answer.nodes.into_iter().next().ok_or_else(|| {
        Fault::new(
            torc_proto::Reason::NotServing,
            "the node has not determined its own status yet: retry",
        )
    })
}

fn is_voter(this: &ClusterNode, id: NodeId) -> bool {
    this.group.voters().contains(&id)
}

/// Partitions held and led, from the routing table.
fn counts(table: &RoutingTable, id: NodeId) -> NodeStatus {
    let held = table
        .states
        .iter()
        .filter(|state| state.nodes.contains(&id))
        .count();
    let leads = table.states.iter().filter(|state| state.lead == id).count();
    NodeStatus {
        partitions: held as u32,
        leads: leads as u32,
        ..NodeStatus::default()
    }
}

fn own(
    this: &ClusterNode,
    table: &RoutingTable,
    id: NodeId,
    member: &Member,
    load_ms: u64,
) -> NodeStatus {
    let stats = this.kv.store.stats();
    let slices = &stats.sliced;
    let registers = this.member.registers.get();
    let out_of_reach = registers.map(|it| it.out_of_reach()).unwrap_or_default();
    let heat = if load_ms > 0 {
        this.kv.hot.heat(table.partitions.count() as usize)
    } else {
        Vec::new()
    };
    let index_bytes =
        slices.header_bytes + slices.gate_bytes + slices.mphf_bytes + slices.offset_bytes;
    let ready = this.ready();
    NodeStatus {
        member: Some(member_to_wire(id, member)),
        reachable: true,
        ready: ready.is_ok(),
        voter: is_voter(this, id),
        version: this.settings.release.version.clone(),
        uptime_ms: to_millis(this.started.elapsed()),
        epoch: table.epoch.0,
        records: stats.records,
        tombstones: stats.tombstones,
        payload_bytes: stats.payload_bytes,
        log_bytes: stats.log_bytes,
        rss_bytes: resident_memory_bytes(),
        problem: ready.err().unwrap_or_default(),
        damaged_slices: slices.damaged,
        disk_full: this.kv.store.health() == StoreHealth::OutOfSpace,
        sealed_keys: slices.keys,
        index_bytes,
        certificate_ends_at_ms: this.entrance.tls.as_ref().map_or(0, |tls| {
            let end = tls.expires().duration_since(UNIX_EPOCH);
            end.map_or(0, to_millis)
        }),
        resp_address: this.reached_at.resp.clone().unwrap_or_default(),
        clock_ms: unix_ms(),
        free_bytes: stats.free_bytes,
        memtable_bytes: stats.memtable_bytes,
        memtable_limit_bytes: stats.memtable_limit_bytes,
        mphf_bytes: slices.mphf_bytes,
        gate_bytes: slices.gate_bytes,
        offset_bytes: slices.offset_bytes,
        header_bytes: slices.header_bytes,
        slices: slices.slices,
        most_slices: slices.most_slices,
        slice_bytes: slices.slice_bytes,
        flushes: stats.flushes,
        compactions: stats.compactions,
        exposed: this.settings.exposed(),
        out_of_reach: out_of_reach.into_iter().map(|node| node.0).collect(),
        #[cfg(feature = "backup")]
        backing_up: this.kv.limits.classes.backups.is_full(),
        load: this.console.load(load_ms),
        heat,
        missing_slices: missing_slices(this),
        ..counts(table, id)
    }
}

fn missing_slices(this: &ClusterNode) -> Vec<MissingSlices> {
    let problems = this.transfers.fetches.problems().into_iter();
    let missing = problems.map(|(generation, problem)| MissingSlices {
        generation,
        problem,
    });
    missing.collect()
}

/// Resident memory of this process; 0 if the system does not report it.
pub(crate) fn resident_memory_bytes() -> u64 {
    let Ok(statm) = std::fs::read_to_string("/proc/self/statm") else {
        return 0;
    };
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or_default();
    pages * rustix::param::page_size() as u64
}
