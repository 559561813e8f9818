use super::*;
use crate::{PlannedMove, TransitionPlan, Weight, Zone};
use proptest::prelude::*;

fn partitions(count: u32) -> Partitions {
    Partitions::new(count).unwrap()
}

fn node(id: u64, zone: u8, weight: u32) -> NodeSpec {
    NodeSpec {
        id: NodeId(id),
        zone: Zone::new(format!("z{zone}")).unwrap(),
        weight: Weight::new(weight).unwrap(),
    }
}

/// A cluster that grows step by step.
#[derive(Debug, Clone)]
struct Cluster {
    partitions: Partitions,
    replicas: u8,
    positions: u16,
    nodes: BTreeMap<NodeId, NodeSpec>,
    ring: Ring,
}

impl Cluster {
    fn new(count: u32, replicas: u8, positions: u16) -> Self {
        let (nodes, ring) = (BTreeMap::new(), Ring::new());
        Self {
            partitions: partitions(count),
            replicas,
            positions,
            nodes,
            ring,
        }
    }

    fn of_normal_nodes(count: u32, replicas: u8, positions: u16, nodes: u64) -> Self {
        let mut cluster = Self::new(count, replicas, positions);
        (0..nodes).for_each(|id| cluster.join(node(id, 0, 100)));
        cluster
    }

    fn plan(&self, change: Change) -> Result<Ring, AllocateError> {
        let Self {
            partitions,
            replicas,
            positions,
            nodes,
            ring,
        } = self;
        allocate(ring, *partitions, *replicas, *positions, nodes, change)
    }

    fn join(&mut self, spec: NodeSpec) {
        let change = Change::Join(spec.id);
        self.nodes.insert(spec.id, spec);
        self.ring = self.plan(change).unwrap();
    }

    fn leave(&mut self, id: u64) {
        self.ring = self.plan(Change::Leave(NodeId(id))).unwrap();
        self.nodes.remove(&NodeId(id));
    }

    fn replace(&mut self, old: u64, spec: NodeSpec) {
        let change = Change::Replace {
            old: NodeId(old),
            new: spec.id,
        };
        self.nodes.insert(spec.id, spec);
        self.ring = self.plan(change).unwrap();
        self.nodes.remove(&NodeId(old));
    }

    fn reweight(&mut self, id: u64, weight: u32) {
        let spec = self.nodes.get_mut(&NodeId(id)).unwrap();
        spec.weight = Weight::new(weight).unwrap();
        self.ring = self.plan(Change::Reweight(NodeId(id))).unwrap();
    }

    fn placement(&self) -> Placement {
        Placement::compute(&self.ring, self.partitions, self.replicas, &self.nodes)
    }

    /// Whether the ring has enough free borders for the next join of a normal node to only insert.
    fn has_room(&self) -> bool {
        let count = self.partitions.count() as usize;
        count - self.ring.len() >= (count / 5).max(2 * usize::from(self.positions))
    }
}

/// What `change` moves.
fn moves(cluster: &mut Cluster, change: impl FnOnce(&mut Cluster)) -> TransitionPlan {
    let before = cluster.placement();
    change(cluster);
    TransitionPlan::between(&before, &cluster.placement())
}

mod joining {
    use super::*;

    #[test]
    fn the_first_node_is_spaced_evenly() {
        let cluster = Cluster::of_normal_nodes(64, 1, 4, 1);
        let borders: Vec<_> = cluster
            .ring
            .iter()
            .map(|(token, _)| cluster.partitions.ending_at(token).unwrap().0)
            .collect();
        assert_eq!(borders, [15, 31, 47, 63]);
    }

    #[test]
    fn a_second_node_takes_half_and_leaves_half() {
        let mut cluster = Cluster::of_normal_nodes(256, 1, 8, 1);
        let plan = moves(&mut cluster, |cluster| cluster.join(node(1, 0, 100)));
        assert_eq!(plan.moved_replicas, 128);
    }

