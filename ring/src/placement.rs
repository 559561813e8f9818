//! The replicas and the lead of every partition.
//!
//! A [walk](crate::walk) from the partition's successor picks its preference list. Its
//! first node is the *primary*. The *lead*, to which writes go, is one of the list: the
//! primary if that keeps leads balanced, else a later node ([`crate::lead`]).

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::walk::{Member, Members, Spread, Walk};
use crate::{NodeId, NodeSpec, Partition, Partitions, Ring, Token, lead, share};

/// The distinct replicas of a partition, in ring order from its successor. Derefs to a
/// slice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<NodeId>")]
pub struct PreferenceList(Vec<NodeId>);

impl PreferenceList {
    /// The first of the list, the owner of the partition's arc.
    #[must_use]
    pub fn primary(&self) -> Option<NodeId> {
        self.0.first().copied()
    }

    /// Whether both lists have the same nodes, in any order.
    pub(crate) fn same_nodes(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|node| other.contains(node))
    }

    /// The nodes of this list that are not in `other`, in this list's order.
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
    /// The list in the given order, without duplicates.
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

/// One node's load in partitions, and its fair share.
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
    /// Replicas in proportion to the weights, as far as one replica per node and the
    /// spread over zones permit.
    pub fair_replicas: f64,
}

/// The busiest node's load over its fair share; 1 is perfectly balanced, as is an empty
/// ring.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Balance {
    /// By primaries.
    pub primary_peak_to_mean: f64,
    /// By replicas.
    pub replica_peak_to_mean: f64,
    /// By leads.
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
    /// `width` nodes per partition, one list after the other.
    nodes: Vec<NodeId>,
    width: usize,
    leads: Vec<NodeId>,
}

impl Placement {
    /// Places every partition with `replicas` replicas on the nodes of `ring` that
    /// `specs` describes; ignores positions of other nodes, and specifications without
    /// a position.
    ///
    /// Every list has min(`replicas`, nodes) distinct nodes: all of different zones if
    /// there are at least `replicas` zones, else as evenly over the zones as their
    /// sizes permit.
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

    /// The number of partitions.
    #[must_use]
    pub const fn partitions(&self) -> Partitions {
        self.partitions
    }

    /// The requested number of replicas.
    #[must_use]
    pub const fn replicas(&self) -> u8 {
        self.replicas
    }

    /// The replicas of a partition, the primary first. Empty if the ring is empty.
    ///
    /// Constant time. A number beyond the last partition wraps around the ring.
    #[must_use]
    pub fn nodes(&self, partition: Partition) -> &[NodeId] {
        let first = self.index(partition) * self.width;
        &self.nodes[first..first + self.width]
    }

    /// [`Placement::nodes`] as an owned list.
    #[must_use]
    pub fn list(&self, partition: Partition) -> PreferenceList {
        PreferenceList(self.nodes(partition).to_vec())
    }

    /// The first node of a partition's list.
    #[must_use]
    pub fn primary(&self, partition: Partition) -> Option<NodeId> {
        self.nodes(partition).first().copied()
    }

    /// The node that coordinates writes of a partition while it is up: one of the
    /// partition's list, `None` only if the ring is empty. Constant time.
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

    /// The load of every node. O(partitions).
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

    /// The balance of the loads. O(partitions).
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

/// The lists of all partitions, one after the other. Partitions of one arc share their
/// list, so each arc needs one walk.
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
