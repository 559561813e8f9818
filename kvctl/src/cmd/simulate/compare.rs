//! Compares methods to place keys on nodes: balance, movement, speed, memory.
//!
//! Torc uses [`Planned`]. The others follow the definitions of their sources:
//!
//! | method | source |
//! |---|---|
//! | `random` | Karger et al., Consistent hashing and random trees, STOC 1997; the lecture's h(machine) |
//! | `modulo` | h(x) mod m, the lecture's starting point |
//! | `ketama` | libketama, Last.fm 2007: 160 points of 32 bits a node |
//! | `jump` | Lamping and Veach, A fast, minimal memory, consistent hash algorithm, 2014 |
//! | `rendezvous` | Thaler and Ravishankar, Using name-based mappings to increase hit rates, 1998 |
//! | `maglev` | Eisenbud et al., Maglev, NSDI 2016, section 3.4 |
//! | `anchor` | Mendelson, Vargaftik, Barabash, Lorenz, Keslassy, Orda, AnchorHash, 2021, algorithm 3 |
//!
//! A key is its token, uniform in 64 bits, so no method hashes keys where its source does.

mod anchor;
mod hashed;
mod maglev;
mod ring;

use std::hint::black_box;
use std::time::Duration;

use serde::Serialize;

use self::anchor::Anchor;
use self::hashed::{Jump, Modulo, Rendezvous};
use self::maglev::Maglev;
use self::ring::{Ketama, Planned, Random};
use crate::failure::Failure;

/// A way to place keys on nodes.
pub(super) trait Placement {
    /// The node of a key. There must be at least one node.
    fn node(&self, key: u64) -> u32;
    /// Adds a new node.
    fn join(&mut self, node: u32);
    /// Removes an existing node, never the last.
    fn leave(&mut self, node: u32);
    /// Memory, bytes.
    fn bytes(&self) -> usize;
}

/// What to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Method {
    Random,
    Modulo,
    Ketama,
    Jump,
    Rendezvous,
    Maglev,
    Anchor,
}

/// The size of the comparison.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) nodes: u32,
    pub(super) positions: u16,
    pub(super) partitions: torc_ring::Partitions,
    pub(super) seed: u64,
    pub(super) keys: u32,
}

/// A method's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) method: &'static str,
    pub(super) nodes: u32,
    /// Keys of the busiest node over the mean.
    pub(super) peak_to_mean: f64,
    /// Share of the keys that move when a node joins, and the minimum.
    pub(super) moved_by_join: f64,
    pub(super) least_by_join: f64,
    /// Share of the keys that move when a node in the middle leaves.
    pub(super) moved_by_leave: f64,
    pub(super) least_by_leave: f64,
    pub(super) lookup_ns: f64,
    pub(super) bytes: u64,
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Modulo => "modulo",
            Self::Ketama => "ketama",
            Self::Jump => "jump",
            Self::Rendezvous => "rendezvous",
            Self::Maglev => "maglev",
            Self::Anchor => "anchor",
        }
    }

    fn row(self, size: &Size, now: impl Fn() -> Duration) -> Row {
        let (name, nodes) = (self.name(), size.nodes);
        match self {
            Self::Random => {
                let make = || Random::of(nodes, size.positions, size.seed);
                row(name, size, make, now)
            }
            Self::Modulo => row(name, size, || Modulo::of(nodes), now),
            Self::Ketama => row(name, size, || Ketama::of(nodes), now),
            Self::Jump => row(name, size, || Jump::of(nodes), now),
            Self::Rendezvous => row(name, size, || Rendezvous::of(nodes), now),
            Self::Maglev => row(name, size, || Maglev::of(nodes), now),
            Self::Anchor => row(name, size, || Anchor::of(nodes), now),
        }
    }
}

/// Torc's planned positions, then each method. `now` is a monotonic clock.
///
/// # Errors
/// [`Failure::Usage`] if the ring is too small for the nodes.
pub(super) fn rows<'a>(
    size: &'a Size,
    methods: &'a [Method],
    now: impl Fn() -> Duration + Copy + 'a,
) -> Result<impl Iterator<Item = Row> + 'a, Failure> {
    let planned = Planned::of(size)?;
    let ours = row("torc", size, || planned.clone(), now);
    let others = methods.iter().map(move |method| method.row(size, now));
    Ok(std::iter::once(ours).chain(others))
}

