//! Namespaces with their own number of replicas.

use std::collections::BTreeSet;

use proptest::prelude::*;
use torc_record::{Layer, NamespaceId};

use super::replica_tests::{
    begin, enrol, exclude, founded, proposal, report_all, run_to_end, sets, write_off,
};
use super::*;
use crate::replicas::MoveError;

const PARTITIONS: usize = 64;

fn create(
    topology: &mut Topology,
    name: &str,
    replicas: impl Into<Option<u8>>,
) -> Result<NamespaceId, TopologyError> {
    topology.apply(Command::CreateNamespace(NewNamespace {
        name: name.to_owned(),
        mode: NamespaceMode::Linearizable,
        replicas: replicas.into(),
    }))?;
    Ok(topology.routing().namespaces[name].id)
}

fn widths(topology: &Topology) -> Vec<usize> {
    let mut widths: Vec<_> = sets(topology).iter().map(BTreeSet::len).collect();
    widths.dedup();
    widths
}

#[test]
fn the_first_namespace_of_a_number_gives_it_partitions_of_its_own() {
    let mut topology = founded(3, 5, 1);
    let base = topology.routing();
    assert_eq!(base.states.len(), PARTITIONS);
    let five = create(&mut topology, "five", 5).unwrap();
    let two = create(&mut topology, "two", 2).unwrap();
    let same = create(&mut topology, "three", 3).unwrap();
    assert_eq!(
        [five, two, same].map(NamespaceId::layer).map(Layer::number),
        [5, 2, 0]
    );
    assert_eq!(widths(&topology), [3, 2, 5]);
    let table = topology.routing();
    assert_eq!(table.states[..PARTITIONS], base.states[..], "untouched");
    let state = |namespace| {
        let digest = torc_record::Digest([200; 16]);
        let partition = table.partition_of(namespace, &digest);
        assert!(table.partitions.contains(partition));
        let state = table.state(partition).unwrap();
        assert_eq!(state.config.partition, partition);
        (
            state.nodes.len(),
            topology.replicas_due(partition),
            state.config.epoch,
        )
    };
    assert_eq!(state(five), (5, 5, Epoch(base.epoch.0 + 1)));
    assert_eq!(state(two), (2, 2, Epoch(base.epoch.0 + 2)));
    assert_eq!(state(same), (3, 3, Epoch(1)));

    let states = table.states.clone();
    create(&mut topology, "five-too", 5).unwrap();
    assert_eq!(topology.routing().states, states, "those of the first");
    assert!(
        topology.state(Partition(4 * 64)).is_none(),
        "nobody asked for four"
    );
}

#[test]
fn a_number_of_replicas_that_nobody_could_hold_is_refused_and_changes_nothing() {
    let mut topology = founded(3, 3, 1);
    let before = topology.clone();
    let too_few = TopologyError::TooFewNodesFor {
        asked: 5,
        active: 3,
    };
    assert_eq!(create(&mut topology, "five", 5), Err(too_few));
    for asked in [0, 6, 7, 8, 255] {
        let refused = create(&mut topology, "odd", asked);
        assert!(
            matches!(refused, Err(TopologyError::Setting { .. })),
            "{asked}"
        );
    }
    assert_eq!(topology, before);
}

#[test]
fn a_cluster_founded_with_one_replica_has_namespaces_with_more() {
    let mut topology = founded(1, 3, 1);
    create(&mut topology, "three", 3).unwrap();
    assert_eq!(widths(&topology), [1, 3]);
    let fourth = enrol(&mut topology, 4);
    begin(&mut topology, TransitionKind::Join(fourth), 8);
    run_to_end(&mut topology, &[]);
    assert_eq!(widths(&topology), [1, 3]);
}

#[test]
fn a_new_number_waits_for_a_transition_and_a_known_one_does_not() {
    let mut topology = founded(3, 3, 1);
    create(&mut topology, "two", 2).unwrap();
    let fourth = enrol(&mut topology, 4);
    let transition = begin(&mut topology, TransitionKind::Join(fourth), 4);
    let busy = TopologyError::Busy { transition };
    assert_eq!(create(&mut topology, "one", 1), Err(busy));
    assert!(create(&mut topology, "two-too", 2).is_ok());
    run_to_end(&mut topology, &[]);
    assert!(create(&mut topology, "one", 1).is_ok());
}

#[test]
fn a_join_moves_the_partitions_of_every_layer_as_planned() {
    let mut topology = founded(3, 3, 1);
    create(&mut topology, "one", 1).unwrap();
    create(&mut topology, "two", 2).unwrap();
    let fourth = enrol(&mut topology, 4);
    let before = sets(&topology);
    let plan = topology.plan(&TransitionKind::Join(fourth), false).unwrap();
    begin(&mut topology, TransitionKind::Join(fourth), 16);
    run_to_end(&mut topology, &[]);
    assert_eq!(widths(&topology), [3, 1, 2]);
    let after = sets(&topology);
    let numbers: Vec<_> = topology.partitions_in_use().collect();
    let moved = (0..after.len()).filter(|at| before[*at] != after[*at]);
    let moved: Vec<_> = moved.map(|at| numbers[at]).collect();
    let planned: Vec<_> = plan.moves.iter().map(|it| it.partition).collect();
    assert_eq!(moved, planned);
    for layer in 0..3 {
        let of = &after[layer * PARTITIONS..][..PARTITIONS];
        assert!(of.iter().any(|set| set.contains(&fourth)), "layer {layer}");
    }
}