    #[test]
    fn a_full_ring_is_shared_by_taking_over_and_nobody_loses_his_last_position() {
        let mut cluster = Cluster::new(16, 2, 8);
        for id in 0..16 {
            cluster.join(node(id, 0, 100));
            assert_eq!(cluster.ring.nodes().len() as u64, id + 1);
        }
        assert!(
            cluster
                .placement()
                .loads()
                .values()
                .all(|load| load.primaries == 1)
        );
        cluster.nodes.insert(NodeId(16), node(16, 0, 100));
        let refused = cluster.plan(Change::Join(NodeId(16)));
        assert_eq!(refused, Err(AllocateError::NoRoom { partitions: 16 }));
    }

    #[test]
    fn zones_of_equal_size_cost_no_balance() {
        let mut cluster = Cluster::new(1024, 3, 16);
        (0..12).for_each(|id| cluster.join(node(id, (id % 3) as u8, 100)));
        let balance = cluster.placement().balance();
        assert!(balance.replica_peak_to_mean <= 1.04, "{balance:?}");
    }
}

mod leaving {
    use super::*;

    #[test]
    fn a_node_that_leaves_in_the_middle_of_things_leaves_the_rest_even() {
        let mut cluster = Cluster::of_normal_nodes(1024, 3, 16, 12);
        let plan = moves(&mut cluster, |cluster| cluster.leave(4));
        assert!(
            plan.balance_after.replica_peak_to_mean <= 1.05,
            "{:?}",
            plan.balance_after
        );
        assert!(
            plan.moved_to_minimum() <= 1.06,
            "{}",
            plan.moved_to_minimum()
        );
        let lost = plan.moves.iter().flat_map(PlannedMove::lost);
        let by_others = lost.filter(|node| *node != NodeId(4)).count();
        assert!(
            by_others <= 5,
            "{by_others} replicas moved between nodes that stay"
        );
    }

    #[test]
    fn as_many_nodes_as_replicas_lose_one_without_any_move() {
        let mut cluster = Cluster::of_normal_nodes(256, 3, 8, 3);
        let plan = moves(&mut cluster, |cluster| cluster.leave(0));
        assert_eq!(
            plan.moved_replicas, 0,
            "both others hold everything already"
        );
    }

    #[test]
    fn the_last_node_cannot_leave() {
        let cluster = Cluster::of_normal_nodes(64, 1, 4, 1);
        let refused = cluster.plan(Change::Leave(NodeId(0)));
        assert_eq!(refused, Err(AllocateError::LastNode { node: NodeId(0) }));
    }
}

mod replacing {
    use super::*;

    #[test]
    fn a_replacement_takes_over_exactly_what_the_other_had() {
        let mut cluster = Cluster::of_normal_nodes(256, 3, 8, 6);
        let held = cluster.placement().loads()[&NodeId(2)].replicas;
        let plan = moves(&mut cluster, |cluster| cluster.replace(2, node(9, 0, 100)));
        assert_eq!(plan.moved_replicas, u64::from(held));
        for change in &plan.moves {
            assert_eq!(change.gained().collect::<Vec<_>>(), [NodeId(9)]);
            assert_eq!(change.lost().collect::<Vec<_>>(), [NodeId(2)]);
        }
    }

    #[test]
    fn a_heavier_replacement_gets_more() {
        let mut cluster = Cluster::of_normal_nodes(1024, 2, 16, 6);
        cluster.replace(2, node(9, 0, 200));
        let load = cluster.placement().loads()[&NodeId(9)];
        let ratio = f64::from(load.replicas) / load.fair_replicas;
        assert!((0.95..=1.05).contains(&ratio), "{load:?}");
    }
}

mod reweighting {
    use super::*;

    #[test]
    fn load_follows_the_weight_up_and_down() {
        let mut cluster = Cluster::of_normal_nodes(1024, 2, 16, 8);
        for weight in [200, 100, 50, 25, 100] {
            cluster.reweight(3, weight);
            let placement = cluster.placement();
            let load = placement.loads()[&NodeId(3)];
            let ratio = f64::from(load.replicas) / load.fair_replicas;
            assert!((0.9..=1.1).contains(&ratio), "at {weight} %: {load:?}");
            let balance = placement.balance();
            assert!(
                balance.replica_peak_to_mean <= 1.1,
                "at {weight} %: {balance:?}"
            );
        }
    }

