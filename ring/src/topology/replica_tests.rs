//! Several replicas: random commands keep the rules, and each command does what it says.

use torc_record::{DigestKey, NamespaceId};

use super::*;
use crate::replicas::{Milestone, Milestones, MoveError, Mutations};
use crate::{Weight, Zone};

pub(super) const HOLD: Mutations = Mutations::NONE;

pub(super) fn member(number: u8, zones: u8) -> NewMember {
    let zone = ["a", "b", "c"][usize::from(number % zones)];
    NewMember {
        incarnation: Incarnation([number; 16]),
        address: format!("127.0.0.1:{}", 7400 + u16::from(number)),
        peer_address: format!("127.0.0.1:{}", 7500 + u16::from(number)),
        http_address: String::new(),
        zone: Zone::new(zone).unwrap(),
        weight: Weight::NORMAL,
        release: Release::ours(),
    }
}

pub(super) fn founded(replicas: u8, nodes: u8, zones: u8) -> Topology {
    Topology::found(Founding {
        cluster: ClusterId([9; 16]),
        digest_key: DigestKey([1; 32]),
        partitions: Partitions::new(64).unwrap(),
        replicas,
        positions: 4,
        members: (1..=nodes).map(|number| member(number, zones)).collect(),
    })
    .unwrap()
}

pub(super) fn enrol(topology: &mut Topology, number: u8) -> NodeId {
    let enrolled = topology.apply(Command::Enrol(member(number, 1))).unwrap();
    let Outcome::Enrolled { node, .. } = enrolled else {
        panic!("{enrolled:?}")
    };
    node
}

pub(super) fn proposal(topology: &Topology, kind: TransitionKind, parallel: u32) -> Proposal {
    Proposal {
        kind,
        based_on: topology.epoch(),
        parallel,
        planned: Sizes::default(),
        at_ms: 1,
        force: false,
    }
}

pub(super) fn begin(topology: &mut Topology, kind: TransitionKind, parallel: u32) -> u64 {
    let proposal = proposal(topology, kind, parallel);
    match topology.apply(Command::Begin(proposal)).unwrap() {
        Outcome::Begun { transition } => transition,
        other => panic!("{other:?}"),
    }
}

fn report(
    topology: &mut Topology,
    node: NodeId,
    reached: fn(Epoch) -> Milestone,
    partition: Partition,
) {
    let report = Report::of(topology.config(partition).unwrap(), reached, 2);
    let reports = vec![report];
    topology.apply(Command::Report { node, reports }).unwrap();
}

/// All members except the silent ones report on their moving and ended partitions.
pub(super) fn report_all(topology: &mut Topology, silent: &[NodeId]) {
    let nodes: Vec<_> = topology.members().keys().copied().collect();
    for node in nodes.into_iter().filter(|node| !silent.contains(node)) {
        let reached: [fn(Epoch) -> Milestone; 3] = [
            Milestone::Copied,
            Milestone::Snapshotted,
            Milestone::Adopted,
        ];
        let holds = |p: &Partition| topology.config(*p).unwrap().index(node).is_some();
        let held: Vec<_> = topology.partitions_in_use().filter(holds).collect();
        let reports = held.iter().flat_map(|partition| {
            let config = topology.config(*partition).unwrap();
            reached.map(|reached| Report::of(config, reached, 2))
        });
        let reports = reports.collect();
        topology.apply(Command::Report { node, reports }).unwrap();
    }
}

pub(super) fn exclude(node: NodeId) -> Command {
    Command::Exclude { node }
}

pub(super) fn write_off(node: NodeId) -> Command {
    Command::WriteOff { node, at_ms: 3 }
}

pub(super) fn run_to_end(topology: &mut Topology, silent: &[NodeId]) {
    for _ in 0..2_000 {
        if topology.transition().is_none() {
            return;
        }
        report_all(topology, silent);
    }
    panic!(
        "it does not end: {:?}",
        topology.transition().unwrap().counts()
    );
}