#[test]
fn a_node_leaves_only_while_the_widest_namespace_keeps_its_replicas() {
    let mut topology = founded(2, 4, 1);
    create(&mut topology, "four", 4).unwrap();
    let kind = TransitionKind::Leave(NodeId(4));
    let mut leave = proposal(&topology, kind, 16);
    let too_few = TopologyError::TooFewNodes {
        active: 4,
        replicas: 4,
    };
    assert_eq!(topology.apply(Command::Begin(leave.clone())), Err(too_few));
    leave.force = true;
    topology.apply(Command::Begin(leave)).unwrap();
    run_to_end(&mut topology, &[]);
    assert_eq!(widths(&topology), [2, 3]);
}

/// Starts to replace node 1, declared dead, by a new node; returns the result.
fn replace_dead(
    topology: &mut Topology,
    lossy: bool,
    parallel: u32,
) -> (NodeId, Result<Outcome, TopologyError>) {
    let new = enrol(topology, 9);
    let old = NodeId(1);
    begin(topology, TransitionKind::Replace { old, new }, parallel);
    let declare = if lossy { write_off(old) } else { exclude(old) };
    (new, topology.apply(declare))
}

#[test]
fn a_dead_node_whose_vote_is_needed_is_replaced_by_force_and_whoever_is_left_counts() {
    for parallel in [1, 16, 1_000] {
        let mut topology = founded(3, 3, 1);
        create(&mut topology, "one", 1).unwrap();
        create(&mut topology, "two", 2).unwrap();
        let before: Vec<_> = topology.routing().states;
        let (_, refused) = replace_dead(&mut topology.clone(), false, parallel);
        assert_eq!(refused, Err(TopologyError::Move(MoveError::NoMajority)));

        let (new, done) = replace_dead(&mut topology, true, parallel);
        assert_eq!(done, Ok(Outcome::Done));
        let once = topology.clone();
        let again = topology.apply(write_off(NodeId(1)));
        assert_eq!(again, Ok(Outcome::Done));
        assert!(topology == once, "asking again begins nothing anew");
        let json = serde_json::to_string(&topology).unwrap();
        topology = serde_json::from_str(&json).expect("what it says holds together");
        run_to_end(&mut topology, &[NodeId(1)]);
        assert_eq!(widths(&topology), [3, 1, 2]);
        let after = topology.routing().states;
        for (before, after) in before.iter().zip(&after) {
            assert!(!after.nodes.contains(&NodeId(1)));
            let stays = |node: &&NodeId| **node != NodeId(1);
            let since = |state: &PartitionState, node| state.config.member(node).unwrap().since;
            for node in before.nodes.iter().filter(stays) {
                let was = since(before, *node);
                assert_eq!(since(after, *node), was, "who stays keeps what it holds");
            }
            if before.nodes.len() > after.nodes.iter().filter(|n| **n != new).count() {
                assert!(since(after, new) > since(before, before.nodes[0]));
            }
        }
    }
}

#[test]
fn the_stored_form_keeps_every_layer_and_is_checked() {
    let mut topology = founded(3, 4, 1);
    create(&mut topology, "four", 4).unwrap();
    let fifth = enrol(&mut topology, 5);
    begin(&mut topology, TransitionKind::Join(fifth), 8);
    report_all(&mut topology, &[]);
    let json = serde_json::to_string(&topology).unwrap();
    let mut read: Topology = serde_json::from_str(&json).unwrap();
    assert_eq!(read, topology);
    run_to_end(&mut read, &[]);
    run_to_end(&mut topology, &[]);
    assert_eq!(read, topology);

    let mut value: serde_json::Value = serde_json::from_str(&json).unwrap();
    value["namespaces"]["four"]["replicas"] = 2.into();
    assert!(serde_json::from_value::<Topology>(value.clone()).is_err());
    value["namespaces"]["four"]["replicas"] = 4.into();
    value["configs"].as_array_mut().unwrap().pop();
    assert!(serde_json::from_value::<Topology>(value).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_layers_there_are_changes_end_where_the_ring_puts_them(
        cluster in 1_u8..=4,
        counts in proptest::collection::vec(1_u8..=5, 0..4),
        joins in 0_u8..3,
        abort: bool,
    ) {
        let mut topology = founded(cluster, 5, 2);
        for (nth, count) in counts.iter().enumerate() {
            create(&mut topology, &format!("n{nth}"), *count).unwrap();
        }
        for number in 6..6 + joins {
            let node = enrol(&mut topology, number);
            let transition = begin(&mut topology, TransitionKind::Join(node), 16);
            if abort && number == 7 {
                report_all(&mut topology, &[]);
                if topology.transition().is_some() {
                    topology.apply(Command::Abort { transition, at_ms: 3 }).unwrap();
                }
            }
            run_to_end(&mut topology, &[]);
        }
        let table = topology.routing();
        prop_assert_eq!(table.states.len(), table.layers.count() * PARTITIONS);
        for (partition, state) in topology.partitions_in_use().zip(&table.states) {
            prop_assert_eq!(state.config.partition, partition);
            prop_assert_eq!(state.nodes.len(), usize::from(topology.replicas_due(partition)));
            prop_assert!(state.nodes.contains(&state.lead));
        }
        for (name, namespace) in &table.namespaces {
            let partition = table.partition_of(namespace.id, &torc_record::Digest([7; 16]));
            prop_assert_eq!(topology.replicas_due(partition), namespace.replicas, "{}", name);
        }
    }
}
