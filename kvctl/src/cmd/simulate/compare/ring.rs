//! Rings: Torc's planned positions, random positions, and ketama's.

use std::collections::BTreeMap;

use torc_ring::{Change, NodeId, NodeSpec, Ring, Token, Weight, Zone, allocate};

use super::{Placement, Size, mixed_with};
use crate::failure::Failure;

/// Points in order, each with its node. The successor of a key owns it.
struct Points<T> {
    points: Vec<(T, u32)>,
}

impl<T: Ord + Copy> Points<T> {
    fn add(&mut self, points: impl Iterator<Item = (T, u32)>) {
        self.points.extend(points);
        self.points.sort_unstable();
    }

    fn remove(&mut self, node: u32) {
        self.points.retain(|(_, of)| *of != node);
    }

    fn successor(&self, key: T) -> u32 {
        let at = self.points.partition_point(|(point, _)| *point < key);
        let found = self.points.get(at).or_else(|| self.points.first());
        found.map_or(0, |(_, node)| *node)
    }

    fn bytes(&self) -> usize {
        self.points.len() * size_of::<(T, u32)>()
    }
}

/// The textbook ring: each node at some hashes of its name.
pub(super) struct Random {
    points: Points<u64>,
    positions: u16,
    seed: u64,
}

impl Random {
    pub(super) fn of(nodes: u32, positions: u16, seed: u64) -> Self {
        let points = Points { points: Vec::new() };
        let mut ring = Self {
            points,
            positions,
            seed,
        };
        (0..nodes).for_each(|node| ring.join(node));
        ring
    }
}

impl Placement for Random {
    fn node(&self, key: u64) -> u32 {
        self.points.successor(key)
    }

    fn join(&mut self, node: u32) {
        let of = mixed_with(self.seed, u64::from(node));
        let points = (0..self.positions).map(|number| (mixed_with(of, u64::from(number)), node));
        self.points.add(points);
    }

    fn leave(&mut self, node: u32) {
        self.points.remove(node);
    }

    fn bytes(&self) -> usize {
        self.points.bytes()
    }
}

/// Digests of a node's name and a number, of four points each.
const DIGESTS: u32 = 40;

/// libketama's continuum, with BLAKE3 instead of MD5.
pub(super) struct Ketama {
    points: Points<u32>,
}

impl Ketama {
    pub(super) fn of(nodes: u32) -> Self {
        let points = Points { points: Vec::new() };
        let mut ring = Self { points };
        (0..nodes).for_each(|node| ring.join(node));
        ring
    }
}

impl Placement for Ketama {
    fn node(&self, key: u64) -> u32 {
        self.points.successor((key >> 32) as u32)
    }

    fn join(&mut self, node: u32) {
        let key = torc_record::DigestKey([0; 32]);
        let points = (0..DIGESTS).flat_map(|number| {
            let name = format!("node-{node}-{number}");
            let namespace = torc_record::NamespaceId::DEFAULT;
            let digest = torc_record::Digest::of(&key, namespace, name.as_bytes());
            let (points, _) = digest.0.as_chunks::<4>();
            let points = <[[u8; 4]; 4]>::try_from(points).unwrap_or_default();
            points.map(|point| (u32::from_le_bytes(point), node))
        });
        self.points.add(points);
    }

    fn leave(&mut self, node: u32) {
        self.points.remove(node);
    }

    fn bytes(&self) -> usize {
        self.points.bytes()
    }
}

/// Torc's ring: positions planned on partition borders, and a table of partitions, one replica
/// each.
#[derive(Clone)]
pub(super) struct Planned {
    ring: Ring,
    specs: BTreeMap<NodeId, NodeSpec>,
    size: Size,
    table: Vec<u32>,
}

impl Planned {
    /// # Errors
    /// [`Failure::Usage`] if the ring is too small for the nodes and one more.
    pub(super) fn of(size: &Size) -> Result<Self, Failure> {
        let mut planned = Self {
            ring: Ring::new(),
            specs: BTreeMap::new(),
            size: *size,
            table: Vec::new(),
        };
        for node in 0..size.nodes {
            planned.change(node, Change::Join)?;
        }
        planned.clone().change(size.nodes, Change::Join)?;
        Ok(planned)
    }

