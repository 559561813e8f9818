//! Assigns a lead to each partition.
//!
//! Writes of a partition go to its lead, so leads should follow the weights. Starting
//! from the primaries, leads move along chains of nodes that share partitions, from
//! nodes above their quota to the nearest node below its quota: augmenting paths of a
//! flow, which find a balanced assignment whenever the lists permit one. Shortest
//! chains come first and no lead moves unnecessarily, so most leads stay with their
//! primaries.
//!
//! The quotas minimise the busiest node's lead share: the share times the lowest factor
//! at which the quotas, rounded down, suffice for all partitions (d'Hondt's method). If
//! the lists do not permit them, leads still go from busier to less busy nodes.
//!
//! The result depends only on the lists and weights, so every node and client that
//! knows the ring knows the leads.

use std::collections::VecDeque;

use crate::Partitions;
use crate::share::{self, UNITS};
use crate::walk::{Member, Members};

/// The lead of every partition. `lists` holds `width` members per partition; an empty ring has no
/// leads.
pub(crate) fn assign(
    lists: &[Member],
    width: usize,
    members: &Members,
    partitions: Partitions,
) -> Vec<Member> {
    if width == 0 {
        return Vec::new();
    }
    let mut leads = Leads::primaries(lists, width, members, partitions);
    for source in members.iter() {
        while leads.is_over(source) {
            let Some(chain) = leads.chain_from(source) else {
                break;
            };
            leads.hand_along(&chain);
        }
    }
    leads.of_partition
}

/// One step of a chain: this partition gets this lead instead.
#[derive(Clone, Copy)]
struct Handover {
    partition: usize,
    to: Member,
}

struct Leads<'a> {
    lists: &'a [Member],
    width: usize,
    of_partition: Vec<Member>,
    /// Partitions that each member leads. The order has no meaning, but is deterministic.
    led_by: Vec<Vec<usize>>,
    shares: Vec<u64>,
    /// Least and most leads of each member.
    quotas: Vec<(usize, usize)>,
}

impl<'a> Leads<'a> {
    fn primaries(
        lists: &'a [Member],
        width: usize,
        members: &Members,
        partitions: Partitions,
    ) -> Self {
        let of_partition: Vec<Member> = lists.iter().step_by(width).copied().collect();
        let mut led_by = vec![Vec::new(); members.len()];
        for (partition, lead) in of_partition.iter().enumerate() {
            led_by[*lead as usize].push(partition);
        }
        let shares = share::of_leads(members, partitions);
        Self {
            lists,
            width,
            of_partition,
            led_by,
            quotas: quotas(&shares, partitions),
            shares,
        }
    }

    fn count(&self, member: Member) -> usize {
        self.led_by[member as usize].len()
    }

    fn is_over(&self, member: Member) -> bool {
        self.count(member) > self.quotas[member as usize].1
    }

    /// Whether `to`, with one more lead, would still be less busy than `from`.
    fn relieves(&self, to: Member, from: Member) -> bool {
        let scaled =
            |count: usize, other: Member| count as u128 * u128::from(self.shares[other as usize]);
        scaled(self.count(to) + 1, from) < scaled(self.count(from), to)
    }

    /// The shortest chain to a member below its share, else to one that may take one
    /// more, else to a less busy one, by breadth-first search.
    fn chain_from(&self, source: Member) -> Option<Vec<Handover>> {
        let mut reached_by: Vec<Option<(Member, Handover)>> = vec![None; self.led_by.len()];
        let mut queue = VecDeque::from([source]);
        let (mut below_most, mut less_busy) = (None, None);
        while let Some(from) = queue.pop_front() {
            for &partition in &self.led_by[from as usize] {
                for &to in &self.lists[partition * self.width..][..self.width] {
                    if to == source || reached_by[to as usize].is_some() {
                        continue;
                    }
                    reached_by[to as usize] = Some((from, Handover { partition, to }));
                    let (low, high) = self.quotas[to as usize];
                    if self.count(to) < low {
                        return Some(trace_back(&reached_by, to));
                    }
                    if self.count(to) < high {
                        below_most = below_most.or(Some(to));
                    } else if self.relieves(to, source) {
                        less_busy = less_busy.or(Some(to));
                    }
                    queue.push_back(to);
                }
            }
        }
        below_most
            .or(less_busy)
            .map(|to| trace_back(&reached_by, to))
    }

