//! Who holds and who leads every partition.
//!
//! The preference list of a partition is what a [walk](crate::walk) picks that
//! starts at the partition's successor. Its first node is the *primary*. The
//! *lead*, to which writes are routed, is any one of the list: it stays the primary
//! where that keeps leads even, and moves down the list elsewhere
//! ([`crate::lead`]).

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::walk::{Member, Members, Spread, Walk};
use crate::{NodeId, NodeSpec, Partition, Partitions, Ring, Token, lead, share};

/// The distinct nodes that hold a partition, in ring order from its successor.
/// Derefs to a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<NodeId>")]
pub struct PreferenceList(Vec<NodeId>);

impl PreferenceList {
    /// The first of the list, the owner of the partition's arc.
    #[must_use]
    pub fn primary(&self) -> Option<NodeId> {
        self.0.first().copied()
    }

    /// Whether both lists name the same nodes, in whatever order.
    #[must_use]
    pub fn same_nodes(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|node| other.contains(node))
    }

    /// The nodes of this list that `other` does not name, in this list's order.
    pub fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = NodeId> + 'a {
        self.iter().copied().filter(|node| !other.contains(node))
    }
}

impl Deref for PreferenceList {
    type Target = [NodeId];

    fn deref(&self) -> &[NodeId] {
        &self.0
    }
}

impl From<&[NodeId]> for PreferenceList {
    /// The list in the given order; a node named again is left out.
    fn from(nodes: &[NodeId]) -> Self {
        let mut list = Vec::with_capacity(nodes.len());
        for node in nodes {
            if !list.contains(node) {
                list.push(*node);
            }
        }
        Self(list)
    }
}

impl From<Vec<NodeId>> for PreferenceList {
    /// As from a slice.
    fn from(nodes: Vec<NodeId>) -> Self {
        Self::from(nodes.as_slice())
    }
}

/// What one node holds, in partitions, and what would be fair.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct NodeLoad {
    /// Partitions whose preference list starts with the node.
    pub primaries: u32,
    /// Partitions whose preference list names the node.
    pub replicas: u32,
    /// Partitions the node leads.
    pub leads: u32,
    /// Primaries and leads in proportion to the weights.
    pub fair_primaries: f64,
    /// Replicas in proportion to the weights, as far as one replica a node and the
    /// spread over zones permit.
    pub fair_replicas: f64,
}

/// The busiest node's load over its fair share; 1 is perfectly even. An empty ring
/// is even.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Balance {
    /// Of the partitions a node is first in the list of.
    pub primary_peak_to_mean: f64,
    /// Of the partitions a node holds a replica of.
    pub replica_peak_to_mean: f64,
    /// Of the partitions a node leads.
    pub lead_peak_to_mean: f64,
}

/// Preference list and lead of every partition.
///
/// Immutable; recomputed when the topology changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    partitions: Partitions,
    replicas: u8,
    members: Members,
    /// `width` nodes a partition, one list after the other.
    nodes: Vec<NodeId>,
    width: usize,
    leads: Vec<NodeId>,
}

impl Placement {
    /// Places every partition with `replicas` replicas on the nodes of `ring` that
    /// `specs` describes; positions of other nodes are passed over, and so are
    /// specifications without a position.
    ///
    /// Every list has min(`replicas`, nodes) distinct nodes; no two of one zone if
    /// there are at least `replicas` zones, and otherwise as even over the zones as
    /// their sizes permit.
    ///
    /// O(partitions + positions) walks and the balancing of leads.
    #[must_use]
    pub fn compute(
        ring: &Ring,
        partitions: Partitions,
        replicas: u8,
        specs: &BTreeMap<NodeId, NodeSpec>,
    ) -> Self {
        let members = Members::of_ring(ring, specs);
        let spread = Spread::new(&members, replicas);
        let lists = walk_all(ring, partitions, &members, &spread);
        let leads = lead::assign(&lists, spread.width(), &members, partitions);
        let ids = |list: &[Member]| list.iter().map(|member| members.id(*member)).collect();
        Self {
            partitions,
            replicas,
            nodes: ids(&lists),
            width: spread.width(),
            leads: ids(&leads),
            members,
        }
    }

    /// How many partitions are placed.
    #[must_use]
    pub const fn partitions(&self) -> Partitions {
        self.partitions
    }

    /// How many replicas were asked for.
    #[must_use]
    pub const fn replicas(&self) -> u8 {
        self.replicas
    }

