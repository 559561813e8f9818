//! The ring as a picture, a table and JSON, from the topology alone.
//!
//! What is drawn is what serves: an arc has the colour and letter of the first node
//! of the preference lists of its partitions, so that a picture drawn during a join
//! shows how far it is.

mod circle;
mod describe;

use std::collections::BTreeMap;

use serde::Serialize;
use torc_record::Layer;
use torc_ring::topology::{MemberState, PartitionState, RoutingTable, Stage};
use torc_ring::{NodeId, Partition};

pub(crate) use describe::describe;

/// What there is to know of a ring. Serialises to the JSON of `kvctl ring`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RingView {
    cluster_id: String,
    epoch: u64,
    partitions: u32,
    replicas: u8,
    nodes: Vec<NodeView>,
    positions: Vec<PositionView>,
    stages: Stages,
    moving: Vec<MoveView>,
    /// By partition: the place in `nodes` of the node that is first in its list.
    #[serde(skip)]
    owners: Vec<Option<usize>>,
}

/// One member, and its part of the ring.
#[derive(Debug, Clone, Serialize)]
struct NodeView {
    id: NodeId,
    /// Its letter in the picture.
    mark: char,
    address: String,
    zone: String,
    weight_percent: u32,
    state: &'static str,
    /// Positions on the ring.
    positions: u32,
    /// Partitions whose preference list it is first in.
    primaries: u32,
    /// Partitions whose preference list names it.
    replicas: u32,
    /// Partitions it leads.
    leads: u32,
}

#[derive(Debug, Clone, Serialize)]
struct PositionView {
    token: String,
    node: NodeId,
}

/// Partitions by stage.
#[derive(Debug, Clone, Default, Serialize)]
struct Stages {
    stable: u32,
    copying: u32,
    write_both_read_old: u32,
    write_both_read_new: u32,
}

/// A partition that moves.
#[derive(Debug, Clone, Serialize)]
struct MoveView {
    partition: u32,
    #[serde(serialize_with = "stage_name")]
    stage: Stage,
    epoch: u64,
    lead: NodeId,
    nodes: Vec<NodeId>,
    next_nodes: Vec<NodeId>,
}

/// Letters that nodes are drawn with; with more nodes they repeat.
const MARKS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

impl RingView {
    /// O(partitions x replicas).
    pub(crate) fn of(table: &RoutingTable) -> Self {
        let mut nodes: Vec<NodeView> = members(table);
        let place: BTreeMap<NodeId, usize> = nodes
            .iter()
            .enumerate()
            .map(|(place, node)| (node.id, place))
            .collect();
        for (_, node) in table.ring.iter() {
            count(&mut nodes, place.get(&node), |node| &mut node.positions);
        }
        let mut owners = Vec::with_capacity(table.states.len());
        let mut stages = Stages::default();
        for state in &table.states {
            let owner = state.nodes.first().and_then(|node| place.get(node));
            if table.partitions.layer(state.config.partition) == Some(Layer::BASE) {
                owners.push(owner.copied());
            }
            count(&mut nodes, owner, |node| &mut node.primaries);
            count(&mut nodes, place.get(&state.lead), |node| &mut node.leads);
            for node in state.nodes.iter() {
                count(&mut nodes, place.get(node), |node| &mut node.replicas);
            }
            *stages.of(state.stage) += 1;
        }
        let position = |(token, node): (torc_ring::Token, NodeId)| PositionView {
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
            owners,
        }
    }

    /// Who owns most of the partitions from `from` to `to`, both parts of the circle
    /// from 0 to 1 (or beyond: the circle closes). Of equals, the first.
    fn owner_between(&self, from: f64, to: f64) -> Option<usize> {
        let count = self.owners.len() as i64;
        if count == 0 {
            return None;
        }
        let first = (from * count as f64).floor() as i64;
        let last = ((to * count as f64).ceil() as i64 - 1).max(first);
        let mut partitions = vec![0_u32; self.nodes.len()];
        for partition in first..=last {
            if let Some(owner) = self.owners[partition.rem_euclid(count) as usize] {
                partitions[owner] += 1;
            }
        }
        let most = partitions.iter().copied().max().filter(|most| *most > 0)?;
        partitions.iter().position(|count| *count == most)
    }

    /// Where on the circle, from 0 to 1, the middle of a partition lies.
    fn middle_of(&self, partition: u32) -> f64 {
        let count = self.partitions.max(1);
        (f64::from(partition % count) + 0.5) / f64::from(count)
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

fn members(table: &RoutingTable) -> Vec<NodeView> {
    let member =
        |(place, (id, member)): (usize, (&NodeId, &torc_ring::topology::Member))| NodeView {
            id: *id,
            mark: char::from(MARKS[place % MARKS.len()]),
            address: member.identity.address.clone(),
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

fn count(nodes: &mut [NodeView], place: Option<&usize>, what: impl Fn(&mut NodeView) -> &mut u32) {
    if let Some(node) = place.and_then(|place| nodes.get_mut(*place)) {
        *what(node) += 1;
    }
}

fn moving(table: &RoutingTable) -> Vec<MoveView> {
    let moves = table.states.iter().filter_map(|state| {
        let next = state.next.as_ref()?;
        Some(move_of(state.config.partition, state, next))
    });
    moves.collect()
}

fn move_of(partition: Partition, state: &PartitionState, next: &[NodeId]) -> MoveView {
    MoveView {
        partition: partition.0,
        stage: state.stage,
        epoch: state.epoch.0,
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
    serializer.serialize_str(match stage {
        Stage::Stable => "stable",
        Stage::Copying => "copying",
        Stage::WriteBothReadOld => "write_both_read_old",
        Stage::WriteBothReadNew => "write_both_read_new",
    })
}

#[cfg(test)]
mod tests;
