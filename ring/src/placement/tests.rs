use super::*;
use crate::{Weight, Zone};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn specs(zones: &[u8], weights: &[u32]) -> BTreeMap<NodeId, NodeSpec> {
    let spec = |(id, (zone, weight)): (u64, (&u8, &u32))| {
        let spec = NodeSpec {
            id: NodeId(id),
            zone: Zone::new(format!("z{zone}")).unwrap(),
            weight: Weight::new(*weight).unwrap(),
        };
        (spec.id, spec)
    };
    (0..).zip(zones.iter().zip(weights)).map(spec).collect()
}

/// A ring with the given owner at the end of each named partition.
fn ring(partitions: Partitions, owners: &BTreeMap<u32, u64>) -> Ring {
    let mut ring = Ring::new();
    for (&partition, &node) in owners {
        let token = partitions.end(Partition(partition));
        ring.insert(token, NodeId(node)).unwrap();
    }
    ring
}

#[test]
fn the_list_of_a_partition_starts_with_the_owner_of_its_border() {
    let partitions = Partitions::new(8).unwrap();
    let ring = ring(
        partitions,
        &BTreeMap::from([(1, 0), (3, 1), (4, 0), (6, 2)]),
    );
    let placement = Placement::compute(&ring, partitions, 2, &specs(&[0; 3], &[100; 3]));
    let list = |partition| -> Vec<u64> {
        let nodes = placement.nodes(Partition(partition));
        nodes.iter().map(|node| node.0).collect()
    };
    assert_eq!(list(1), [0, 1]);
    assert_eq!(list(2), [1, 0]);
    assert_eq!(list(4), [0, 2]);
    assert_eq!(list(7), [0, 1], "after the last position comes the first");
}

#[test]
fn an_empty_ring_places_nothing_and_is_even() {
    let placement = Placement::compute(&Ring::new(), Partitions::DEFAULT, 3, &BTreeMap::new());
    assert_eq!(placement.nodes(Partition(5)), []);
    assert_eq!(placement.lead(Partition(5)), None);
    assert!((placement.balance().replica_peak_to_mean - 1.0).abs() < f64::EPSILON);
}

#[test]
fn positions_without_a_specification_are_passed_over() {
    let partitions = Partitions::new(4).unwrap();
    let ring = ring(partitions, &BTreeMap::from([(0, 9), (1, 0), (3, 1)]));
    let placement = Placement::compute(&ring, partitions, 3, &specs(&[0; 2], &[100; 2]));
    assert_eq!(placement.nodes(Partition(0)), [NodeId(0), NodeId(1)]);
}

#[test]
fn a_preference_list_names_nobody_twice_wherever_it_comes_from() {
    let list: PreferenceList = serde_json::from_str("[3,1,3,2]").unwrap();
    assert_eq!(*list, [NodeId(3), NodeId(1), NodeId(2)]);
    assert_eq!(serde_json::to_string(&list).unwrap(), "[3,1,2]");
}

#[test]
fn leads_are_even_where_primaries_are_not() {
    // Node 0 owns an arc of 62 partitions, nodes 1 and 2 own one partition each.
    let partitions = Partitions::new(64).unwrap();
    let ring = ring(partitions, &BTreeMap::from([(0, 1), (1, 2), (63, 0)]));
    let placement = Placement::compute(&ring, partitions, 3, &specs(&[0; 3], &[100, 100, 200]));
    let loads = placement.loads();
    let counts = |count: fn(&NodeLoad) -> u32| -> Vec<u32> { loads.values().map(count).collect() };
    assert_eq!(counts(|load| load.primaries), [62, 1, 1]);
    assert_eq!(counts(|load| load.leads), [16, 16, 32], "by weight");
    assert_eq!(counts(|load| load.replicas), [64; 3]);
}