    /// The nodes that hold a partition, the primary first. Empty if the ring is.
    ///
    /// Constant time. A number beyond the last partition wraps around the ring.
    #[must_use]
    pub fn nodes(&self, partition: Partition) -> &[NodeId] {
        let first = self.index(partition) * self.width;
        &self.nodes[first..first + self.width]
    }

    /// [`Placement::nodes`] as a value of its own.
    #[must_use]
    pub fn list(&self, partition: Partition) -> PreferenceList {
        PreferenceList(self.nodes(partition).to_vec())
    }

    /// The first node of a partition's list.
    #[must_use]
    pub fn primary(&self, partition: Partition) -> Option<NodeId> {
        self.nodes(partition).first().copied()
    }

    /// The node that coordinates the writes of a partition while it is alive: one of
    /// the partition's list, `None` only if the ring is empty. Constant time.
    #[must_use]
    pub fn lead(&self, partition: Partition) -> Option<NodeId> {
        self.leads.get(self.index(partition)).copied()
    }

    /// The partition and the nodes that hold a token.
    #[must_use]
    pub fn locate(&self, token: Token) -> (Partition, &[NodeId]) {
        let partition = self.partitions.of(token);
        (partition, self.nodes(partition))
    }

    /// What every node holds. O(partitions).
    #[must_use]
    pub fn loads(&self) -> BTreeMap<NodeId, NodeLoad> {
        let spread = Spread::new(&self.members, self.replicas);
        let replicas = share::of_replicas(&self.members, &spread, self.partitions);
        let leads = share::of_leads(&self.members, self.partitions);
        let mut loads: BTreeMap<_, _> = self
            .members
            .iter()
            .map(|member| {
                let load = NodeLoad {
                    primaries: 0,
                    replicas: 0,
                    leads: 0,
                    fair_primaries: share::in_partitions(leads[member as usize]),
                    fair_replicas: share::in_partitions(replicas[member as usize]),
                };
                (self.members.id(member), load)
            })
            .collect();
        let mut count = |node: &NodeId, add: fn(&mut NodeLoad)| {
            loads.entry(*node).and_modify(add);
        };
        for partition in self.partitions.iter() {
            for node in self.nodes(partition) {
                count(node, |load| load.replicas += 1);
            }
            if let Some(primary) = self.primary(partition) {
                count(&primary, |load| load.primaries += 1);
            }
        }
        for lead in &self.leads {
            count(lead, |load| load.leads += 1);
        }
        loads
    }

    /// How even the loads are. O(partitions).
    #[must_use]
    pub fn balance(&self) -> Balance {
        let even = Balance {
            primary_peak_to_mean: 1.0,
            replica_peak_to_mean: 1.0,
            lead_peak_to_mean: 1.0,
        };
        let peak = |held: u32, fair: f64, so_far: f64| so_far.max(f64::from(held) / fair);
        self.loads().values().fold(even, |so_far, load| Balance {
            primary_peak_to_mean: peak(
                load.primaries,
                load.fair_primaries,
                so_far.primary_peak_to_mean,
            ),
            replica_peak_to_mean: peak(
                load.replicas,
                load.fair_replicas,
                so_far.replica_peak_to_mean,
            ),
            lead_peak_to_mean: peak(load.leads, load.fair_primaries, so_far.lead_peak_to_mean),
        })
    }

    fn index(&self, partition: Partition) -> usize {
        partition.index() % self.partitions.count() as usize
    }
}

/// The lists of all partitions, one after the other. Partitions of one arc share
/// theirs, so each arc is walked once.
fn walk_all(
    ring: &Ring,
    partitions: Partitions,
    members: &Members,
    spread: &Spread,
) -> Vec<Member> {
    let placed = |(token, node)| members.find(node).map(|member| (token, member));
    let positions: Vec<(Token, Member)> = ring.iter().filter_map(placed).collect();
    let mut lists = Vec::with_capacity(partitions.count() as usize * spread.width());
    let mut walk = Walk::new(members, spread);
    let mut walked = None;
    for partition in partitions.iter() {
        let after = |(token, _): &(Token, Member)| *token < partitions.end(partition);
        let successor = match walked {
            Some(at) if at == positions.len() || !after(&positions[at]) => at,
            _ => positions.partition_point(after),
        };
        if walked != Some(successor) {
            walk.restart();
            let (before, from) = positions.split_at(successor);
            let mut around = from.iter().chain(before);
            while let (false, Some((_, member))) = (walk.is_complete(), around.next()) {
                walk.offer(*member);
            }
            walked = Some(successor);
        }
        lists.extend_from_slice(walk.picked());
    }
    lists
}

#[cfg(test)]
mod tests;
