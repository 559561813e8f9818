//! Node positions on the circle, and their successors.
//!
//! A node at token `t` owns `(previous, t]`, so the owner of a token is the first
//! position at or after it, and after the last position the first one follows.
//!
//! The ring accepts any token. [`Ring::check_borders`] checks that positions lie on
//! partition borders, because the ring does not know the cluster's number of
//! partitions.

use std::collections::{BTreeMap, BTreeSet};

use crate::{NodeId, Partitions, Token};

/// Positions of nodes, in ring order.
///
/// Serialised as a list of `[token, node]` pairs in ring order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(into = "Vec<(Token, NodeId)>", try_from = "Vec<(Token, NodeId)>")]
pub struct Ring {
    positions: BTreeMap<Token, NodeId>,
}

/// Why a position was refused. The ring is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum RingError {
    /// Another node is at this token. Choose another token, or remove that node first.
    #[error("position {token} is taken by node {by}: choose another")]
    Taken {
        /// The requested token.
        token: Token,
        /// The node at the token.
        by: NodeId,
    },
    /// A position inside a partition, which would have two owners.
    #[error(
        "position {token} is not on a border of {partitions} partitions: use a partition's end"
    )]
    OffBorder {
        /// The position found.
        token: Token,
        /// Number of partitions of the cluster.
        partitions: u32,
    },
}

impl Ring {
    /// A ring without positions.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            positions: BTreeMap::new(),
        }
    }

    /// The first position at or after `token`, across the end of the circle if
    /// necessary. `None` only for an empty ring. O(log positions).
    #[must_use]
    pub fn successor(&self, token: Token) -> Option<(Token, NodeId)> {
        let (&token, &node) = self.successors(token).next()?;
        Some((token, node))
    }

    /// Once around the ring from the first position at or after `token`.
    pub fn successors(&self, token: Token) -> impl Iterator<Item = (&Token, &NodeId)> {
        let before = self.positions.range(..token);
        self.positions.range(token..).chain(before)
    }

    /// The node exactly at `token`.
    #[must_use]
    pub fn get(&self, token: Token) -> Option<NodeId> {
        self.positions.get(&token).copied()
    }

    /// Puts a node at a token.
    ///
    /// # Errors
    /// [`RingError::Taken`] if a node is there, even the same one.
    pub fn insert(&mut self, token: Token, node: NodeId) -> Result<(), RingError> {
        if let Some(&by) = self.positions.get(&token) {
            return Err(RingError::Taken { token, by });
        }
        self.positions.insert(token, node);
        Ok(())
    }

    /// Removes the position at a token and returns its node.
    pub fn remove(&mut self, token: Token) -> Option<NodeId> {
        self.positions.remove(&token)
    }

    /// Removes all positions of a node and returns their number.
    pub fn remove_node(&mut self, node: NodeId) -> usize {
        let before = self.positions.len();
        self.positions.retain(|_, owner| *owner != node);
        before - self.positions.len()
    }

    /// Every position, in ring order from token 0.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Token, NodeId)> + DoubleEndedIterator {
        self.positions.iter().map(|(&token, &node)| (token, node))
    }

    /// The positions of one node, in ring order. O(positions).
    pub fn positions_of(&self, node: NodeId) -> impl Iterator<Item = Token> {
        let of_node = move |(token, owner)| (owner == node).then_some(token);
        self.iter().filter_map(of_node)
    }

    /// The nodes that have a position.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.positions.values().copied().collect()
    }

    /// Whether a node has a position. O(positions).
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.positions.values().any(|owner| *owner == node)
    }

    /// The number of positions of all nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether the ring has no positions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Checks that every position is the end of a partition.
    ///
    /// # Errors
    /// [`RingError::OffBorder`] with the first position that is not.
    pub fn check_borders(&self, partitions: Partitions) -> Result<(), RingError> {
        let off = |token: &Token| partitions.ending_at(*token).is_none();
        match self.positions.keys().copied().find(off) {
            None => Ok(()),
            Some(token) => Err(RingError::OffBorder {
                token,
                partitions: partitions.count(),
            }),
        }
    }
}

