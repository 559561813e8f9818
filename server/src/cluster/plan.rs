//! Plans a change with the topology's own code, so the plan shown equals the plan that
//! runs.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a partition has at most one move"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use torc_group::GroupError;
use torc_member::peers::within;
use torc_proto::v1::{NodeShare, PartitionSummary, Plan, SummarizeRequest};
use torc_proto::{Fault, Reason, change_kind_to_wire, losses_to_wire, replaced, replicas_after};
use torc_ring::topology::{
    Command, MemberState, Proposal, Sizes, Topology, TopologyError, TransitionKind,
};
use torc_ring::{NodeId, Partition, PlannedMove, TransitionPlan};
use torc_telemetry::clock::unix_ms;

use super::node::ClusterNode;
use super::status::ask;

const SUMMARIZE_TIMEOUT: Duration = Duration::from_secs(5);
/// Default for the number of partitions that move at a time: enough that some are copied while the
/// stages of others are committed.
const PARALLEL: u32 = 512;

/// A change that a caller requested.
#[derive(Debug, Clone)]
pub(super) struct RequestedChange {
    pub(super) kind: TransitionKind,
    /// Address of the node that joins, leaves or changes.
    pub(super) address: String,
    /// 0: the default.
    pub(super) parallel: u32,
    pub(super) force: bool,
    /// The node that leaves and is dead for good.
    pub(super) dead: Option<NodeId>,
    /// A namespace whose number of replicas may change only if no other namespace changes with it.
    pub(super) alone: Option<String>,
}

impl RequestedChange {
    pub(super) fn proposal(&self, topology: &Topology, planned: Sizes) -> Proposal {
        Proposal {
            kind: self.kind,
            based_on: topology.epoch(),
            parallel: if self.parallel == 0 {
                PARALLEL
            } else {
                self.parallel
            },
            planned,
            at_ms: unix_ms(),
            force: self.force,
        }
    }
}

impl RequestedChange {
    /// The command that declares the leaving node dead.
    pub(super) fn declaration(&self, node: NodeId) -> Command {
        if self.force {
            let at_ms = unix_ms();
            Command::WriteOff { node, at_ms }
        } else {
            Command::Exclude { node }
        }
    }
}

/// Whether the topology would accept the change; a dead node is removed first.
pub(super) fn rehearse(topology: &Topology, requested: &RequestedChange) -> Result<(), Fault> {
    if let Some(name) = &requested.alone {
        topology.check_alone(name).map_err(refused)?;
    }
    let Some(node) = requested.dead else {
        return topology
            .plan(&requested.kind, requested.force)
            .map(drop)
            .map_err(refused);
    };
    let mut rehearsal = topology.clone();
    let all_at_once = Proposal {
        parallel: u32::MAX,
        ..requested.proposal(topology, Sizes::default())
    };
    rehearsal
        .apply(Command::Begin(all_at_once))
        .map_err(refused)?;
    if rehearsal.transition().is_some() {
        rehearsal
            .apply(requested.declaration(node))
            .map_err(refused)?;
    }
    Ok(())
}

pub(super) fn refused(error: TopologyError) -> Fault {
    Fault::from(GroupError::Refused(error))
}

/// The outline of a change that is done or under way, without moves: none remain to be planned.
pub(super) fn plan_outline(topology: &Topology, requested: &RequestedChange) -> Plan {
    let altered = requested.kind.alters();
    Plan {
        based_on_epoch: topology.epoch().0,
        kind: change_kind_to_wire(requested.kind).into(),
        node: requested.kind.node().map_or(0, |node| node.0),
        address: requested.address.clone(),
        replaced: replaced(requested.kind),
        namespaces: altered.map_or_else(Vec::new, |layer| topology.namespaces_in(layer)),
        replicas_before: altered.map_or(0, |layer| topology.replicas_in(layer).into()),
        replicas_after: replicas_after(requested.kind),
        ..Plan::default()
    }
}

/// The plan of a change, with what it would move now, and what it would lose if the leaving node is
/// dead. A dead node can be written off while another change runs: the plan then shows only that.
pub(super) async fn describe(
    this: &ClusterNode,
    topology: &Topology,
    requested: &RequestedChange,
) -> Result<(Plan, Sizes), Fault> {
    let mut told = plan_outline(topology, requested);
    if let Some(node) = requested.dead {
        let mut lost = silent_members(this, topology, node).await;
        lost.extend(topology.written_off());
        told.lost_with = lost
            .iter()
            .map(|it| it.0)
            .filter(|it| *it != node.0)
            .collect();
        lost.insert(node);
        told.losses = topology
            .losses(&lost)
            .into_iter()
            .map(losses_to_wire)
            .collect();
        if let Some(running) = topology.transition() {
            told.waits_for = running.id;
            return Ok((told, Sizes::default()));
        }
    }
    let plan = topology
        .plan(&requested.kind, requested.force)
        .map_err(refused)?;
    let sizes = partition_sizes(this, &plan, requested).await?;
    let mut shares = node_shares(topology, &plan);
    let mut total = Sizes::default();
    for planned in &plan.moves {
        let size = sizes.get(&planned.partition).copied().unwrap_or_default();
        for (node, source) in journeys(planned, requested.dead) {
            total += size;
            shares.entry(node).or_default().bytes_in += size.bytes;
            if let Some(source) = source {
                shares.entry(source).or_default().bytes_out += size.bytes;
            }
        }
    }
    let described = Plan {
        partitions_moved: plan.moves.len() as u32,
        bytes: total.bytes,
        records: total.records,
        shares: shares
            .into_iter()
            .map(|(id, s)| NodeShare { node: id.0, ..s })
            .collect(),
        peak_to_mean_before: plan.balance_before.replica_peak_to_mean,
        peak_to_mean_after: plan.balance_after.replica_peak_to_mean,
        minimum_moved: plan.minimum_replicas,
        ..told
    };
    Ok((described, total))
}