pub(super) fn sets(topology: &Topology) -> Vec<BTreeSet<NodeId>> {
    let of = |partition| {
        topology
            .state(partition)
            .unwrap()
            .nodes
            .iter()
            .copied()
            .collect()
    };
    topology.partitions_in_use().map(of).collect()
}

#[test]
fn sets_grow_with_the_cluster_until_there_are_enough_replicas() {
    let mut topology = founded(3, 1, 1);
    for (number, width) in [(2, 2), (3, 3), (4, 3)] {
        let node = enrol(&mut topology, number);
        begin(&mut topology, TransitionKind::Join(node), 16);
        run_to_end(&mut topology, &[]);
        assert!(sets(&topology).iter().all(|set| set.len() == width));
    }
}

#[test]
fn a_replacement_moves_the_partitions_of_the_dead_node_and_no_others() {
    let mut topology = founded(3, 5, 1);
    let (old, new) = (NodeId(2), enrol(&mut topology, 6));
    let (before, ring) = (sets(&topology), topology.routing().ring);
    let kind = TransitionKind::Replace { old, new };
    let plan = topology.plan(&kind, false).unwrap();
    begin(&mut topology, kind, 8);
    assert_eq!(topology.members()[&old].state, MemberState::Leaving);
    topology.apply(exclude(old)).unwrap();
    assert_eq!(topology.transition().unwrap().dead, BTreeSet::from([old]));
    run_to_end(&mut topology, &[old]);
    assert!(!topology.members().contains_key(&old));
    assert_eq!(topology.members()[&new].state, MemberState::Active);
    let of = |ring: &Ring, node| ring.positions_of(node).collect::<Vec<_>>();
    assert_eq!(of(&topology.routing().ring, new), of(&ring, old));
    let mut moved = Vec::new();
    for (partition, (before, after)) in before.iter().zip(sets(&topology)).enumerate() {
        let swapped = |node: &NodeId| if *node == old { new } else { *node };
        assert_eq!(before.iter().map(swapped).collect::<BTreeSet<_>>(), after);
        if before.contains(&old) {
            moved.push(Partition(partition as u32));
        }
    }
    let planned: Vec<_> = plan.moves.iter().map(|planned| planned.partition).collect();
    assert_eq!(planned, moved);
}

#[test]
fn a_dead_node_leads_nothing_and_does_not_vote() {
    let mut topology = founded(3, 4, 1);
    let (old, new) = (NodeId(1), enrol(&mut topology, 5));
    begin(&mut topology, TransitionKind::Replace { old, new }, 1_000);
    topology.apply(exclude(old)).unwrap();
    let epoch = topology.epoch();
    topology.apply(exclude(old)).unwrap();
    assert_eq!(topology.epoch(), epoch, "declared dead already");
    for (_, config) in topology.moving() {
        let state = topology.state(config.partition).unwrap();
        assert_ne!(state.lead, old);
        assert_eq!(config.nodes(config.excluded).collect::<Vec<_>>(), [old]);
        assert!(config.gathers(config.seat_of(new).unwrap()));
    }
}

#[test]
fn a_node_is_not_declared_dead_where_its_vote_is_needed() {
    let mut topology = founded(2, 3, 1);
    let new = enrol(&mut topology, 4);
    let stranger = topology.apply(exclude(new)).unwrap_err();
    assert_eq!(stranger, TopologyError::NoTransition);
    begin(
        &mut topology,
        TransitionKind::Replace {
            old: NodeId(1),
            new,
        },
        4,
    );
    let before = topology.clone();
    let refused =
        |topology: &mut Topology, node| topology.apply(exclude(NodeId(node))).unwrap_err();
    let no_majority = TopologyError::Move(MoveError::NoMajority);
    assert_eq!(refused(&mut topology, 1), no_majority);
    let stays = MoveError::NotDisplaced { node: NodeId(2) };
    assert_eq!(refused(&mut topology, 2), TopologyError::Move(stays));
    assert_eq!(topology, before);
}

