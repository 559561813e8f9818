//! AnchorHash: arrays that record the order in which buckets were removed.
//!
//! Of a fixed number of buckets, some are working. A key of a removed bucket goes to a bucket that
//! was working at the time of the removal, and so on. Any bucket can be removed, and only its keys
//! move; the bucket removed last returns first.

use super::{Placement, mixed_with};

/// Buckets per node, to leave room for joins. When none is left, the layout starts again, which
/// moves most keys.
const ROOM: usize = 2;

/// Arrays A, W, L and K and the stack R, named as in the source.
pub(super) struct Anchor {
    /// How many buckets were working after this one was removed; 0: it is working.
    a: Vec<u32>,
    /// Working buckets first.
    w: Vec<u32>,
    /// The position of a bucket in `w`.
    l: Vec<u32>,
    /// The bucket that replaced a removed one.
    k: Vec<u32>,
    /// Removed buckets, the latest last.
    r: Vec<u32>,
    working: usize,
    /// The node of each bucket.
    nodes: Vec<u32>,
}

impl Anchor {
    pub(super) fn of(nodes: u32) -> Self {
        Self::over((0..nodes).collect())
    }

    fn over(nodes: Vec<u32>) -> Self {
        let working = nodes.len();
        let capacity = (working * ROOM).max(working + 1);
        let all: Vec<u32> = (0..capacity as u32).collect();
        let unused = working as u32..capacity as u32;
        let mut a = vec![0; capacity];
        unused
            .clone()
            .for_each(|bucket| a[bucket as usize] = bucket);
        Self {
            a,
            w: all.clone(),
            l: all.clone(),
            k: all,
            r: unused.rev().collect(),
            working,
            nodes: nodes
                .into_iter()
                .chain(std::iter::repeat(0))
                .take(capacity)
                .collect(),
        }
    }

    fn bucket(&self, key: u64) -> usize {
        let mut bucket = (key % self.a.len() as u64) as usize;
        while self.a[bucket] > 0 {
            let then = self.a[bucket];
            let mut next = (mixed_with(key, bucket as u64) % u64::from(then)) as usize;
            while self.a[next] >= then {
                next = self.k[next] as usize;
            }
            bucket = next;
        }
        bucket
    }
}

impl Placement for Anchor {
    fn node(&self, key: u64) -> u32 {
        self.nodes[self.bucket(key)]
    }

    fn join(&mut self, node: u32) {
        let Some(bucket) = self.r.pop() else {
            let mut nodes = self.nodes.clone();
            nodes.push(node);
            *self = Self::over(nodes);
            return;
        };
        let b = bucket as usize;
        self.a[b] = 0;
        self.l[self.w[self.working] as usize] = self.working as u32;
        self.w[self.l[b] as usize] = bucket;
        self.k[b] = bucket;
        self.working += 1;
        self.nodes[b] = node;
    }

    fn leave(&mut self, node: u32) {
        let works = |bucket: &usize| self.a[*bucket] == 0 && self.nodes[*bucket] == node;
        let Some(b) = (0..self.a.len()).find(works) else {
            return;
        };
        self.r.push(b as u32);
        self.working -= 1;
        self.a[b] = self.working as u32;
        let last = self.w[self.working];
        self.w[self.l[b] as usize] = last;
        self.k[b] = last;
        self.l[last as usize] = self.l[b];
    }

    fn bytes(&self) -> usize {
        let arrays = [&self.a, &self.w, &self.l, &self.k, &self.r, &self.nodes];
        arrays
            .iter()
            .map(|it| it.capacity() * size_of::<u32>())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::mixed;
    use super::super::testing::{
        joins_move_keys_to_the_newcomer_alone, leaves_move_the_leavers_keys_alone, nodes_of,
        peak_to_mean,
    };
    use super::*;

    #[test]
    fn any_node_may_go_and_come_and_no_other_keys_move() {
        let mut anchor = Anchor::of(12);
        assert!(peak_to_mean(&anchor, 12) < 1.15);
        let mut there: Vec<u32> = (0..12).collect();
        for step in 0..40_u64 {
            let random = mixed(step) as usize;
            if there.len() > 3 && (random.is_multiple_of(2) || there.len() == 24) {
                let node = there.swap_remove(random / 2 % there.len());
                leaves_move_the_leavers_keys_alone(&mut anchor, node);
            } else {
                let node = 100 + step as u32;
                joins_move_keys_to_the_newcomer_alone(&mut anchor, node);
                there.push(node);
            }
            assert!(
                peak_to_mean(&anchor, there.len()) < 1.25,
                "even at step {step}"
            );
        }
    }

    #[test]
    fn who_went_last_comes_back_to_its_keys() {
        let mut anchor = Anchor::of(8);
        let before = nodes_of(&anchor);
        anchor.leave(5);
        anchor.leave(2);
        anchor.join(2);
        anchor.join(5);
        assert_eq!(nodes_of(&anchor), before);
    }

    #[test]
    fn without_room_the_buckets_are_laid_out_again() {
        let mut anchor = Anchor::of(2);
        (2..9).for_each(|node| anchor.join(node));
        assert!(peak_to_mean(&anchor, 9) < 1.2);
    }
}
