//! Walks along the ring pick replicas.
//!
//! A walk visits positions in ring order and picks distinct nodes, in rounds over
//! the zones: every zone's first node before any zone's second, and so on, until
//! min(replicas, nodes) are picked. With one zone this is "the next distinct nodes";
//! with at least as many zones as replicas it is "the next nodes of distinct zones".
//!
//! The number of full rounds follows from the sizes of the zones alone, so a walk can
//! decide on each node when it meets it: it picks a node whose zone is still within the
//! full rounds, or that is among the first of the last, incomplete round. As long as
//! the number of rounds stays the same, adding a node to a walk adds at most that node
//! to the picks and removes at most one other: this is why a join moves nothing between
//! two old nodes.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a member has a number of 32 bits"
)]

use std::collections::{BTreeMap, BTreeSet};

use crate::{NodeId, NodeSpec, Ring, Zone};

/// Index of a node among the [`Members`].
pub(crate) type Member = u32;

/// The nodes with a position and a specification, indexed densely in the order of their
/// ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Members {
    ids: Vec<NodeId>,
    weights: Vec<u32>,
    zones: Vec<u32>,
    zone_sizes: Vec<usize>,
}

impl Members {
    /// The nodes of `ring` that `specs` describes.
    pub(crate) fn of_ring(ring: &Ring, specs: &BTreeMap<NodeId, NodeSpec>) -> Self {
        let on_ring = ring.nodes();
        Self::new(specs.values().filter(|spec| on_ring.contains(&spec.id)))
    }

    /// These nodes, in the order of their ids.
    pub(crate) fn new<'a>(specs: impl Iterator<Item = &'a NodeSpec>) -> Self {
        let mut specs: Vec<_> = specs.collect();
        specs.sort_unstable_by_key(|spec| spec.id);
        specs.dedup_by_key(|spec| spec.id);
        let names: BTreeSet<&Zone> = specs.iter().map(|spec| &spec.zone).collect();
        let numbers: BTreeMap<&Zone, u32> = names.into_iter().zip(0..).collect();
        let zones: Vec<u32> = specs.iter().map(|spec| numbers[&spec.zone]).collect();
        let mut zone_sizes = vec![0; numbers.len()];
        for &zone in &zones {
            zone_sizes[zone as usize] += 1;
        }
        Self {
            ids: specs.iter().map(|spec| spec.id).collect(),
            weights: specs.iter().map(|spec| spec.weight.percent()).collect(),
            zones,
            zone_sizes,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn zone_sizes(&self) -> &[usize] {
        &self.zone_sizes
    }

    pub(crate) fn id(&self, member: Member) -> NodeId {
        self.ids[member as usize]
    }

    pub(crate) fn weight(&self, member: Member) -> u32 {
        self.weights[member as usize]
    }

    pub(crate) fn zone(&self, member: Member) -> u32 {
        self.zones[member as usize]
    }

    pub(crate) fn find(&self, id: NodeId) -> Option<Member> {
        self.ids.binary_search(&id).ok().map(|at| at as Member)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Member> + use<> {
        0..self.ids.len() as Member
    }
}

/// The number of nodes that a walk picks, in all and from each zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spread {
    width: usize,
    zones: Vec<ZoneQuota>,
    /// Picks in the last, incomplete round.
    extras: usize,
}

/// One zone's part of every preference list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ZoneQuota {
    /// Always picked.
    pub(crate) least: usize,
    /// Picked if the walk meets them in time: `least` or one more.
    pub(crate) most: usize,
}

impl Spread {
    pub(crate) fn new(members: &Members, replicas: u8) -> Self {
        let sizes = members.zone_sizes();
        let width = usize::from(replicas).min(members.len());
        let picked_in = |rounds: usize| sizes.iter().map(|size| rounds.min(*size)).sum::<usize>();
        let rounds = (0..width)
            .rev()
            .find(|rounds| picked_in(*rounds) <= width && picked_in(rounds + 1) > width)
            .unwrap_or(width);
        let quota = |size: &usize| ZoneQuota {
            least: rounds.min(*size),
            most: (rounds + 1).min(*size),
        };
        Self {
            width,
            zones: sizes.iter().map(quota).collect(),
            extras: width - picked_in(rounds),
        }
    }

