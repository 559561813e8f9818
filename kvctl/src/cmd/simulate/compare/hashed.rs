//! Methods that compute the node: modulo, jump and rendezvous.

use super::{Placement, mixed_with};

/// The remainder of a key numbers its node.
pub(super) struct Modulo {
    nodes: Vec<u32>,
}

impl Modulo {
    pub(super) fn of(nodes: u32) -> Self {
        let nodes = (0..nodes).collect();
        Self { nodes }
    }
}

impl Placement for Modulo {
    fn node(&self, key: u64) -> u32 {
        self.nodes[(key % self.nodes.len() as u64) as usize]
    }

    fn join(&mut self, node: u32) {
        self.nodes.push(node);
    }

    fn leave(&mut self, node: u32) {
        self.nodes.retain(|it| *it != node);
    }

    fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<u32>()
    }
}

/// A key jumps from bucket to bucket as buckets are added. Only the last bucket can be removed:
/// when another node leaves, the last bucket's node takes over its bucket, so both nodes' keys
/// move.
pub(super) struct Jump {
    nodes: Vec<u32>,
}

impl Jump {
    pub(super) fn of(nodes: u32) -> Self {
        let nodes = (0..nodes).collect();
        Self { nodes }
    }

    /// The source's algorithm, figure 1.
    fn bucket(mut key: u64, buckets: usize) -> usize {
        let (mut bucket, mut next) = (0_usize, 0_usize);
        while next < buckets {
            bucket = next;
            key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
            let leap = (1_u64 << 31) as f64 / ((key >> 33) + 1) as f64;
            next = ((bucket + 1) as f64 * leap) as usize;
        }
        bucket
    }
}

impl Placement for Jump {
    fn node(&self, key: u64) -> u32 {
        self.nodes[Self::bucket(key, self.nodes.len())]
    }

    fn join(&mut self, node: u32) {
        self.nodes.push(node);
    }

    fn leave(&mut self, node: u32) {
        if let Some(bucket) = self.nodes.iter().position(|it| *it == node) {
            self.nodes.swap_remove(bucket);
        }
    }

    fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<u32>()
    }
}

/// Each node bids a hash of itself and the key; the highest bid wins.
pub(super) struct Rendezvous {
    nodes: Vec<u32>,
}

impl Rendezvous {
    pub(super) fn of(nodes: u32) -> Self {
        let nodes = (0..nodes).collect();
        Self { nodes }
    }
}

impl Placement for Rendezvous {
    fn node(&self, key: u64) -> u32 {
        let bids = self.nodes.iter();
        let highest = bids.max_by_key(|node| mixed_with(key, u64::from(**node)));
        highest.copied().unwrap_or_default()
    }

    fn join(&mut self, node: u32) {
        self.nodes.push(node);
    }

    fn leave(&mut self, node: u32) {
        self.nodes.retain(|it| *it != node);
    }

    fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<u32>()
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
    fn modulo_moves_nearly_all_keys() {
        let mut modulo = Modulo::of(9);
        let before = nodes_of(&modulo);
        modulo.join(9);
        let moved = before
            .iter()
            .zip(nodes_of(&modulo))
            .filter(|(a, b)| **a != *b);
        let share = moved.count() as f64 / before.len() as f64;
        assert!((share - 0.9).abs() < 0.02, "m/(m+1): {share}");
    }

    #[test]
    fn jump_moves_the_least_when_a_bucket_comes_and_when_the_last_goes() {
        let mut jump = Jump::of(10);
        assert!(peak_to_mean(&jump, 10) < 1.1);
        let before = nodes_of(&jump);
        joins_move_keys_to_the_newcomer_alone(&mut jump, 10);
        leaves_move_the_leavers_keys_alone(&mut jump, 10);
        assert_eq!(nodes_of(&jump), before, "back as it was");
        jump.leave(3);
        let after = nodes_of(&jump);
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b);
        let others = moved.filter(|(before, after)| (**before, **after) != (9, 3) && **before != 3);
        // The last bucket's keys return to the buckets that they had with one bucket fewer.
        assert!(others.clone().all(|(before, _)| *before == 9));
        assert!(others.count() > 0);
    }

    /// The values of the paper's algorithm in C.
    #[test]
    fn jump_agrees_with_its_source() {
        let buckets: Vec<_> = [1, 2, 3, 10, 100, 1_000].map(|n| Jump::bucket(0, n)).into();
        assert_eq!(buckets, [0; 6], "key 0 never leaps");
        for key in 1..200_u64 {
            let of = |n| Jump::bucket(key.wrapping_mul(0x9e37_79b9_7f4a_7c15), n);
            for n in 1..100 {
                assert!(
                    of(n + 1) == of(n) || of(n + 1) == n,
                    "to the new one or nowhere"
                );
            }
        }
    }

    #[test]
    fn rendezvous_moves_the_least_whoever_comes_or_goes() {
        let mut rendezvous = Rendezvous::of(10);
        assert!(peak_to_mean(&rendezvous, 10) < 1.1);
        leaves_move_the_leavers_keys_alone(&mut rendezvous, 4);
        leaves_move_the_leavers_keys_alone(&mut rendezvous, 0);
        joins_move_keys_to_the_newcomer_alone(&mut rendezvous, 77);
    }
}