#[test]
fn two_of_three_replicas_lost_for_good_are_replaced_and_the_third_tells_them_all() {
    for (parallel, forced_at) in [(1, 0), (8, 1), (1_000, 3)] {
        let mut topology = founded(3, 5, 1);
        let (first, second) = (NodeId(1), NodeId(2));
        let new = enrol(&mut topology, 6);
        begin(
            &mut topology,
            TransitionKind::Replace { old: first, new },
            parallel,
        );
        topology.apply(write_off(first)).unwrap();
        for _ in 0..forced_at {
            report_all(&mut topology, &[first, second]);
        }
        let before = topology.routing().states;
        topology.apply(write_off(second)).unwrap();
        let after = topology.routing().states;
        for (before, after) in before.iter().zip(&after) {
            let read = |state: &PartitionState| -> BTreeSet<_> {
                state.config.nodes(state.config.readers()).collect()
            };
            let mut left = read(before);
            left.retain(|node| *node != first && *node != second);
            if before.config != after.config && !left.is_empty() {
                assert!(read(after).is_subset(&read(before)), "{before:?} {after:?}");
                assert!(read(after).is_superset(&left));
            }
            let dead = BTreeSet::from([first, second]);
            assert_eq!(
                after.config.left_without(&dead),
                None,
                "it serves: {after:?}"
            );
        }
        let json = serde_json::to_string(&topology).unwrap();
        assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), topology);
        run_to_end(&mut topology, &[first, second]);
        let new = enrol(&mut topology, 7);
        begin(
            &mut topology,
            TransitionKind::Replace { old: second, new },
            parallel,
        );
        assert_eq!(
            topology.transition().unwrap().dead,
            BTreeSet::from([second])
        );
        run_to_end(&mut topology, &[first, second]);
        assert!(sets(&topology).iter().all(|set| set.len() == 3));
        assert!(topology.written_off().is_empty());
    }
}

#[test]
fn what_writing_nodes_off_loses_is_counted_per_number_of_replicas() {
    let mut topology = founded(3, 3, 1);
    for replicas in [1, 2] {
        let new = NewNamespace {
            name: format!("of-{replicas}"),
            mode: NamespaceMode::Linearizable,
            replicas: Some(replicas),
        };
        topology.apply(Command::CreateNamespace(new)).unwrap();
    }
    let losses = |topology: &Topology, dead: &[u64]| {
        let losses = topology.losses(&dead.iter().copied().map(NodeId).collect());
        let figures = losses
            .iter()
            .map(|it| (it.replicas, [it.majority, it.minority, it.none]));
        figures.collect::<Vec<_>>()
    };
    let of_one = losses(&topology, &[1]);
    assert_eq!(of_one[0], (3, [64, 0, 0]));
    let (alone, pairs) = (of_one[1].1[2], of_one[2].1[1]);
    assert!(alone > 0 && pairs > alone, "{of_one:?}");
    assert_eq!(of_one[1], (1, [64 - alone, 0, alone]));
    assert_eq!(of_one[2], (2, [64 - pairs, pairs, 0]));
    assert_eq!(losses(&topology, &[1, 2])[0], (3, [0, 64, 0]));
    assert_eq!(losses(&topology, &[1, 2, 3])[0], (3, [0, 0, 64]));
    topology.apply(write_off(NodeId(1))).unwrap();
    topology.apply(write_off(NodeId(2))).unwrap();
    assert_eq!(losses(&topology, &[])[0], (3, [64, 0, 0]), "lost already");
    assert_eq!(losses(&topology, &[3])[0], (3, [0, 0, 64]));
}

#[test]
fn a_written_off_node_leads_nothing() {
    let mut topology = founded(3, 3, 1);
    let gone = NodeId(2);
    let leads = |topology: &Topology, node| {
        let states = topology.routing().states;
        states.iter().filter(|state| state.lead == node).count()
    };
    assert!(leads(&topology, gone) > 0);
    let before = topology.epoch();
    topology.apply(write_off(gone)).unwrap();
    assert_eq!(leads(&topology, gone), 0, "all keep their majority");
    let states = topology.routing().states;
    let changed = states.iter().filter(|state| state.changed > before);
    assert!(changed.count() > 0, "routers hear of it");
    for node in [1, 3].map(NodeId) {
        topology.apply(write_off(node)).unwrap();
    }
    let states = topology.routing().states;
    let is_replica = |state: &PartitionState| state.nodes.contains(&state.lead);
    assert!(states.iter().all(is_replica), "one must, although all died");
}