    /// Length of every preference list: min(replicas, nodes).
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn quota(&self, zone: usize) -> ZoneQuota {
        self.zones[zone]
    }
}

/// One walk. Offer it the nodes in ring order until it is complete.
#[derive(Debug, Clone)]
pub(crate) struct Walk<'a> {
    members: &'a Members,
    spread: &'a Spread,
    picked: Vec<Member>,
    extras_left: usize,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(members: &'a Members, spread: &'a Spread) -> Self {
        Self {
            members,
            spread,
            picked: Vec::with_capacity(spread.width),
            extras_left: spread.extras,
        }
    }

    /// Starts over, keeping the memory.
    pub(crate) fn restart(&mut self) {
        self.picked.clear();
        self.extras_left = self.spread.extras;
    }

    /// Continues from the state of another walk under the same rules, keeping the memory.
    pub(crate) fn resume(&mut self, other: &Self) {
        self.picked.clear();
        self.picked.extend_from_slice(&other.picked);
        self.extras_left = other.extras_left;
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.picked.len() == self.spread.width
    }

    /// Picks `node`, unless it is already picked or its zone must wait.
    pub(crate) fn offer(&mut self, node: Member) {
        if self.is_complete() || self.picked.contains(&node) {
            return;
        }
        let zone = self.members.zone(node);
        let quota = self.spread.quota(zone as usize);
        let of_zone = |picked: &&Member| self.members.zone(**picked) == zone;
        let already = self.picked.iter().filter(of_zone).count();
        if already < quota.least {
            self.picked.push(node);
        } else if already < quota.most && self.extras_left > 0 {
            self.extras_left -= 1;
            self.picked.push(node);
        }
    }

    /// The nodes picked so far, in order.
    pub(crate) fn picked(&self) -> &[Member] {
        &self.picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weight;

    fn members(zones: &[&str]) -> Members {
        let spec = |(id, zone): (usize, &&str)| NodeSpec {
            id: NodeId(id as u64),
            zone: Zone::new(*zone).unwrap(),
            weight: Weight::NORMAL,
        };
        let specs: Vec<_> = zones.iter().enumerate().map(spec).collect();
        Members::new(specs.iter())
    }

    fn walk(zones: &[&str], replicas: u8, order: &[Member]) -> Vec<Member> {
        let members = members(zones);
        let spread = Spread::new(&members, replicas);
        let mut walk = Walk::new(&members, &spread);
        for node in order {
            walk.offer(*node);
        }
        walk.picked().to_vec()
    }

    #[test]
    fn without_zones_the_next_distinct_nodes_are_picked() {
        assert_eq!(walk(&["a"; 4], 3, &[2, 2, 0, 2, 3, 1]), [2, 0, 3]);
    }

    #[test]
    fn with_enough_zones_no_two_replicas_share_one() {
        let zones = ["a", "a", "b", "b", "c"];
        assert_eq!(walk(&zones, 3, &[0, 1, 2, 3, 4]), [0, 2, 4]);
    }

    #[test]
    fn with_fewer_zones_than_replicas_each_zone_gets_its_turn_in_rounds() {
        let zones = ["a", "a", "a", "a", "b", "b"];
        let picked = walk(&zones, 5, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(picked, [0, 1, 2, 4, 5], "three of a only as b has but two");
        let picked = walk(&zones, 3, &[0, 1, 2, 4, 5]);
        assert_eq!(picked, [0, 1, 4], "the second round goes by ring order");
        let picked = walk(&zones, 2, &[0, 1, 4]);
        assert_eq!(picked, [0, 4]);
    }

    #[test]
    fn fewer_nodes_than_replicas_are_all_picked() {
        assert_eq!(walk(&["a", "a"], 3, &[1, 1, 0]), [1, 0]);
        assert_eq!(walk(&["a", "b"], 3, &[1, 1, 0]), [1, 0]);
        assert!(walk(&[], 3, &[]).is_empty());
    }
}
