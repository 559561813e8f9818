//! The fair share of every node: its load if load were spread as evenly as the rules
//! allow.
//!
//! Loads should follow the weights, within two limits. A partition has at most one
//! replica on a node, so no node holds more than all partitions. And every zone
//! contributes a fixed number of replicas to each preference list, or that number
//! and at most one more ([`Spread`]), so a zone's nodes share between its least and
//! its most. The fair share is the water-filling under these limits: proportional to
//! the weights, except where a limit binds, and the rest spread over the others.
//!
//! Shares count in 1/65,536 of a partition, in integers, and are found by bisection;
//! their sum may be off by a few of these units.

#![expect(clippy::cast_precision_loss, reason = "a share for reports")]

use crate::Partitions;
use crate::walk::{Member, Members, Spread};

/// Units of a share in one partition.
pub(crate) const UNITS: u64 = 1 << 16;

/// A share in partitions, for reports.
pub(crate) fn in_partitions(share: u64) -> f64 {
    share as f64 / UNITS as f64
}

/// Fair replica load of each member, in [`UNITS`] of a partition.
pub(crate) fn of_replicas(members: &Members, spread: &Spread, partitions: Partitions) -> Vec<u64> {
    let all = u64::from(partitions.count()) * UNITS;
    let zones: Vec<ZoneShare> = (0..members.zone_sizes().len())
        .map(|zone| ZoneShare::new(members, spread, zone, all))
        .collect();
    let wanted = spread.width() as u64 * all;
    let level = lowest_level(all, |level| {
        zones.iter().map(|zone| zone.at(level)).sum::<u64>() >= wanted
    });
    let mut shares = vec![0; members.len()];
    for zone in &zones {
        let wanted = zone.at(level);
        let level = lowest_level(all, |level| zone.filled_to(level) >= wanted);
        for &(member, weight) in &zone.weights {
            shares[member as usize] = held_at(level, weight, all);
        }
    }
    shares
}

/// Fair primary load and lead share of each member, in [`UNITS`] of a partition: in
/// proportion to the weights.
pub(crate) fn of_leads(members: &Members, partitions: Partitions) -> Vec<u64> {
    let all = u64::from(partitions.count()) * UNITS;
    let total: u64 = members
        .iter()
        .map(|member| u64::from(members.weight(member)))
        .sum();
    members
        .iter()
        .map(|member| all * u64::from(members.weight(member)) / total)
        .collect()
}

struct ZoneShare {
    weights: Vec<(Member, u64)>,
    least: u64,
    most: u64,
    all: u64,
}

impl ZoneShare {
    fn new(members: &Members, spread: &Spread, zone: usize, all: u64) -> Self {
        let quota = spread.quota(zone);
        let in_zone = |member: &Member| members.zone(*member) as usize == zone;
        Self {
            weights: members
                .iter()
                .filter(in_zone)
                .map(|member| (member, u64::from(members.weight(member))))
                .collect(),
            least: quota.least as u64 * all,
            most: quota.most as u64 * all,
            all,
        }
    }

    fn filled_to(&self, level: u64) -> u64 {
        let held = |(_, weight): &(Member, u64)| held_at(level, *weight, self.all);
        self.weights.iter().map(held).sum()
    }

    fn at(&self, level: u64) -> u64 {
        self.filled_to(level).clamp(self.least, self.most)
    }
}

/// Units of a level per unit of a share. A level is at most 2^48 and a weight less than
/// 2^14, so their product fits.
const FINER: u64 = 1 << 16;

/// The load of a node of this weight when a node of weight 1 holds `level`.
fn held_at(level: u64, weight: u64, all: u64) -> u64 {
    (level * weight / FINER).min(all)
}

/// The lowest sufficient level, or the one that fills every node.
fn lowest_level(all: u64, enough: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, all * FINER);
    while low < high {
        let middle = low + (high - low) / 2;
        if enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, NodeSpec, Weight, Zone};

    const PARTITIONS: u32 = 4096;

    /// Fair shares in whole partitions, rounded, of nodes given as (zone, weight).
    fn shares(replicas: u8, nodes: &[(&str, u32)]) -> Vec<u64> {
        let specs: Vec<_> = (0..)
            .zip(nodes)
            .map(|(id, &(zone, weight))| NodeSpec {
                id: NodeId(id),
                zone: Zone::new(zone).unwrap(),
                weight: Weight::new(weight).unwrap(),
            })
            .collect();
        let members = Members::new(specs.iter());
        let spread = Spread::new(&members, replicas);
        let partitions = Partitions::new(PARTITIONS).unwrap();
        let shares = of_replicas(&members, &spread, partitions);
        shares
            .iter()
            .map(|share| (share + UNITS / 2) / UNITS)
            .collect()
    }

    #[test]
    fn equal_nodes_share_equally() {
        assert_eq!(shares(3, &[("a", 100); 4]), [3072; 4]);
        assert_eq!(
            shares(3, &[("a", 100); 2]),
            [4096; 2],
            "each holds everything"
        );
    }

    #[test]
    fn shares_follow_weights_until_a_node_holds_everything() {
        let two_to_one = [("a", 200), ("a", 100), ("a", 100)];
        assert_eq!(shares(1, &two_to_one), [2048, 1024, 1024]);
        let heavy = [("a", 10_000), ("a", 100), ("a", 100), ("a", 200)];
        assert_eq!(shares(2, &heavy), [4096, 1024, 1024, 2048]);
    }

    #[test]
    fn a_lone_node_of_a_zone_holds_all_when_each_zone_has_a_replica() {
        let zones = [("a", 100), ("a", 100), ("b", 100), ("b", 100), ("c", 100)];
        assert_eq!(shares(3, &zones), [2048, 2048, 2048, 2048, 4096]);
    }

    #[test]
    fn a_zone_beyond_its_round_leaves_the_rest_to_the_others() {
        let zones = [("a", 100), ("a", 100), ("a", 100), ("b", 100), ("b", 100)];
        assert_eq!(
            shares(3, &zones),
            [2458; 5],
            "both zones take 1 to 2 replicas"
        );
        assert_eq!(shares(2, &zones), [1365, 1365, 1365, 2048, 2048]);
    }
}
