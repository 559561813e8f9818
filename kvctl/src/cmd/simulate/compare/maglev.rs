//! Maglev: nodes fill a table in turn, each in the order of its own permutation.

use super::{Placement, mixed_with};

/// Least slots per node: the source's 100, so that nodes differ by at most 1 %.
const SLOTS: usize = 100;

/// A table of nodes; its length is a prime.
pub(super) struct Maglev {
    nodes: Vec<u32>,
    table: Vec<u32>,
}

impl Maglev {
    /// Sizes the table for the initial nodes; it keeps this length.
    pub(super) fn of(nodes: u32) -> Self {
        // There is a prime between a number and its double (Bertrand).
        let least = SLOTS * (nodes as usize + 1);
        let len = (least..2 * least)
            .find(|len| is_prime(*len))
            .unwrap_or(least);
        let mut maglev = Self {
            nodes: (0..nodes).collect(),
            table: vec![0; len],
        };
        maglev.populate();
        maglev
    }

    /// The source's pseudocode 1.
    fn populate(&mut self) {
        let len = self.table.len();
        let permutation = |node: u32| {
            let offset = mixed_with(1, u64::from(node)) % len as u64;
            let skip = mixed_with(2, u64::from(node)) % (len as u64 - 1) + 1;
            (offset as usize, skip as usize)
        };
        let mut turns: Vec<_> = self.nodes.iter().map(|node| permutation(*node)).collect();
        let mut taken = vec![false; len];
        let mut filled = 0;
        while !turns.is_empty() {
            for ((slot, skip), node) in turns.iter_mut().zip(&self.nodes) {
                while taken[*slot] {
                    *slot = (*slot + *skip) % len;
                }
                taken[*slot] = true;
                self.table[*slot] = *node;
                filled += 1;
                if filled == len {
                    return;
                }
            }
        }
    }
}

fn is_prime(number: usize) -> bool {
    number > 1 && (2..=number.isqrt()).all(|it| !number.is_multiple_of(it))
}

impl Placement for Maglev {
    fn node(&self, key: u64) -> u32 {
        self.table[(key % self.table.len() as u64) as usize]
    }

    fn join(&mut self, node: u32) {
        self.nodes.push(node);
        self.populate();
    }

    fn leave(&mut self, node: u32) {
        self.nodes.retain(|it| *it != node);
        self.populate();
    }

    fn bytes(&self) -> usize {
        (self.nodes.len() + self.table.len()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::nodes_of;
    use super::*;

    fn slots(maglev: &Maglev) -> Vec<usize> {
        let of = |node: &u32| maglev.table.iter().filter(|it| *it == node).count();
        maglev.nodes.iter().map(of).collect()
    }

    #[test]
    fn nodes_have_equally_many_slots_but_for_one() {
        for nodes in [1, 2, 3, 10, 97] {
            let mut maglev = Maglev::of(nodes);
            assert!(is_prime(maglev.table.len()));
            maglev.join(nodes);
            if nodes > 1 {
                maglev.leave(0);
            }
            let slots = slots(&maglev);
            let (least, most) = (slots.iter().min().unwrap(), slots.iter().max().unwrap());
            assert!(most - least <= 1, "{slots:?}");
        }
    }

    #[test]
    fn a_leave_moves_few_other_keys() {
        let mut maglev = Maglev::of(20);
        let before = nodes_of(&maglev);
        maglev.leave(7);
        let after = nodes_of(&maglev);
        let pairs = || before.iter().zip(&after);
        assert!(pairs().all(|(_, after)| *after != 7));
        let others = pairs().filter(|(before, after)| before != after && **before != 7);
        let share = others.count() as f64 / before.len() as f64;
        assert!(
            share > 0.0 && share < 0.05,
            "a disruption, and a small one: {share}"
        );
    }
}