#[test]
fn after_a_recovery_every_partition_is_above_the_lost_epochs() {
    for steps in 0..5 {
        let mut topology = founded(3, 4, 1);
        let new = enrol(&mut topology, 5);
        begin(&mut topology, TransitionKind::Join(new), 8);
        for _ in 0..steps {
            report_all(&mut topology, &[NodeId(1)]);
        }
        let before = topology.clone();
        topology.recover(&BTreeSet::from([NodeId(1)]), 3).unwrap();
        for partition in topology.partitions_in_use() {
            let config = topology.config(partition).unwrap();
            assert!(config.epoch > before.epoch(), "{config:?}");
            assert_eq!(config.check(), Ok(()));
        }
        let json = serde_json::to_string(&topology).unwrap();
        assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), topology);
        run_to_end(&mut topology, &[NodeId(1)]);
    }
}

#[test]
fn survivors_of_both_sets_go_on_together_and_can_be_stored() {
    let mut topology = founded(3, 5, 1);
    let (old, new) = (NodeId(1), enrol(&mut topology, 6));
    begin(&mut topology, TransitionKind::Replace { old, new }, 1_000);
    report_all(&mut topology, &[]);
    report_all(&mut topology, &[]);
    let moving: Vec<_> = topology.moving().collect();
    let stages = |stage| move |(_, config): &(Partition, Arc<Config>)| config.stage == stage;
    let both = moving.iter().find(|it| stages(Stage::WriteBothReadNew)(it));
    let (partition, config) = both.expect("one that reads the new set");
    let stay = config.nodes(config.old.intersection(config.new));
    for node in stay.collect::<Vec<_>>() {
        topology.apply(write_off(node)).unwrap();
    }
    let read = topology.config(*partition).unwrap();
    let readers: BTreeSet<_> = read.nodes(read.readers()).collect();
    assert_eq!(readers, [old, new].into());
    let json = serde_json::to_string(&topology).unwrap();
    assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), topology);
}

#[test]
fn a_partition_whose_replicas_were_all_written_off_goes_on_empty_where_it_moves_to() {
    let mut topology = founded(1, 2, 1);
    let old = NodeId(1);
    topology.apply(write_off(old)).unwrap();
    let new = enrol(&mut topology, 3);
    begin(&mut topology, TransitionKind::Replace { old, new }, 4);
    run_to_end(&mut topology, &[old]);
    assert!(
        sets(&topology)
            .iter()
            .all(|set| set.len() == 1 && !set.contains(&old))
    );
}

#[test]
fn who_is_no_member_or_not_yet_one_is_not_written_off() {
    let mut topology = founded(3, 3, 1);
    let new = enrol(&mut topology, 4);
    let refused = topology.apply(write_off(new)).unwrap_err();
    let (node, state) = (new, MemberState::Joining);
    assert_eq!(refused, TopologyError::WrongState { node, state });
    let node = NodeId(9);
    let refused = topology.apply(write_off(node)).unwrap_err();
    assert_eq!(refused, TopologyError::UnknownNode { node });
}

