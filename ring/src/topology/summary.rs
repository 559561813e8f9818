//! A summary of the ring, for people and programs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Member, MemberState, PartitionState, RoutingTable, Stage};
use crate::{NodeId, Partition, Token};

/// A ring and its owners. Serialises to the JSON of `kvctl ring` and `/ring`.
#[derive(Debug, Clone, Serialize)]
pub struct RingSummary {
    /// The cluster's id.
    pub cluster_id: String,
    /// Epoch of the topology.
    pub epoch: u64,
    /// Partitions of one layer.
    pub partitions: u32,
    /// Replicas of each partition of the first layer.
    pub replicas: u8,
    /// The members, by id.
    pub nodes: Vec<NodeSummary>,
    /// All positions, in ring order.
    pub positions: Vec<Position>,
    /// The number of partitions in each stage.
    pub stages: Stages,
    /// The partitions that are not stable.
    pub moving: Vec<MovingPartition>,
}

/// One member, and its part of the ring.
#[derive(Debug, Clone, Serialize)]
pub struct NodeSummary {
    /// Its number.
    pub id: NodeId,
    /// Its letter in a picture of the ring; with more nodes than letters they repeat.
    pub mark: char,
    /// host:port of gRPC.
    pub address: String,
    /// host:port of HTTP.
    pub http_address: String,
    /// Its failure domain.
    pub zone: String,
    /// Its share of the load, 100 for a node of normal weight.
    pub weight_percent: u32,
    /// `joining`, `active` or `leaving`.
    pub state: &'static str,
    /// Positions on the ring.
    pub positions: u32,
    /// Partitions whose primary it is.
    pub primaries: u32,
    /// Partitions whose replica it is.
    pub replicas: u32,
    /// Partitions it leads.
    pub leads: u32,
}

/// A position of a node on the ring.
#[derive(Debug, Clone, Serialize)]
pub struct Position {
    /// The token, in hexadecimal.
    pub token: String,
    /// Its node.
    pub node: NodeId,
}

/// Partitions by stage.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stages {
    /// Not moving.
    pub stable: u32,
    /// Newcomers copy.
    pub copying: u32,
    /// Writes go to both sets, reads to the old set.
    pub write_both_read_old: u32,
    /// Writes go to both sets, reads to the new set.
    pub write_both_read_new: u32,
}

/// A partition that moves.
#[derive(Debug, Clone, Serialize)]
pub struct MovingPartition {
    /// Its number.
    pub partition: u32,
    /// Its stage.
    #[serde(serialize_with = "stage_name")]
    pub stage: Stage,
    /// Its epoch.
    pub epoch: u64,
    /// Its lead.
    pub lead: NodeId,
    /// Its nodes.
    pub nodes: Vec<NodeId>,
    /// Its new nodes.
    pub next_nodes: Vec<NodeId>,
}

/// Letters of nodes in pictures; with more nodes they repeat.
const MARKS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

impl RingSummary {
    /// O(partitions x replicas).
    #[must_use]
    pub fn of(table: &RoutingTable) -> Self {
        let mut nodes: Vec<NodeSummary> = members(table);
        let place: BTreeMap<NodeId, usize> = nodes
            .iter()
            .enumerate()
            .map(|(place, node)| (node.id, place))
            .collect();
        for (_, node) in table.ring.iter() {
            count(&mut nodes, place.get(&node), |node| &mut node.positions);
        }
        let mut stages = Stages::default();
        for state in &table.states {
            let owner = state.nodes.first().and_then(|node| place.get(node));
            count(&mut nodes, owner, |node| &mut node.primaries);
            count(&mut nodes, place.get(&state.lead), |node| &mut node.leads);
            for node in state.nodes.iter() {
                count(&mut nodes, place.get(node), |node| &mut node.replicas);
            }
            *stages.of(state.config.stage) += 1;
        }
        let position = |(token, node): (Token, NodeId)| Position {
            token: token.to_string(),
            node,
        };
        Self {
            cluster_id: table.cluster.to_string(),
            epoch: table.epoch.0,
            partitions: table.partitions.count(),
            replicas: table.replicas(),
            nodes,
            positions: table.ring.iter().map(position).collect(),
            stages,
            moving: moving(table),
        }
    }
}

impl Stages {
    fn of(&mut self, stage: Stage) -> &mut u32 {
        match stage {
            Stage::Stable => &mut self.stable,
            Stage::Copying => &mut self.copying,
            Stage::WriteBothReadOld => &mut self.write_both_read_old,
            Stage::WriteBothReadNew => &mut self.write_both_read_new,
        }
    }
}

fn members(table: &RoutingTable) -> Vec<NodeSummary> {
    let member = |(place, (id, member)): (usize, (&NodeId, &Member))| NodeSummary {
        id: *id,
        mark: char::from(MARKS[place % MARKS.len()]),
        address: member.identity.address.clone(),
        http_address: member.identity.http_address.clone(),
        zone: member.identity.zone.to_string(),
        weight_percent: member.identity.weight.percent(),
        state: match member.state {
            MemberState::Joining => "joining",
            MemberState::Active => "active",
            MemberState::Leaving => "leaving",
        },
        positions: 0,
        primaries: 0,
        replicas: 0,
        leads: 0,
    };
    table.members.iter().enumerate().map(member).collect()
}

fn count(
    nodes: &mut [NodeSummary],
    place: Option<&usize>,
    what: impl Fn(&mut NodeSummary) -> &mut u32,
) {
    if let Some(node) = place.and_then(|place| nodes.get_mut(*place)) {
        *what(node) += 1;
    }
}

fn moving(table: &RoutingTable) -> Vec<MovingPartition> {
    let moves = table.states.iter().filter_map(|state| {
        let next = state.next.as_ref()?;
        Some(move_of(state.config.partition, state, next))
    });
    moves.collect()
}

fn move_of(partition: Partition, state: &PartitionState, next: &[NodeId]) -> MovingPartition {
    MovingPartition {
        partition: partition.0,
        stage: state.config.stage,
        epoch: state.config.epoch.0,
        lead: state.lead,
        nodes: state.nodes.to_vec(),
        next_nodes: next.to_vec(),
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn stage_name<S: serde::Serializer>(stage: &Stage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(stage)
}
