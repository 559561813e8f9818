//! Rings kept as files: allocation is part of the replicated topology, so two
//! versions of the code must agree on every ring. `fixtures/README.md` says how the
//! files are remade, and when that is allowed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use super::*;
use crate::{Partition, Placement, PlannedMove, TransitionPlan, Weight, Zone};

const GROWTH: &str = include_str!("../../fixtures/growth-100.txt");
const HISTORY: &str = include_str!("../../fixtures/history.txt");
const POSITIONS: u16 = 32;

/// One line per node: its id, then the partitions that end at its positions.
fn to_text(ring: &Ring, partitions: Partitions) -> String {
    let mut text = String::new();
    for node in ring.nodes() {
        write!(text, "{node}:").unwrap();
        for token in ring.positions_of(node) {
            write!(text, " {}", partitions.ending_at(token).unwrap()).unwrap();
        }
        text.push('\n');
    }
    text
}

fn from_text(text: &str, partitions: Partitions) -> Ring {
    let mut ring = Ring::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (node, borders) = line.split_once(':').unwrap();
        for border in borders.split_whitespace() {
            let token = partitions.end(Partition(border.parse().unwrap()));
            ring.insert(token, node.parse().unwrap()).unwrap();
        }
    }
    ring
}

/// The nodes 0 to `count`, all normal.
fn normal_nodes(count: u64) -> BTreeMap<NodeId, NodeSpec> {
    (0..count)
        .map(|id| (NodeId(id), NodeSpec::normal(NodeId(id))))
        .collect()
}

/// The ring when only the nodes 0 to `count` had joined: joins only insert.
fn at_size(grown: &Ring, count: u64) -> Ring {
    let mut ring = grown.clone();
    for node in grown.nodes().into_iter().filter(|node| node.0 >= count) {
        ring.remove_node(node);
    }
    ring
}

fn join(before: &Ring, size_after: u64) -> Ring {
    let nodes = normal_nodes(size_after);
    let change = Change::Join(NodeId(size_after - 1));
    allocate(before, Partitions::DEFAULT, 3, POSITIONS, &nodes, change).unwrap()
}

#[test]
fn every_join_gives_the_golden_ring() {
    let grown = (1..=100).fold(Ring::new(), |ring, size| join(&ring, size));
    assert_eq!(to_text(&grown, Partitions::DEFAULT), without_head(GROWTH));
}

/// The targets of the design, on the golden ring, at every size.
#[test]
fn loads_are_even_at_every_size_from_4_to_100() {
    let partitions = Partitions::DEFAULT;
    let grown = from_text(GROWTH, partitions);
    let place = |size, replicas| {
        let nodes = normal_nodes(size);
        Placement::compute(&at_size(&grown, size), partitions, replicas, &nodes)
    };
    let mut before = place(3, 3);
    for size in 4..=100 {
        let after = place(size, 3);
        let plan = TransitionPlan::between(&before, &after);
        let balance = plan.balance_after;
        assert!(balance.replica_peak_to_mean <= 1.03, "{size}: {balance:?}");
        assert!(balance.lead_peak_to_mean <= 1.05, "{size}: {balance:?}");
        assert!(balance.primary_peak_to_mean <= 1.05, "{size}: {balance:?}");
        assert!(
            plan.moved_to_minimum() <= 1.05,
            "{size}: {}",
            plan.moved_to_minimum()
        );
        let newcomer = NodeId(size - 1);
        let to_others = plan.moves.iter().flat_map(PlannedMove::gained);
        assert_eq!(
            to_others.filter(|node| *node != newcomer).count(),
            0,
            "{size}"
        );
        before = after;
    }
}

#[test]
fn the_same_ring_is_even_with_one_and_two_replicas() {
    let partitions = Partitions::DEFAULT;
    let grown = from_text(GROWTH, partitions);
    for size in (2..=100).step_by(7).chain([100]) {
        let (ring, nodes) = (at_size(&grown, size), normal_nodes(size));
        let peak = |replicas| {
            let placement = Placement::compute(&ring, partitions, replicas, &nodes);
            placement.balance().replica_peak_to_mean
        };
        assert!(peak(1) <= 1.05, "{size}: {}", peak(1));
        assert!(peak(2) <= 1.04, "{size}: {}", peak(2));
    }
}

/// The life of a small cluster: weights, zones, every kind of change, and too few borders at the
/// end.
fn history() -> String {
    let partitions = Partitions::new(256).unwrap();
    let mut nodes: BTreeMap<NodeId, NodeSpec> = BTreeMap::new();
    let mut ring = Ring::new();
    let mut text = String::new();
    let mut step = |change: Change, weight: u32| {
        let (Change::Join(id) | Change::Replace { new: id, .. } | Change::Reweight(id)) = change
        else {
            let Change::Leave(id) = change else {
                unreachable!()
            };
            ring = allocate(&ring, partitions, 3, 8, &nodes, change).unwrap();
            nodes.remove(&id);
            write!(text, "# {change:?}\n{}", to_text(&ring, partitions)).unwrap();
            return;
        };
        let zone = Zone::new(["a", "b", "c"][id.0 as usize % 3]).unwrap();
        let spec = NodeSpec {
            id,
            zone,
            weight: Weight::new(weight).unwrap(),
        };
        nodes.insert(id, spec);
        ring = allocate(&ring, partitions, 3, 8, &nodes, change).unwrap();
        if let Change::Replace { old, .. } = change {
            nodes.remove(&old);
        }
        writeln!(text, "# {change:?} at {weight} %").unwrap();
        text.push_str(&to_text(&ring, partitions));
    };
    for (id, weight) in (0..).zip([100, 100, 50, 200, 100, 150, 100]) {
        step(Change::Join(NodeId(id)), weight);
    }
    step(Change::Leave(NodeId(6)), 0);
    step(Change::Leave(NodeId(1)), 0);
    step(Change::Reweight(NodeId(2)), 100);
    step(Change::Reweight(NodeId(3)), 50);
    step(
        Change::Replace {
            old: NodeId(4),
            new: NodeId(7),
        },
        100,
    );
    step(
        Change::Replace {
            old: NodeId(0),
            new: NodeId(9),
        },
        300,
    );
    for id in 10..30 {
        step(Change::Join(NodeId(id)), 100);
    }
    step(Change::Leave(NodeId(15)), 0);
    text
}

#[test]
fn a_life_of_every_kind_of_change_gives_the_golden_rings() {
    let history = history();
    for (now, golden) in history.lines().zip(HISTORY.lines()) {
        assert_eq!(now, golden);
    }
    assert_eq!(history.len(), HISTORY.len());
}

#[test]
#[ignore = "overwrites the golden rings; see fixtures/README.md"]
#[expect(clippy::disallowed_methods, reason = "it writes the fixtures")]
fn remake_the_golden_rings() {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let grown = (1..=100).fold(Ring::new(), |ring, size| join(&ring, size));
    let head = "# 100 normal nodes joined one at a time: 4,096 partitions, 32 positions.\n";
    let text = head.to_owned() + &to_text(&grown, Partitions::DEFAULT);
    std::fs::write(fixtures.join("growth-100.txt"), text).unwrap();
    std::fs::write(fixtures.join("history.txt"), history()).unwrap();
}

fn without_head(text: &str) -> String {
    let (_, lines) = text.split_once('\n').unwrap();
    lines.to_owned()
}