#[test]
fn an_abort_at_any_point_brings_everything_back() {
    for steps in 0..12 {
        let mut topology = founded(3, 4, 1);
        let new = enrol(&mut topology, 5);
        let (before, ring) = (sets(&topology), topology.routing().ring);
        let leads = |topology: &Topology| -> Vec<_> {
            topology
                .routing()
                .states
                .iter()
                .map(|state| state.lead)
                .collect()
        };
        let before_leads = leads(&topology);
        let transition = begin(&mut topology, TransitionKind::Join(new), 7);
        let nodes: Vec<_> = topology.members().keys().copied().collect();
        for step in 0..steps * 5 {
            let silent: Vec<_> = nodes
                .iter()
                .filter(|n| n.0 != step % 5 + 1)
                .copied()
                .collect();
            report_all(&mut topology, &silent);
        }
        if topology.transition().is_none() {
            return;
        }
        let abort = Command::Abort {
            transition,
            at_ms: 3,
        };
        topology.apply(abort.clone()).unwrap();
        let once = topology.clone();
        if topology.transition().is_some() {
            topology.apply(abort).unwrap();
        }
        assert_eq!(topology, once, "aborted already");
        run_to_end(&mut topology, &[]);
        assert_eq!((sets(&topology), leads(&topology)), (before, before_leads));
        assert_eq!(topology.routing().ring, ring);
        assert_eq!(topology.members()[&new].state, MemberState::Joining);
        assert!(topology.last_transition().unwrap().aborted);
    }
}

#[test]
fn there_is_no_way_back_to_a_dead_node_once_a_partition_has_left_it() {
    let mut topology = founded(3, 4, 1);
    let (old, new) = (NodeId(1), enrol(&mut topology, 5));
    let transition = begin(&mut topology, TransitionKind::Replace { old, new }, 1);
    topology.apply(exclude(old)).unwrap();
    while topology.transition().unwrap().counts().0 == 0 {
        report_all(&mut topology, &[old]);
    }
    let refused = topology.apply(Command::Abort {
        transition,
        at_ms: 3,
    });
    assert_eq!(refused, Err(TopologyError::CannotGoBack { node: old }));
}

#[test]
fn fewer_nodes_than_replicas_only_by_force() {
    let mut topology = founded(3, 3, 1);
    let kind = TransitionKind::Leave(NodeId(3));
    let refused = topology.plan(&kind, false).unwrap_err();
    let expected = TopologyError::TooFewNodes {
        active: 3,
        replicas: 3,
    };
    assert_eq!(refused, expected);
    let proposal = Proposal {
        force: true,
        ..proposal(&topology, kind, 8)
    };
    topology.apply(Command::Begin(proposal)).unwrap();
    run_to_end(&mut topology, &[]);
    assert!(sets(&topology).iter().all(|set| set.len() == 2));
}

#[test]
fn a_reweighted_node_holds_its_new_share() {
    let mut topology = founded(1, 3, 1);
    let held = |topology: &Topology| {
        let sets = sets(topology);
        sets.iter().filter(|set| set.contains(&NodeId(2))).count()
    };
    let before = held(&topology);
    let weight = Weight::new(300).unwrap();
    let node = NodeId(2);
    begin(&mut topology, TransitionKind::Reweight { node, weight }, 8);
    assert_eq!(topology.members()[&node].identity.weight, Weight::NORMAL);
    run_to_end(&mut topology, &[]);
    assert_eq!(topology.members()[&node].identity.weight, weight);
    assert!(held(&topology) > before, "{} of 64", held(&topology));
}

#[test]
fn with_three_replicas_writes_wait_for_no_single_newcomer() {
    let mut topology = founded(3, 4, 1);
    let new = enrol(&mut topology, 5);
    begin(&mut topology, TransitionKind::Join(new), 4);
    let moving: Vec<_> = topology.moving().map(|(partition, _)| partition).collect();
    for partition in moving {
        report(&mut topology, new, Milestone::Copied, partition);
    }
    assert_eq!(topology.awaited_copiers(), BTreeSet::new());
    let before = topology.clone();
    topology.apply(Command::Retreat { node: new }).unwrap();
    assert_eq!(topology, before);
}

#[test]
fn what_was_displaced_may_go_once_a_majority_works_without_it() {
    let mut topology = founded(3, 4, 1);
    let new = enrol(&mut topology, 5);
    begin(&mut topology, TransitionKind::Join(new), 1);
    let (partition, _) = topology.moving().next().unwrap();
    let all: Vec<_> = topology.members().keys().copied().collect();
    for node in all.iter().cycle() {
        let others: Vec<_> = all.iter().filter(|n| *n != node).copied().collect();
        report_all(&mut topology, &others);
        if topology.config(partition).unwrap().stage == Stage::Stable {
            break;
        }
    }
    let nodes = topology.state(partition).unwrap().nodes.clone();
    assert!(!topology.may_discard(partition));
    report(&mut topology, nodes[0], Milestone::Adopted, partition);
    assert!(!topology.may_discard(partition), "one of three");
    report(&mut topology, nodes[2], Milestone::Adopted, partition);
    assert!(topology.may_discard(partition));
}