fn row<P: Placement>(
    method: &'static str,
    size: &Size,
    make: impl Fn() -> P,
    now: impl Fn() -> Duration,
) -> Row {
    let keys = || (0..size.keys).map(|key| mixed(u64::from(key) ^ size.seed.rotate_left(32)));
    let whole = make();
    let begun = now();
    let before: Vec<u32> = keys().map(|key| black_box(whole.node(key))).collect();
    let took = now().saturating_sub(begun);
    let mut loads = vec![0_u32; size.nodes as usize];
    for node in &before {
        loads[*node as usize] += 1;
    }
    let peak = loads.iter().max().copied().unwrap_or(0);
    let moved = |after: &P| {
        let changed = keys()
            .zip(&before)
            .filter(|(key, node)| after.node(*key) != **node);
        changed.count() as f64 / f64::from(size.keys)
    };
    let leaver = size.nodes / 2;
    let (mut joined, mut left) = (make(), make());
    joined.join(size.nodes);
    left.leave(leaver);
    Row {
        method,
        nodes: size.nodes,
        peak_to_mean: f64::from(peak) * f64::from(size.nodes) / f64::from(size.keys),
        moved_by_join: moved(&joined),
        least_by_join: 1.0 / f64::from(size.nodes + 1),
        moved_by_leave: moved(&left),
        least_by_leave: f64::from(loads[leaver as usize]) / f64::from(size.keys),
        lookup_ns: took.as_nanos() as f64 / f64::from(size.keys),
        bytes: whole.bytes() as u64,
    }
}

/// A well-mixed permutation of 64 bits (SplitMix64; Steele, Lea, Flood 2014).
fn mixed(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A hash of a key and a node, or a node and a number.
fn mixed_with(value: u64, other: u64) -> u64 {
    mixed(value ^ mixed(other))
}

#[cfg(test)]
pub(super) mod testing {
    use super::{Placement, mixed};

    const KEYS: u64 = 20_000;

    pub(crate) fn nodes_of(placement: &impl Placement) -> Vec<u32> {
        let keys = (0..KEYS).map(|key| mixed(key ^ 0x5eed));
        keys.map(|key| placement.node(key)).collect()
    }

    pub(crate) fn peak_to_mean(placement: &impl Placement, nodes: usize) -> f64 {
        let mut loads = std::collections::BTreeMap::<u32, u64>::new();
        for node in nodes_of(placement) {
            *loads.entry(node).or_default() += 1;
        }
        assert_eq!(loads.len(), nodes, "each has keys");
        let peak = loads.into_values().max().unwrap();
        peak as f64 * nodes as f64 / KEYS as f64
    }

    /// Checks that a join moves only keys to the newcomer.
    pub(crate) fn joins_move_keys_to_the_newcomer_alone(placement: &mut impl Placement, node: u32) {
        let before = nodes_of(placement);
        placement.join(node);
        let after = nodes_of(placement);
        assert!(after.contains(&node), "it gets its share");
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || *after == node, "{before} to {after}");
        }
    }

    /// Checks that a leave moves only the leaver's keys.
    pub(crate) fn leaves_move_the_leavers_keys_alone(placement: &mut impl Placement, node: u32) {
        let before = nodes_of(placement);
        placement.leave(node);
        let after = nodes_of(placement);
        assert!(!after.contains(&node), "it has no keys any more");
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || *before == node, "{before} to {after}");
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_method_has_a_row_and_consistent_ones_move_little() {
        let size = Size {
            nodes: 10,
            positions: 32,
            partitions: torc_ring::Partitions::new(1024).unwrap(),
            seed: 1,
            keys: 20_000,
        };
        let rows: Vec<Row> = rows(&size, Method::value_variants(), || Duration::ZERO)
            .unwrap()
            .collect();
        let names: Vec<_> = rows.iter().map(|row| row.method).collect();
        let expected = [
            "torc",
            "random",
            "modulo",
            "ketama",
            "jump",
            "rendezvous",
            "maglev",
            "anchor",
        ];
        assert_eq!(names, expected);
        for row in &rows {
            assert!(row.peak_to_mean >= 1.0 && row.bytes > 0, "{row:?}");
            if row.method == "modulo" {
                assert!(row.moved_by_join > 0.85, "m/(m+1) of all: {row:?}");
            } else {
                assert!(row.moved_by_join < 3.0 * row.least_by_join, "{row:?}");
                assert!(row.moved_by_leave < 3.0 * row.least_by_leave, "{row:?}");
            }
        }
        assert!(
            rows[0].peak_to_mean < rows[1].peak_to_mean,
            "planned, not random"
        );
        crate::out::assert_documented_under("`ring simulate`", &rows[0]);
    }
}
