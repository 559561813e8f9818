//! Cuts a batch into requests. Pure.
//!
//! Invariants:
//! * Every item is in exactly one wave, and of two writes to one key the earlier one
//!   is in the earlier wave: waves run one after the other, so the last write of a key
//!   wins.
//! * Every pending item is in exactly one chunk; all items of a chunk go to the same
//!   destination, in the order of the input.
//! * A chunk has at least one item and keeps both limits, except that one item alone
//!   may exceed the bytes.

use std::collections::HashMap;
use std::hash::Hash;

use torc_record::Digest;

/// Numbers of items in the input.
pub(crate) type Indices = Vec<usize>;

/// The limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
}

/// Items that travel together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk<D> {
    pub(crate) destination: D,
    pub(crate) items: Indices,
}

/// Cuts writes, given as (number, digest), into waves: the n-th write of a key is in
/// the n-th wave. One wave unless a key occurs twice. O(items).
pub(crate) fn waves(writes: impl IntoIterator<Item = (usize, Digest)>) -> Vec<Indices> {
    let mut occurrences: HashMap<Digest, usize> = HashMap::new();
    let mut waves: Vec<Indices> = Vec::new();
    for (index, digest) in writes {
        let occurrence = occurrences.entry(digest).or_default();
        match waves.get_mut(*occurrence) {
            Some(wave) => wave.push(index),
            None => waves.push(vec![index]),
        }
        *occurrence += 1;
    }
    waves
}

/// Cuts items into chunks, each given as (number, destination, bytes). O(items).
pub(crate) fn chunks<D: Hash + Eq + Clone>(
    items: impl IntoIterator<Item = (usize, D, usize)>,
    limits: Limits,
) -> Vec<Chunk<D>> {
    let mut open: HashMap<D, (usize, usize)> = HashMap::new();
    let mut chunks: Vec<Chunk<D>> = Vec::new();
    for (index, destination, bytes) in items {
        let current = open.get_mut(&destination).filter(|(chunk, filled)| {
            chunks[*chunk].items.len() < limits.items
                && filled.saturating_add(bytes) <= limits.bytes
        });
        if let Some((chunk, filled)) = current {
            chunks[*chunk].items.push(index);
            *filled += bytes;
        } else {
            open.insert(destination.clone(), (chunks.len(), bytes));
            chunks.push(Chunk {
                destination,
                items: vec![index],
            });
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbered(keys: &[u8]) -> impl Iterator<Item = (usize, Digest)> {
        keys.iter().map(|key| Digest([*key; 16])).enumerate()
    }

    #[test]
    fn keys_that_occur_once_are_one_wave() {
        let all = waves(numbered(&[1, 2, 3]));
        assert_eq!(all, [vec![0, 1, 2]]);
        assert!(waves([]).is_empty());
    }

    #[test]
    fn the_second_write_of_a_key_waits_for_the_first() {
        let all = waves(numbered(&[1, 2, 1, 1, 2]));
        assert_eq!(all, [vec![0, 1], vec![2, 4], vec![3]]);
    }

    #[test]
    fn chunks_are_cut_at_either_limit() {
        let limits = Limits {
            items: 2,
            bytes: 10,
        };
        let items = [
            (0, 'a', 4),
            (1, 'b', 4),
            (2, 'a', 7),
            (3, 'b', 6),
            (4, 'b', 0),
        ];
        let cut: Vec<_> = chunks(items, limits)
            .into_iter()
            .map(|chunk| (chunk.destination, chunk.items))
            .collect();
        let expected = [
            ('a', vec![0]),
            ('b', vec![1, 3]),
            ('a', vec![2]),
            ('b', vec![4]),
        ];
        assert_eq!(cut, expected);
    }

    proptest! {
        #[test]
        fn every_item_is_in_one_wave_and_a_key_once_a_wave(
            keys in proptest::collection::vec(0_u8..6, 0..60),
        ) {
            let all = waves(numbered(&keys));
            let mut seen: Indices = all.concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..keys.len()).collect::<Indices>());
            for wave in &all {
                let mut once: Vec<_> = wave.iter().map(|&index| keys[index]).collect();
                once.sort_unstable();
                once.dedup();
                prop_assert_eq!(once.len(), wave.len());
            }
            for key in 0..6 {
                let order: Vec<_> = all.concat().into_iter().filter(|&i| keys[i] == key).collect();
                prop_assert!(order.is_sorted(), "waves keep the order of a key's writes");
            }
        }

        #[test]
        fn every_item_is_in_one_chunk_of_its_destination_within_the_limits(
            items in proptest::collection::vec((0_u8..4, 0_usize..50), 0..80),
            max_items in 1_usize..10,
            max_bytes in 1_usize..100,
        ) {
            let limits = Limits { items: max_items, bytes: max_bytes };
            let numbered = items.iter().enumerate().map(|(i, &(to, bytes))| (i, to, bytes));
            let cut = chunks(numbered, limits);
            let mut seen: Indices = cut.iter().flat_map(|c| c.items.clone()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..items.len()).collect::<Indices>());
            for chunk in cut {
                prop_assert!(chunk.items.is_sorted());
                prop_assert!((1..=max_items).contains(&chunk.items.len()));
                prop_assert!(chunk.items.iter().all(|&i| items[i].0 == chunk.destination));
                let bytes: usize = chunk.items.iter().map(|&i| items[i].1).sum();
                prop_assert!(bytes <= max_bytes || chunk.items.len() == 1);
            }
        }
    }
}
