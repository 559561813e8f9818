//! Chooses the nodes of a batch's items. Pure.
//!
//! Every replica can carry out a get, and a request of many keys costs its node and the other
//! replicas little more than one of few keys. So a batch goes to as few nodes as hold all of its
//! keys, as far as a greedy choice finds them.
//!
//! Invariants:
//! * Every item has one destination, one of those that can carry it out.
//! * A destination gets more than a share only of items that no other destination with less can
//!   take. A share is [`LEAST`] items, or an even part of a larger batch.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::plan::Indices;

/// Items that one node carries out at a time; more are faster on several nodes.
const LEAST: usize = 128;

/// The destinations that can carry out an item.
pub(crate) type Destinations = Vec<usize>;

/// Chooses a destination for each item, as (item, destination) in the order of the items. There are
/// `count` destinations; among equal ones, the first from `first` on is chosen.
/// O(shares x sets of destinations).
pub(crate) fn gather(
    mut able: BTreeMap<Destinations, Indices>,
    count: usize,
    first: usize,
) -> Vec<(usize, usize)> {
    let total = able.values().map(Vec::len).sum::<usize>();
    let share = total.div_ceil(count.max(1)).max(LEAST);
    let mut taken = vec![0; count];
    let mut chosen = Vec::with_capacity(total);
    loop {
        able.retain(|_, items| !items.is_empty());
        let Some(best) = best(&able, &taken, share, first) else {
            break;
        };
        let room = share - taken[best] % share;
        let before = chosen.len();
        for (_, items) in able.iter_mut().filter(|(to, _)| to.contains(&best)) {
            let some = items.len().min(before + room - chosen.len());
            chosen.extend(items.drain(..some).map(|item| (item, best)));
        }
        taken[best] += chosen.len() - before;
    }
    chosen.sort_unstable();
    chosen
}

/// The destination with the fewest full shares, and of those the one that can take most items.
fn best(
    able: &BTreeMap<Destinations, Indices>,
    taken: &[usize],
    share: usize,
    first: usize,
) -> Option<usize> {
    let mut open = vec![0; taken.len()];
    for (destinations, items) in able {
        for destination in destinations {
            open[*destination] += items.len();
        }
    }
    let count = taken.len();
    let all = (0..count).map(|step| (first % count + step) % count);
    all.filter(|it| open[*it] > 0)
        .min_by_key(|it| (taken[*it] / share, Reverse(open[*it].min(share))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The number of items of each destination.
    fn counts(able: BTreeMap<Destinations, Indices>, count: usize, first: usize) -> Vec<usize> {
        let mut counts = vec![0; count];
        for (_, destination) in gather(able, count, first) {
            counts[destination] += 1;
        }
        counts
    }

    #[test]
    fn a_small_batch_goes_to_one_node_that_holds_all_keys_and_the_next_to_another() {
        let able = || BTreeMap::from([(vec![0, 1, 2], (0..100).collect())]);
        assert_eq!(counts(able(), 3, 0), [100, 0, 0]);
        assert_eq!(counts(able(), 3, 1), [0, 100, 0]);
        assert_eq!(counts(able(), 3, 5), [0, 0, 100]);
    }

    #[test]
    fn a_large_batch_is_spread_evenly() {
        let able = BTreeMap::from([(vec![0, 1, 2], (0..3_000).collect())]);
        assert_eq!(counts(able, 3, 0), [1_000, 1_000, 1_000]);
    }

    #[test]
    fn the_fewest_nodes_are_those_that_hold_most_keys() {
        let able = BTreeMap::from([
            (vec![0, 1], vec![0, 3]),
            (vec![1, 2], vec![1]),
            (vec![3], vec![2]),
        ]);
        let chosen = gather(able, 4, 0);
        assert_eq!(chosen, [(0, 1), (1, 1), (2, 3), (3, 1)]);
    }

    #[test]
    fn no_items_have_no_destination() {
        assert!(gather(BTreeMap::new(), 0, 0).is_empty());
        assert!(gather(BTreeMap::new(), 3, 7).is_empty());
    }

    proptest! {
        #[test]
        fn every_item_has_one_destination_that_can_carry_it_out(
            sets in proptest::collection::vec(
                (proptest::collection::btree_set(0_usize..6, 1..4), 0_usize..400),
                0..12,
            ),
            first in 0_usize..100,
        ) {
            let (mut able, mut total) = (BTreeMap::<Destinations, Indices>::new(), 0);
            for (destinations, count) in &sets {
                let items = total..total + count;
                total += count;
                able.entry(destinations.iter().copied().collect()).or_default().extend(items);
            }
            let chosen = gather(able.clone(), 6, first);
            let items: Indices = chosen.iter().map(|(item, _)| *item).collect();
            prop_assert_eq!(items, (0..total).collect::<Indices>());
            for (item, destination) in chosen {
                let can = |(to, items): (&Destinations, &Indices)| {
                    to.contains(&destination) && items.contains(&item)
                };
                prop_assert!(able.iter().any(can));
            }
        }
    }
}