    #[test]
    fn an_unchanged_weight_changes_nothing() {
        let mut cluster = Cluster::of_normal_nodes(1024, 2, 16, 8);
        let before = cluster.ring.clone();
        cluster.reweight(3, 100);
        assert_eq!(cluster.ring, before);
    }

    #[test]
    fn the_lightest_node_keeps_a_position() {
        let mut cluster = Cluster::of_normal_nodes(64, 2, 8, 4);
        cluster.reweight(1, 1);
        assert!(cluster.ring.contains(NodeId(1)));
    }
}

mod refusals {
    use super::*;

    #[test]
    fn every_node_involved_has_to_be_described() {
        let mut cluster = Cluster::of_normal_nodes(64, 1, 4, 2);
        let undescribed = |id| Err(AllocateError::Undescribed { node: NodeId(id) });
        assert_eq!(cluster.plan(Change::Join(NodeId(7))), undescribed(7));
        cluster.nodes.remove(&NodeId(1));
        assert_eq!(cluster.plan(Change::Leave(NodeId(1))), undescribed(1));
    }

    #[test]
    fn who_comes_is_not_there_and_who_goes_is() {
        let mut cluster = Cluster::of_normal_nodes(64, 1, 4, 2);
        cluster.nodes.insert(NodeId(7), node(7, 0, 100));
        let placed = Err(AllocateError::AlreadyPlaced { node: NodeId(1) });
        let unplaced = Err(AllocateError::NotPlaced { node: NodeId(7) });
        assert_eq!(cluster.plan(Change::Join(NodeId(1))), placed);
        assert_eq!(cluster.plan(Change::Leave(NodeId(7))), unplaced);
        assert_eq!(cluster.plan(Change::Reweight(NodeId(7))), unplaced);
        let replace = |old, new| Change::Replace {
            old: NodeId(old),
            new: NodeId(new),
        };
        assert_eq!(cluster.plan(replace(0, 1)), placed);
        assert_eq!(cluster.plan(replace(7, 1)), unplaced);
    }

    #[test]
    fn settings_and_borders_are_checked() {
        let mut cluster = Cluster::of_normal_nodes(64, 1, 4, 1);
        cluster.replicas = 0;
        let refused = cluster.plan(Change::Leave(NodeId(0)));
        assert_eq!(
            refused,
            Err(AllocateError::Settings {
                replicas: 0,
                positions: 4
            })
        );
        cluster.replicas = 1;
        cluster.ring.insert(crate::Token(5), NodeId(0)).unwrap();
        let refused = cluster.plan(Change::Reweight(NodeId(0)));
        assert!(matches!(
            refused,
            Err(AllocateError::Ring(RingError::OffBorder { .. }))
        ));
    }
}

/// Any change, with numbers that select its nodes.
#[derive(Debug, Clone)]
enum Step {
    Join { zone: u8, weight: u32 },
    Leave { nth: usize },
    Replace { nth: usize, weight: u32 },
    Reweight { nth: usize, weight: u32 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let weight = prop_oneof![Just(100_u32), 25_u32..400];
    prop_oneof![
        4 => (0_u8..4, weight.clone()).prop_map(|(zone, weight)| Step::Join { zone, weight }),
        1 => any::<usize>().prop_map(|nth| Step::Leave { nth }),
        1 => (any::<usize>(), weight.clone())
            .prop_map(|(nth, weight)| Step::Replace { nth, weight }),
        1 => (any::<usize>(), weight).prop_map(|(nth, weight)| Step::Reweight { nth, weight }),
    ]
}

/// Up to 14 changes of a ring of 64 or 256 partitions in up to 4 zones.
fn any_life() -> impl Strategy<Value = (Cluster, Vec<Step>, u8)> {
    let count = prop_oneof![Just(64_u32), Just(256)];
    let steps = proptest::collection::vec(any_step(), 1..14);
    (count, 1_u8..=5, 1_u16..10, steps, 1_u8..=4).prop_map(
        |(count, replicas, positions, steps, zones)| {
            (Cluster::new(count, replicas, positions), steps, zones)
        },
    )
}

impl Cluster {
    fn nth(&self, nth: usize) -> u64 {
        let ids: Vec<_> = self.nodes.keys().collect();
        ids[nth % ids.len()].0
    }