    fn hand_along(&mut self, chain: &[Handover]) {
        for &Handover { partition, to } in chain {
            let from = std::mem::replace(&mut self.of_partition[partition], to);
            self.led_by[from as usize].retain(|led| *led != partition);
            self.led_by[to as usize].push(partition);
        }
    }
}

/// Fair share rounded down, and the least sufficient quotas.
fn quotas(shares: &[u64], partitions: Partitions) -> Vec<(usize, usize)> {
    const FACTOR_ONE: u64 = 1 << 16;
    let at_most = |factor: u64, share: u64| {
        let quota = u128::from(factor) * u128::from(share) / u128::from(FACTOR_ONE * UNITS);
        quota as usize
    };
    let is_enough = |factor: u64| {
        let quotas = shares.iter().map(|share| at_most(factor, *share));
        quotas.sum::<usize>() >= partitions.count() as usize
    };
    // At this factor one member alone could lead everything.
    let (mut low, mut high) = (FACTOR_ONE, FACTOR_ONE * (shares.len() as u64 + 1));
    while low < high {
        let middle = low + (high - low) / 2;
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let quota = |share: &u64| ((share / UNITS) as usize, at_most(high, *share));
    shares.iter().map(quota).collect()
}

fn trace_back(reached_by: &[Option<(Member, Handover)>], last: Member) -> Vec<Handover> {
    let mut chain = Vec::new();
    let mut at = last;
    while let Some((from, handover)) = reached_by[at as usize] {
        chain.push(handover);
        at = from;
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, NodeSpec, Weight};

    fn members(weights: &[u32]) -> Members {
        let spec = |(id, weight): (u64, &u32)| NodeSpec {
            weight: Weight::new(*weight).unwrap(),
            ..NodeSpec::normal(NodeId(id))
        };
        let specs: Vec<_> = (0..).zip(weights).map(spec).collect();
        Members::new(specs.iter())
    }

    fn counts(leads: &[Member], members: &Members) -> Vec<usize> {
        let led = |member| leads.iter().filter(|lead| **lead == member).count();
        members.iter().map(led).collect()
    }

    #[test]
    fn leads_travel_along_chains_where_no_list_names_both_ends() {
        // Only node 1 shares lists with node 2, and only node 0 has too many.
        let lists = [
            [0, 1],
            [0, 1],
            [0, 1],
            [0, 1],
            [1, 2],
            [1, 2],
            [0, 1],
            [0, 1],
        ];
        let members = members(&[100, 100, 200]);
        let partitions = Partitions::new(8).unwrap();
        let leads = assign(lists.as_flattened(), 2, &members, partitions);
        assert_eq!(
            counts(&leads, &members),
            [3, 3, 2],
            "2 is only in two lists"
        );
    }

    #[test]
    fn quotas_keep_the_relative_peak_lowest() {
        // Shares 2.46, 2.46 and 27.08: a third partition would be 22 % too many for a
        // light node, a 28th one is 3 % too many for the heavy one.
        let members = members(&[100, 100, 1100]);
        let partitions = Partitions::new(32).unwrap();
        let quotas = quotas(&share::of_leads(&members, partitions), partitions);
        assert_eq!(quotas, [(2, 2), (2, 2), (27, 28)]);
    }

    #[test]
    fn leads_stay_with_primaries_that_are_even() {
        let lists = [[0, 1], [1, 0], [0, 1], [1, 0]];
        let leads = assign(
            lists.as_flattened(),
            2,
            &members(&[100; 2]),
            Partitions::new(4).unwrap(),
        );
        assert_eq!(leads, [0, 1, 0, 1]);
    }
}
