//! The moves between two placements.
//!
//! The plan shown is the plan that runs: it is computed from the two placements alone,
//! and applying its moves to the first gives the lists of the second.

#![expect(clippy::cast_precision_loss, reason = "a ratio for reports")]

use torc_record::Layer;

use crate::{Balance, NodeId, Partition, Partitions, Placement, PreferenceList};

/// One partition whose preference list changes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlannedMove {
    /// The partition.
    pub partition: Partition,
    /// Its nodes before, the primary first.
    pub from: PreferenceList,
    /// Its nodes after, the primary first.
    pub to: PreferenceList,
}

impl PlannedMove {
    /// The nodes that receive the partition, in the order of the new list.
    pub fn gained(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.to.without(&self.from)
    }

    /// The nodes that drop the partition, in the order of the old list.
    pub fn lost(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.from.without(&self.to)
    }
}

/// Every difference between two placements, and what it costs.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TransitionPlan {
    /// Partitions whose set of nodes changes: data moves. In ring order.
    pub moves: Vec<PlannedMove>,
    /// Partitions whose nodes only change their order: no data moves, but the primary
    /// may change. In ring order.
    pub reorders: Vec<PlannedMove>,
    /// Partition replicas that nodes receive.
    pub moved_replicas: u64,
    /// The minimum of moves for a balanced placement: the growth of the nodes' fair
    /// shares. For a join, this is the new node's fair share (partitions x replicas /
    /// nodes for equal nodes); for a leave, that of the leaving node.
    pub minimum_replicas: f64,
    /// The balance of the base layer before.
    pub balance_before: Balance,
    /// The balance of the base layer after.
    pub balance_after: Balance,
}

impl TransitionPlan {
    /// Compares two placements of the same partitions. O(partitions).
    ///
    /// A placement with fewer partitions counts as having empty lists for the rest.
    #[must_use]
    pub fn between(before: &Placement, after: &Placement) -> Self {
        let (mut moves, mut reorders) = (Vec::new(), Vec::new());
        for partition in after.partitions().iter() {
            if before.nodes(partition) == after.nodes(partition) {
                continue;
            }
            let change = PlannedMove {
                partition,
                from: before.list(partition),
                to: after.list(partition),
            };
            if change.from.same_nodes(&change.to) {
                reorders.push(change);
            } else {
                moves.push(change);
            }
        }
        Self {
            moved_replicas: moves
                .iter()
                .map(|change| change.gained().count() as u64)
                .sum(),
            minimum_replicas: growth_of_fair_shares(before, after),
            balance_before: before.balance(),
            balance_after: after.balance(),
            moves,
            reorders,
        }
    }

    /// As the plan of another layer's partitions.
    pub(crate) fn put_in(&mut self, layer: Layer, partitions: Partitions) {
        for change in self.moves.iter_mut().chain(&mut self.reorders) {
            change.partition = partitions.in_layer(layer, change.partition);
        }
    }

    /// This plan and that of a further layer. The balance stays this one's.
    pub(crate) fn and(mut self, further: Self) -> Self {
        self.moves.extend(further.moves);
        self.reorders.extend(further.reorders);
        self.moved_replicas += further.moved_replicas;
        self.minimum_replicas += further.minimum_replicas;
        self
    }

    /// Whether nothing changes, not even the order of nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty() && self.reorders.is_empty()
    }

    /// Moves over the minimum; 1 if both are 0, infinite if only the minimum is 0.
    #[must_use]
    pub fn moved_to_minimum(&self) -> f64 {
        if self.moved_replicas == 0 && self.minimum_replicas <= 0.0 {
            return 1.0;
        }
        self.moved_replicas as f64 / self.minimum_replicas
    }
}

fn growth_of_fair_shares(before: &Placement, after: &Placement) -> f64 {
    let fair_before = before.loads();
    let growth = after.loads().into_iter().map(|(node, load)| {
        let before = fair_before
            .get(&node)
            .map_or(0.0, |load| load.fair_replicas);
        (load.fair_replicas - before).max(0.0)
    });
    growth.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeSpec, Ring};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PARTITIONS: u32 = 32;

    fn placement(owners: &BTreeMap<u32, u64>, replicas: u8) -> Placement {
        let partitions = Partitions::new(PARTITIONS).unwrap();
        let mut ring = Ring::new();
        for (&partition, &node) in owners {
            let token = partitions.end(Partition(partition));
            ring.insert(token, NodeId(node)).unwrap();
        }
        let spec = |id| (id, NodeSpec::normal(id));
        let specs = ring.nodes().into_iter().map(spec).collect();
        Placement::compute(&ring, partitions, replicas, &specs)
    }

    #[test]
    fn a_join_lists_what_the_newcomer_gains_and_whom_it_relieves() {
        let before = placement(&BTreeMap::from([(15, 1), (31, 2)]), 1);
        let after = placement(&BTreeMap::from([(7, 3), (15, 1), (31, 2)]), 1);
        let plan = TransitionPlan::between(&before, &after);
        assert_eq!(plan.moved_replicas, 8);
        assert!((plan.minimum_replicas - 32.0 / 3.0).abs() < 0.01);
        assert_eq!(plan.moves.len(), 8);
        let first = &plan.moves[0];
        assert_eq!(first.partition, Partition(0));
        assert_eq!(first.gained().collect::<Vec<_>>(), [NodeId(3)]);
        assert_eq!(first.lost().collect::<Vec<_>>(), [NodeId(1)]);
    }

    #[test]
    fn a_new_order_of_the_same_nodes_moves_no_data() {
        let before = placement(&BTreeMap::from([(15, 1), (31, 2)]), 2);
        let after = placement(&BTreeMap::from([(7, 2), (15, 1), (31, 2)]), 2);
        let plan = TransitionPlan::between(&before, &after);
        assert!(plan.moves.is_empty());
        assert_eq!(plan.reorders.len(), 8);
        assert!((plan.moved_to_minimum() - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_plan_survives_json() {
        let before = placement(&BTreeMap::from([(15, 1), (31, 2)]), 1);
        let after = placement(&BTreeMap::from([(15, 3), (31, 2)]), 1);
        let plan = TransitionPlan::between(&before, &after);
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<TransitionPlan>(&json).unwrap(), plan);
    }

    fn owners() -> impl Strategy<Value = BTreeMap<u32, u64>> {
        proptest::collection::btree_map(0..PARTITIONS, 0_u64..6, 1..20)
    }

    proptest! {
        #[test]
        fn the_plan_applied_to_the_old_lists_gives_the_new_ones(
            from in owners(), to in owners(), replicas in 1_u8..=4,
        ) {
            let (before, after) = (placement(&from, replicas), placement(&to, replicas));
            let plan = TransitionPlan::between(&before, &after);
            let lists = |placement: &Placement| -> Vec<PreferenceList> {
                placement.partitions().iter().map(|partition| placement.list(partition)).collect()
            };
            let mut applied = lists(&before);
            for change in plan.moves.iter().chain(&plan.reorders) {
                let list = &mut applied[change.partition.index()];
                prop_assert_eq!(&change.from, &*list);
                *list = change.to.clone();
            }
            prop_assert_eq!(applied, lists(&after));
        }

        #[test]
        fn a_placement_needs_no_plan_to_itself(owners in owners(), replicas in 1_u8..=4) {
            let placement = placement(&owners, replicas);
            let plan = TransitionPlan::between(&placement, &placement);
            prop_assert!(plan.is_empty());
            prop_assert_eq!(plan.moved_replicas, 0);
        }
    }
}
