//! Balance of rings that grow one node at a time, and how much a join moves.

use anyhow::Result;
use torc_ring::{Growth, Row, simulate};

use super::ketama::{self, Holders, KETAMA, NOBODY};
use super::{POSITIONS, REPLICAS};
use crate::records::Random;
use crate::report::{Metric, Report, TORC};

const RANDOM: &str = "random";
/// Sizes shown; the worst case covers all sizes.
const SHOWN: [u32; 5] = [4, 10, 25, 50, 100];
/// Up to as many nodes as replicas, every node holds everything.
const FROM: u32 = REPLICAS as u32 + 1;
/// Keys that measure the peer's balance: at 100 nodes a perfectly even ring would look 2.5 % uneven
/// by primaries, and half of that by replicas.
const KEYS: usize = 1 << 20;

/// A ring's balance: the busiest node over the mean, and the moved amount over the minimum.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    replica: f64,
    primary: f64,
    lead: f64,
    moved: f64,
}

impl Figures {
    const NONE: Self = Self {
        replica: 0.0,
        primary: 0.0,
        lead: 0.0,
        moved: 0.0,
    };

    fn worse(self, other: Self) -> Self {
        Self {
            replica: self.replica.max(other.replica),
            primary: self.primary.max(other.primary),
            lead: self.lead.max(other.lead),
            moved: self.moved.max(other.moved),
        }
    }

    fn add_to(self, report: &mut Report, case: &str, subject: &'static str) {
        let figures = [
            ("replica_peak_to_mean", self.replica),
            ("primary_peak_to_mean", self.primary),
            ("lead_peak_to_mean", self.lead),
            ("moved_to_minimum", self.moved),
        ];
        for (name, value) in figures {
            report.add(case, Metric::new(name, "ratio"), subject, value);
        }
    }
}

/// Grows the rings to `nodes` nodes.
pub(super) fn measure(report: &mut Report, nodes: u32, quick: bool) -> Result<()> {
    let growth = Growth {
        nodes,
        positions: POSITIONS,
        replicas: REPLICAS,
        ..Growth::default()
    };
    let keys = if quick { KEYS / 64 } else { KEYS };
    let mut peer = Peer::new(keys);
    let mut worst = [Figures::NONE; 3];
    for row in simulate(growth) {
        let row = row?;
        let of_peer = peer.join();
        if row.nodes < FROM {
            continue;
        }
        let (torc, random) = of_row(&row);
        let subjects = [(TORC, torc), (RANDOM, random), (KETAMA, of_peer)];
        for ((subject, figures), worst) in subjects.into_iter().zip(&mut worst) {
            *worst = worst.worse(figures);
            if SHOWN.contains(&row.nodes) {
                figures.add_to(report, &format!("{} nodes", row.nodes), subject);
            }
        }
    }
    for (subject, worst) in [TORC, RANDOM, KETAMA].into_iter().zip(worst) {
        worst.add_to(report, "worst, from 4 nodes on", subject);
    }
    Ok(())
}

fn of_row(row: &Row) -> (Figures, Figures) {
    let torc = Figures {
        replica: row.replica_peak_to_mean,
        primary: row.primary_peak_to_mean,
        lead: row.lead_peak_to_mean,
        moved: row.moved_to_minimum,
    };
    let random = Figures {
        replica: row.random_replica_peak_to_mean,
        primary: row.random_primary_peak_to_mean,
        lead: row.random_lead_peak_to_mean,
        moved: row.random_moved_to_minimum,
    };
    (torc, random)
}

/// The peer's growing ring, measured through keys.
struct Peer {
    nodes: u16,
    keys: Vec<[u8; 8]>,
    holders: Vec<Holders>,
}

impl Peer {
    fn new(keys: usize) -> Self {
        let mut random = Random::of(1);
        Self {
            nodes: 0,
            keys: (0..keys).map(|_| random.next().to_le_bytes()).collect(),
            holders: vec![[NOBODY; 3]; keys],
        }
    }

    /// Adds a node.
    fn join(&mut self) -> Figures {
        self.nodes += 1;
        let ring = ketama::ring(self.nodes);
        let nodes = usize::from(self.nodes);
        let (mut replicas, mut primaries) = (vec![0_u64; nodes], vec![0_u64; nodes]);
        let mut moved = 0_u64;
        for (key, before) in self.keys.iter().zip(&mut self.holders) {
            let after = ketama::holders(&ring, self.nodes, key);
            primaries[usize::from(after[0])] += 1;
            for node in after.into_iter().filter(|node| *node != NOBODY) {
                replicas[usize::from(node)] += 1;
                moved += u64::from(!before.contains(&node));
            }
            *before = after;
        }
        let primary = peak_to_mean(&primaries);
        let held: u64 = replicas.iter().sum();
        Figures {
            replica: peak_to_mean(&replicas),
            primary,
            lead: primary,
            moved: moved as f64 * nodes as f64 / held as f64,
        }
    }
}

fn peak_to_mean(loads: &[u64]) -> f64 {
    let peak = loads.iter().max().copied().unwrap_or(0);
    let sum: u64 = loads.iter().sum();
    peak as f64 * loads.len() as f64 / sum as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_node_is_over_the_mean() {
        assert!((peak_to_mean(&[1, 2, 3]) - 1.5).abs() < 1e-9);
        assert!((peak_to_mean(&[5, 5]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_joins_takes_only_its_share() {
        let mut peer = Peer::new(20_000);
        let first = peer.join();
        assert_eq!(
            (first.replica, first.moved),
            (1.0, 1.0),
            "everything moves to the first"
        );
        for _ in 0..9 {
            let figures = peer.join();
            assert!((0.3..3.0).contains(&figures.moved), "{figures:?}");
        }
    }
}