/// The members, without the dead one, that do not answer.
async fn silent_members(this: &ClusterNode, topology: &Topology, dead: NodeId) -> BTreeSet<NodeId> {
    let me = this.member.identity.node();
    let members = topology.members().iter();
    let others = members.filter(|(_, member)| member.state != MemberState::Joining);
    let others = others.map(|(node, _)| *node);
    let others = others.filter(|node| *node != dead && Some(*node) != me);
    let asked = others.map(async |node| ask(this, node).await.is_err().then_some(node));
    let silent = futures::future::join_all(asked).await;
    silent.into_iter().flatten().collect()
}

/// The receivers of a partition, each with the source of most of its data: the node that it
/// displaces, or the first node that is alive.
fn journeys(
    planned: &PlannedMove,
    dead: Option<NodeId>,
) -> impl Iterator<Item = (NodeId, Option<NodeId>)> + '_ {
    let lives = move |node: &NodeId| Some(*node) != dead;
    let displaced: Vec<NodeId> = planned.lost().collect();
    let first = planned.from.iter().copied().find(lives);
    planned.gained().enumerate().map(move |(index, node)| {
        let source = displaced.get(index).copied().filter(lives);
        (node, source.or(first))
    })
}

/// The partitions of each node before and after the change.
fn node_shares(topology: &Topology, plan: &TransitionPlan) -> BTreeMap<NodeId, NodeShare> {
    let mut shares: BTreeMap<NodeId, NodeShare> = BTreeMap::new();
    for state in topology
        .partitions_in_use()
        .filter_map(|it| topology.state(it))
    {
        for node in state.nodes.iter() {
            let share = shares.entry(*node).or_default();
            share.partitions_before += 1;
            share.partitions_after += 1;
        }
    }
    for planned in &plan.moves {
        for node in planned.gained() {
            shares.entry(node).or_default().partitions_after += 1;
        }
        for node in planned.lost() {
            let share = shares.entry(node).or_default();
            share.partitions_after = share.partitions_after.saturating_sub(1);
        }
    }
    shares
}

/// The size of each moving partition: the maximum over its replicas. Tolerates a replica that does
/// not answer if another one does.
async fn partition_sizes(
    this: &ClusterNode,
    plan: &TransitionPlan,
    requested: &RequestedChange,
) -> Result<BTreeMap<Partition, Sizes>, Fault> {
    let moving: BTreeMap<Partition, &PlannedMove> = plan
        .moves
        .iter()
        .map(|planned| (planned.partition, planned))
        .collect();
    let sources: BTreeSet<NodeId> = plan
        .moves
        .iter()
        .flat_map(|planned| planned.from.iter().copied())
        .filter(|node| Some(*node) != requested.dead)
        .collect();
    let asked = sources.into_iter().map(async |source| {
        let summaries = summaries_of(this, source).await;
        (source, summaries)
    });
    let mut sizes: BTreeMap<Partition, Sizes> = BTreeMap::new();
    let (mut answered, mut failed) = (BTreeSet::new(), None);
    for (source, summaries) in futures::future::join_all(asked).await {
        let summaries = match summaries {
            Ok(summaries) => summaries,
            Err(fault) => {
                failed = Some(fault);
                continue;
            }
        };
        answered.insert(source);
        for summary in summaries {
            let partition = Partition(summary.partition);
            let planned = moving.get(&partition);
            if planned.is_some_and(|planned| planned.from.contains(&source)) {
                let size = sizes.entry(partition).or_default();
                size.records = size.records.max(summary.records);
                size.bytes = size.bytes.max(summary.payload_bytes);
            }
        }
    }
    let is_known = |planned: &&PlannedMove| planned.from.iter().any(|n| answered.contains(n));
    match failed {
        // Partitions whose only replica is dead have no known size.
        Some(fault) if requested.dead.is_none() && !moving.values().all(is_known) => Err(fault),
        _ => Ok(sizes),
    }
}

async fn summaries_of(this: &ClusterNode, node: NodeId) -> Result<Vec<PartitionSummary>, Fault> {
    let member = &this.member;
    let mut client = member.peers.replica(&member.recipient(node)?)?;
    let request = within(
        SUMMARIZE_TIMEOUT,
        SummarizeRequest {
            partitions: Vec::new(),
        },
    );
    let answer = client.summarize(request).await.map_err(|status| {
        let message = format!(
            "node {node} did not report the sizes of its partitions ({}), so nothing was planned or changed: retry, or \
             if it is lost for good, first replace it with `--dead`",
            status.message()
        );
        Fault::new(Reason::OwnerUnreachable, message)
    })?;
    Ok(answer.into_inner().summaries)
}