    fn change(&mut self, node: u32, change: impl Fn(NodeId) -> Change) -> Result<(), Failure> {
        let id = NodeId(u64::from(node));
        let spec = NodeSpec {
            id,
            zone: Zone::default(),
            weight: Weight::default(),
        };
        self.specs.entry(id).or_insert(spec);
        let Size {
            partitions,
            positions,
            ..
        } = self.size;
        let ring = allocate(
            &self.ring,
            partitions,
            1,
            positions,
            &self.specs,
            change(id),
        );
        self.ring = ring.map_err(|error| Failure::Usage(error.to_string()))?;
        if !self.ring.contains(id) {
            self.specs.remove(&id);
        }
        let borders = (0..u64::from(partitions.count())).map(|partition| {
            let width = u64::MAX / u64::from(partitions.count()) + 1;
            let end = partition.wrapping_mul(width).wrapping_add(width - 1);
            self.ring
                .successor(Token(end))
                .map_or(0, |(_, node)| node.0 as u32)
        });
        self.table = borders.collect();
        Ok(())
    }
}

impl Placement for Planned {
    fn node(&self, key: u64) -> u32 {
        let shift = 64 - self.table.len().trailing_zeros();
        // A table of one entry has no index bits.
        self.table[key.checked_shr(shift).unwrap_or(0) as usize]
    }

    fn join(&mut self, node: u32) {
        // `of` has already tried a join.
        let _ = self.change(node, Change::Join);
    }

    fn leave(&mut self, node: u32) {
        let _ = self.change(node, Change::Leave);
    }

    fn bytes(&self) -> usize {
        self.ring.len() * size_of::<(Token, NodeId)>() + self.table.len() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{
        joins_move_keys_to_the_newcomer_alone, leaves_move_the_leavers_keys_alone, nodes_of,
        peak_to_mean,
    };
    use super::*;

    #[test]
    fn on_a_ring_only_keys_of_who_comes_or_goes_move() {
        let mut random = Random::of(10, 32, 1);
        joins_move_keys_to_the_newcomer_alone(&mut random, 10);
        leaves_move_the_leavers_keys_alone(&mut random, 4);
        let mut ketama = Ketama::of(10);
        assert_eq!(ketama.points.points.len(), 1_600);
        assert!(peak_to_mean(&ketama, 10) < 1.3);
        joins_move_keys_to_the_newcomer_alone(&mut ketama, 10);
        leaves_move_the_leavers_keys_alone(&mut ketama, 0);
    }

    #[test]
    fn the_successor_of_a_key_has_it_and_the_first_point_follows_the_last() {
        let points = Points {
            points: vec![(10_u32, 1), (20, 2)],
        };
        let of = |key| points.successor(key);
        assert_eq!([of(0), of(10), of(11), of(20), of(21)], [1, 1, 2, 2, 1]);
    }

    #[test]
    fn planned_positions_are_even_and_those_that_the_ring_has() {
        let size = Size {
            nodes: 10,
            positions: 32,
            partitions: torc_ring::Partitions::new(1024).unwrap(),
            seed: 1,
            keys: 1,
        };
        let mut planned = Planned::of(&size).unwrap();
        assert!(peak_to_mean(&planned, 10) < 1.1);
        for key in (0..1_000_u64).map(super::super::mixed) {
            let (_, node) = planned.ring.successor(Token(key)).unwrap();
            assert_eq!(node.0, u64::from(planned.node(key)));
        }
        let before = nodes_of(&planned);
        joins_move_keys_to_the_newcomer_alone(&mut planned, 10);
        planned.leave(10);
        let moved = before
            .iter()
            .zip(nodes_of(&planned))
            .filter(|(a, b)| **a != *b);
        assert!(moved.count() < before.len() / 10);
    }
}