#[test]
fn a_slot_is_given_once() {
    let mut topology = founded(1, 2, 1);
    let mut slots = BTreeSet::new();
    for number in 3..20 {
        let node = enrol(&mut topology, number);
        assert!(slots.insert(topology.members()[&node].slot));
        begin(&mut topology, TransitionKind::Leave(node), 1);
    }
}

#[test]
fn a_namespace_is_created_once_with_settings_for_life() {
    let mut topology = founded(3, 3, 1);
    let mut create = |name: &str, mode, replicas| {
        let name = name.to_owned();
        topology.apply(Command::CreateNamespace(NewNamespace {
            name,
            mode,
            replicas,
        }))
    };
    let (linear, eventual) = (NamespaceMode::Linearizable, NamespaceMode::Eventual);
    assert_eq!(create("urls", eventual, None), Ok(Outcome::Done));
    assert_eq!(
        create("urls", eventual, Some(3)),
        Ok(Outcome::Done),
        "the same"
    );
    let exists = TopologyError::NamespaceExists {
        name: "urls".into(),
    };
    assert_eq!(create("urls", linear, None), Err(exists));
    for name in ["", "A", "a b", "ä", &"x".repeat(65)] {
        let refused = create(name, linear, None);
        assert!(
            matches!(refused, Err(TopologyError::Setting { .. })),
            "{name}"
        );
    }
    for nth in 0..MAX_NAMESPACES - 2 {
        assert_eq!(
            create(&format!("n-{nth}_.x"), linear, None),
            Ok(Outcome::Done)
        );
    }
    let full = Err(TopologyError::TooManyNamespaces);
    assert_eq!(create("last", linear, None), full);
    let table = topology.routing();
    assert_eq!(table.namespace_id("default"), Some(NamespaceId(1)));
    assert_eq!(table.namespace_id("urls"), Some(NamespaceId(2)));
    assert_eq!(table.namespaces["urls"].mode, eventual);
}

#[test]
fn a_stored_topology_of_another_release_is_refused() {
    let mut json = serde_json::to_value(founded(3, 3, 1)).unwrap();
    let now = super::stored::VERSION;
    for (version, why) in [(now + 1, "later release"), (now - 1, "earlier release")] {
        json["version"] = version.into();
        let error = serde_json::from_value::<Topology>(json.clone()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn stored_parts_that_do_not_fit_each_other_are_refused() {
    let mut topology = founded(3, 4, 1);
    let new = enrol(&mut topology, 5);
    begin(&mut topology, TransitionKind::Join(new), 2);
    let good = serde_json::to_value(&topology).unwrap();
    assert!(serde_json::from_value::<Topology>(good.clone()).is_ok());
    let changes: [fn(&mut serde_json::Value); 6] = [
        |json| json["transition"] = serde_json::Value::Null,
        |json| json["known"] = serde_json::json!({}),
        |json| json["epoch"] = 1.into(),
        |json| json["layers"][0] = 2.into(),
        |json| json["configs"][0] = json["configs"][1].clone(),
        |json| json["transition"]["target"] = serde_json::json!([]),
    ];
    for (nth, change) in changes.into_iter().enumerate() {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(
            serde_json::from_value::<Topology>(bad).is_err(),
            "change {nth}"
        );
    }
}

#[test]
fn nothing_known_of_an_epoch_lets_no_stage_be_left() {
    let mut topology = founded(5, 6, 2);
    let new = enrol(&mut topology, 7);
    begin(&mut topology, TransitionKind::Join(new), 1_000);
    let known = Milestones::default();
    assert!(
        topology
            .moving()
            .all(|(_, config)| !known.may_advance(&config, HOLD))
    );
}