impl From<Ring> for Vec<(Token, NodeId)> {
    fn from(ring: Ring) -> Self {
        ring.positions.into_iter().collect()
    }
}

impl TryFrom<Vec<(Token, NodeId)>> for Ring {
    type Error = RingError;

    fn try_from(positions: Vec<(Token, NodeId)>) -> Result<Self, Self::Error> {
        let mut ring = Self::new();
        for (token, node) in positions {
            ring.insert(token, node)?;
        }
        Ok(ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(positions: &[(u64, u64)]) -> Ring {
        let pairs: Vec<_> = positions
            .iter()
            .map(|&(token, node)| (Token(token), NodeId(node)))
            .collect();
        Ring::try_from(pairs).unwrap()
    }

    #[test]
    fn a_node_owns_up_to_and_including_its_token() {
        let ring = ring(&[(10, 1), (20, 2)]);
        assert_eq!(ring.successor(Token(10)), Some((Token(10), NodeId(1))));
        assert_eq!(ring.successor(Token(11)), Some((Token(20), NodeId(2))));
        let around = ring.successor(Token(21));
        assert_eq!(
            around,
            Some((Token(10), NodeId(1))),
            "after the last, the first"
        );
        assert_eq!(Ring::new().successor(Token(0)), None);
    }

    #[test]
    fn a_taken_position_is_refused_and_nothing_changes() {
        let mut ring = ring(&[(10, 1)]);
        let refused = ring.insert(Token(10), NodeId(2));
        assert_eq!(
            refused,
            Err(RingError::Taken {
                token: Token(10),
                by: NodeId(1)
            })
        );
        assert_eq!(ring.get(Token(10)), Some(NodeId(1)));
    }

    #[test]
    fn positions_inside_a_partition_are_found() {
        let partitions = Partitions::new(4).unwrap();
        assert_eq!(ring(&[(u64::MAX, 1)]).check_borders(partitions), Ok(()));
        let off = ring(&[(u64::MAX, 1), (5, 1)]).check_borders(partitions);
        assert_eq!(
            off,
            Err(RingError::OffBorder {
                token: Token(5),
                partitions: 4
            })
        );
    }

    #[test]
    fn a_ring_travels_as_pairs_and_doubles_are_refused_on_arrival() {
        let ring = ring(&[(7, 1), (u64::MAX, 2)]);
        let json = serde_json::to_string(&ring).unwrap();
        assert_eq!(json, "[[7,1],[18446744073709551615,2]]");
        assert_eq!(serde_json::from_str::<Ring>(&json).unwrap(), ring);
        assert!(serde_json::from_str::<Ring>("[[7,1],[7,2]]").is_err());
    }

    proptest! {
        #[test]
        fn successor_agrees_with_a_naive_scan(
            positions in proptest::collection::btree_map(0_u64..200, 0_u64..5, 0..20),
            token in 0_u64..220,
        ) {
            let pairs: Vec<_> = positions.into_iter().collect();
            let ring = ring(&pairs);
            let at_or_after = pairs.iter().find(|(position, _)| *position >= token);
            let naive = at_or_after.or(pairs.first());
            let naive = naive.map(|&(position, node)| (Token(position), NodeId(node)));
            prop_assert_eq!(ring.successor(Token(token)), naive);
        }

        #[test]
        fn removing_a_node_takes_its_positions_and_no_other(
            positions in proptest::collection::btree_map(0_u64..200, 0_u64..5, 0..20),
            gone in 0_u64..5,
        ) {
            let pairs: Vec<_> = positions.into_iter().collect();
            let mut removed = ring(&pairs);
            let count = removed.remove_node(NodeId(gone));
            let kept: Vec<_> = pairs.iter().copied().filter(|(_, node)| *node != gone).collect();
            prop_assert_eq!(count, pairs.len() - kept.len());
            prop_assert_eq!(removed, ring(&kept));
        }
    }
}