/// Up to 12 nodes in up to 4 zones with at least one position each on up to 64
/// partitions, and 1 to 5 replicas.
fn any_case() -> impl Strategy<Value = (Ring, Partitions, BTreeMap<NodeId, NodeSpec>, u8)> {
    let nodes = proptest::collection::vec((0_u8..4, 50_u32..400), 1..12);
    let owners = proptest::collection::btree_map(0_u32..64, 0_u64..12, 1..40);
    (nodes, owners, 1_u8..=5).prop_map(|(nodes, owners, replicas)| {
        let (zones, weights): (Vec<_>, Vec<_>) = nodes.iter().copied().unzip();
        let mut owners = owners;
        (0..).zip(&nodes).for_each(|(id, _)| {
            owners.insert(id * 5, u64::from(id));
        });
        owners.retain(|_, node| *node < nodes.len() as u64);
        let partitions = Partitions::new(64).unwrap();
        (
            ring(partitions, &owners),
            partitions,
            specs(&zones, &weights),
            replicas,
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_partition_has_one_primary_and_min_of_replicas_and_nodes_distinct_replicas(
        (ring, partitions, specs, replicas) in any_case(),
    ) {
        let placement = Placement::compute(&ring, partitions, replicas, &specs);
        for partition in partitions.iter() {
            let nodes = placement.nodes(partition);
            let distinct: BTreeSet<_> = nodes.iter().collect();
            prop_assert_eq!(nodes.len(), distinct.len());
            prop_assert_eq!(nodes.len(), usize::from(replicas).min(specs.len()));
            let owner = ring.successor(partitions.end(partition)).map(|(_, node)| node);
            prop_assert_eq!(placement.primary(partition), owner);
            prop_assert!(nodes.contains(&placement.lead(partition).unwrap()));
        }
    }

    #[test]
    fn replicas_are_spread_over_zones_as_evenly_as_these_permit(
        (ring, partitions, specs, replicas) in any_case(),
    ) {
        let placement = Placement::compute(&ring, partitions, replicas, &specs);
        let mut sizes: BTreeMap<&Zone, usize> = BTreeMap::new();
        for spec in specs.values() {
            *sizes.entry(&spec.zone).or_default() += 1;
        }
        for partition in partitions.iter() {
            let mut used: BTreeMap<&Zone, usize> = BTreeMap::new();
            for node in placement.nodes(partition) {
                *used.entry(&specs[node].zone).or_default() += 1;
            }
            let fullest = used.values().copied().max().unwrap_or(0);
            for (zone, size) in &sizes {
                let here = used.get(zone).copied().unwrap_or(0);
                prop_assert!(here == *size || here + 1 >= fullest, "{zone} has room");
            }
        }
    }

    #[test]
    fn each_list_is_what_a_naive_walk_in_one_zone_finds(
        (ring, partitions, specs, replicas) in any_case(),
    ) {
        let one_zone: BTreeMap<_, _> =
            specs.keys().map(|&id| (id, NodeSpec::normal(id))).collect();
        let placement = Placement::compute(&ring, partitions, replicas, &one_zone);
        for partition in partitions.iter() {
            let mut naive: Vec<NodeId> = Vec::new();
            for (_, node) in ring.successors(partitions.end(partition)) {
                if naive.len() < usize::from(replicas) && !naive.contains(node) {
                    naive.push(*node);
                }
            }
            prop_assert_eq!(placement.nodes(partition), naive);
        }
    }

    #[test]
    fn loads_add_up((ring, partitions, specs, replicas) in any_case()) {
        let placement = Placement::compute(&ring, partitions, replicas, &specs);
        let width = usize::from(replicas).min(specs.len()) as u32;
        let loads = placement.loads();
        let sum = |count: fn(&NodeLoad) -> u32| loads.values().map(count).sum::<u32>();
        prop_assert_eq!(sum(|load| load.primaries), partitions.count());
        prop_assert_eq!(sum(|load| load.leads), partitions.count());
        prop_assert_eq!(sum(|load| load.replicas), partitions.count() * width);
        let fair: f64 = loads.values().map(|load| load.fair_replicas).sum();
        prop_assert!((fair - f64::from(partitions.count() * width)).abs() < 0.1);
    }
}