    /// Performs a step if it is possible, under a new id where one is needed.
    fn take(&mut self, step: &Step, id: u64, zones: u8) {
        match *step {
            Step::Join { zone, weight } => self.join(node(id, zone % zones, weight)),
            _ if self.nodes.is_empty() => {}
            Step::Leave { .. } if self.nodes.len() == 1 => {}
            Step::Leave { nth } => self.leave(self.nth(nth)),
            Step::Replace { nth, weight } => {
                let old = self.nth(nth);
                let zone = self.nodes[&NodeId(old)].zone.clone();
                self.replace(
                    old,
                    NodeSpec {
                        zone,
                        ..node(id, 0, weight)
                    },
                );
            }
            Step::Reweight { nth, weight } => self.reweight(self.nth(nth), weight),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_every_node_has_positions_on_borders_and_every_partition_its_replicas(
        (mut cluster, steps, zones) in any_life(),
    ) {
        for (step, id) in steps.iter().zip(0..) {
            cluster.take(step, id, zones);
            prop_assert_eq!(cluster.ring.check_borders(cluster.partitions), Ok(()));
            prop_assert!(cluster.ring.nodes().iter().eq(cluster.nodes.keys()));
            let placement = cluster.placement();
            let width = usize::from(cluster.replicas).min(cluster.nodes.len());
            for partition in cluster.partitions.iter() {
                prop_assert_eq!(placement.nodes(partition).len(), width);
            }
        }
    }

    #[test]
    fn the_same_life_gives_the_same_ring((cluster, steps, zones) in any_life()) {
        let live = |mut cluster: Cluster| {
            steps.iter().zip(0..).for_each(|(step, id)| cluster.take(step, id, zones));
            cluster.ring
        };
        prop_assert_eq!(live(cluster.clone()), live(cluster));
    }

    #[test]
    fn join_then_leave_restores_the_ring((mut cluster, steps, zones) in any_life()) {
        steps.iter().zip(0..).for_each(|(step, id)| cluster.take(step, id, zones));
        prop_assume!(!cluster.ring.is_empty() && cluster.has_room());
        let before = cluster.ring.clone();
        cluster.join(node(99, 0, 100));
        cluster.leave(99);
        prop_assert_eq!(cluster.ring, before);
    }

    #[test]
    fn a_join_moves_partitions_to_the_newcomer_alone((mut cluster, steps, _) in any_life()) {
        steps.iter().zip(0..).for_each(|(step, id)| cluster.take(step, id, 1));
        prop_assume!(!cluster.ring.is_empty() && cluster.has_room());
        let plan = moves(&mut cluster, |cluster| cluster.join(node(99, 0, 100)));
        for change in &plan.moves {
            prop_assert_eq!(change.gained().collect::<Vec<_>>(), [NodeId(99)]);
            prop_assert!(change.lost().count() <= 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Replicas held, of nodes from half to double the normal weight, with half as many positions as
    /// usual: within 15 % of the fair share and two partitions. Of 6,000 random clusters the worst was
    /// at 12.2 %, and three were above a tenth.
    #[test]
    fn weights_are_respected(
        weights in proptest::collection::vec(50_u32..=200, 4..10),
        replicas in 1_u8..=3,
    ) {
        let mut cluster = Cluster::new(1024, replicas, 16);
        for (id, weight) in (0..).zip(weights) {
            cluster.join(node(id, 0, weight));
        }
        for (node, load) in cluster.placement().loads() {
            let apart = (f64::from(load.replicas) - load.fair_replicas).abs();
            prop_assert!(apart <= load.fair_replicas * 0.15 + 2.0, "{node}: {load:?}");
        }
    }
}
