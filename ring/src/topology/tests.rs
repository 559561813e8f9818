//! The topology as a script: commands in, epochs and stages out.

use proptest::prelude::*;
use torc_record::{DigestKey, Epoch};

use super::*;
use crate::replicas::Milestone;
use crate::{Weight, Zone};

const SMALL: u32 = 64;

fn member(number: u8) -> NewMember {
    NewMember {
        incarnation: Incarnation([number; 16]),
        address: format!("127.0.0.1:{}", 7400 + u16::from(number)),
        peer_address: format!("127.0.0.1:{}", 7500 + u16::from(number)),
        http_address: format!("127.0.0.1:{}", 7480 + u16::from(number)),
        zone: Zone::new("a").unwrap(),
        weight: Weight::NORMAL,
        release: Release::ours(),
    }
}

fn founded(nodes: u8) -> Topology {
    Topology::found(Founding {
        cluster: ClusterId([9; 16]),
        digest_key: DigestKey([1; 32]),
        partitions: Partitions::new(SMALL).unwrap(),
        replicas: 1,
        positions: 4,
        members: (1..=nodes).map(member).collect(),
    })
    .unwrap()
}

fn enrol(topology: &mut Topology, number: u8) -> NodeId {
    match topology.apply(Command::Enrol(member(number))).unwrap() {
        Outcome::Enrolled { node, .. } => node,
        other => panic!("{other:?}"),
    }
}

fn begin(topology: &mut Topology, kind: TransitionKind, parallel: u32) -> Outcome {
    let proposal = Proposal {
        kind,
        based_on: topology.epoch(),
        parallel,
        planned: Sizes::default(),
        at_ms: 1_000,
        force: false,
    };
    topology.apply(Command::Begin(proposal)).unwrap()
}

fn report(
    topology: &mut Topology,
    node: NodeId,
    partition: Partition,
    reached: fn(Epoch) -> Milestone,
) {
    let moved = Sizes::default();
    report_moved(topology, node, partition, reached, moved);
}

fn report_moved(
    topology: &mut Topology,
    node: NodeId,
    partition: Partition,
    reached: fn(Epoch) -> Milestone,
    moved: Sizes,
) {
    let config = topology.config(partition).unwrap();
    let report = Report {
        moved,
        ..Report::of(config, reached, 2_000)
    };
    topology
        .apply(Command::Report {
            node,
            reports: vec![report],
        })
        .unwrap();
}

fn in_stage(topology: &Topology, stage: Stage) -> Vec<Partition> {
    topology
        .partitions()
        .iter()
        .filter(|p| topology.state(*p).unwrap().config.stage == stage)
        .collect()
}

/// Reports the facts that the partition's present stage waits for.
fn satisfy(topology: &mut Topology, partition: Partition) {
    let state = topology.state(partition).unwrap();
    let old = state.nodes[0];
    let new = state.next.as_ref().map(|next| next[0]);
    match (state.config.stage, new) {
        (Stage::Copying, Some(new)) => {
            report(topology, new, partition, Milestone::Copied);
        }
        (Stage::WriteBothReadOld, Some(new)) => {
            report(topology, old, partition, Milestone::Adopted);
            let moved = Sizes {
                records: 1,
                bytes: 10,
            };
            report_moved(topology, new, partition, Milestone::Snapshotted, moved);
        }
        (Stage::WriteBothReadNew, _) => report(topology, old, partition, Milestone::Adopted),
        _ => {}
    }
}

#[test]
fn what_moved_is_what_newcomers_hold_of_each_partition_counted_once() {
    let mut topology = founded(1);
    let new = enrol(&mut topology, 2);
    begin(&mut topology, TransitionKind::Join(new), 4);
    let total = u64::from(topology.transition().unwrap().total);
    run_to_end(&mut topology);
    let moved = topology.last_transition().unwrap().moved;
    assert_eq!((moved.records, moved.bytes), (total, 10 * total));
}

fn run_to_end(topology: &mut Topology) {
    while topology.transition().is_some() {
        let moving: Vec<_> = topology
            .partitions()
            .iter()
            .filter(|p| topology.state(*p).unwrap().config.stage != Stage::Stable)
            .collect();
        assert!(
            !moving.is_empty(),
            "a transition runs, so something must be moving"
        );
        for partition in moving {
            satisfy(topology, partition);
        }
    }
}

#[test]
fn a_start_is_confirmed_unless_a_later_one_or_another_of_its_number_was() {
    let mut topology = founded(2);
    let node = NodeId(1);
    let booted = |number, draw| Command::Booted {
        node,
        incarnation: Incarnation([1; 16]),
        boot: Boot { number, draw },
        release: Release::ours(),
    };
    let epoch = topology.epoch();
    for (number, draw) in [(1, 10), (1, 10), (3, 30)] {
        assert_eq!(topology.apply(booted(number, draw)), Ok(Outcome::Done));
    }
    let before = topology.clone();
    for (number, draw) in [(3, 31), (2, 30), (0, 0)] {
        let refused = topology.apply(booted(number, draw));
        assert!(
            matches!(refused, Err(TopologyError::Superseded { known, .. }) if known.number == 3),
            "{refused:?}"
        );
    }
    let another_directory = Command::Booted {
        node,
        incarnation: Incarnation([2; 16]),
        boot: Boot {
            number: 4,
            draw: 40,
        },
        release: Release::ours(),
    };
    assert!(topology.apply(another_directory).is_err());
    assert_eq!(topology, before);
    assert_eq!(topology.epoch(), epoch, "no router sees it");
    let json = serde_json::to_string(&topology).unwrap();
    assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), topology);
}

#[test]
fn a_move_goes_through_every_stage_each_an_epoch_of_its_own() {
    let mut topology = founded(1);
    let new = enrol(&mut topology, 2);
    begin(&mut topology, TransitionKind::Join(new), 1);
    let partition = in_stage(&topology, Stage::Copying)[0];
    let mut epochs = vec![topology.state(partition).unwrap().config.epoch];
    let mut leads = Vec::new();
    for stage in [
        Stage::Copying,
        Stage::WriteBothReadOld,
        Stage::WriteBothReadNew,
    ] {
        let state = topology.state(partition).unwrap();
        assert_eq!(state.config.stage, stage);
        leads.push(state.lead);
        satisfy(&mut topology, partition);
        epochs.push(topology.state(partition).unwrap().config.epoch);
    }
    assert_eq!(
        topology.state(partition).unwrap().config.stage,
        Stage::Stable
    );
    leads.push(topology.state(partition).unwrap().lead);
    assert_eq!(
        leads,
        [NodeId(1), NodeId(1), new, new],
        "reads go over with the third epoch"
    );
    assert!(
        epochs.windows(2).all(|pair| pair[0] < pair[1]),
        "{epochs:?}"
    );
}

#[test]
fn a_stage_is_not_left_before_everything_that_makes_it_safe_is_known() {
    let mut topology = founded(1);
    let new = enrol(&mut topology, 2);
    begin(&mut topology, TransitionKind::Join(new), 1);
    let partition = in_stage(&topology, Stage::Copying)[0];
    report(&mut topology, NodeId(1), partition, Milestone::Copied);
    assert_eq!(
        topology.state(partition).unwrap().config.stage,
        Stage::Copying,
        "the source has not to copy"
    );
    satisfy(&mut topology, partition);

    report(&mut topology, new, partition, Milestone::Snapshotted);
    let stage = topology.state(partition).unwrap().config.stage;
    assert_eq!(
        stage,
        Stage::WriteBothReadOld,
        "the old node has not adopted the epoch"
    );
    report(&mut topology, NodeId(1), partition, Milestone::Adopted);
    assert_eq!(
        topology.state(partition).unwrap().config.stage,
        Stage::WriteBothReadNew
    );

    report(&mut topology, new, partition, Milestone::Adopted);
    let stage = topology.state(partition).unwrap().config.stage;
    assert_eq!(
        stage,
        Stage::WriteBothReadNew,
        "the old node may still serve in the old epoch"
    );
}

#[test]
fn a_milestone_of_another_epoch_is_void() {
    let mut topology = founded(1);
    let new = enrol(&mut topology, 2);
    begin(&mut topology, TransitionKind::Join(new), 1);
    let partition = in_stage(&topology, Stage::Copying)[0];
    let before = topology.clone();
    let late = Epoch(topology.state(partition).unwrap().config.epoch.0 - 1);
    let report = Report {
        partition,
        reached: Milestone::Copied(late),
        moved: Sizes::default(),
        at_ms: 0,
    };
    topology
        .apply(Command::Report {
            node: new,
            reports: vec![report],
        })
        .unwrap();
    assert_eq!(topology, before);
}

#[test]
fn the_plan_that_is_shown_is_the_plan_that_runs() {
    let mut topology = founded(3);
    let new = enrol(&mut topology, 4);
    let kind = TransitionKind::Join(new);
    let plan = topology.plan(&kind, false).unwrap();
    begin(&mut topology, kind, 8);
    let moving: Vec<_> = topology
        .transition()
        .unwrap()
        .moves
        .keys()
        .copied()
        .collect();
    let planned: Vec<_> = plan.moves.iter().map(|planned| planned.partition).collect();
    assert_eq!(moving, planned);
    run_to_end(&mut topology);
    for planned in &plan.moves {
        assert_eq!(topology.state(planned.partition).unwrap().nodes, planned.to);
    }
}

#[test]
fn a_plan_made_on_an_older_topology_is_refused_and_changes_nothing() {
    let mut topology = founded(1);
    let new = enrol(&mut topology, 2);
    let before = topology.clone();
    let proposal = Proposal {
        kind: TransitionKind::Join(new),
        based_on: Epoch(1),
        parallel: 4,
        planned: Sizes::default(),
        at_ms: 0,
        force: false,
    };
    let refused = topology.apply(Command::Begin(proposal)).unwrap_err();
    assert_eq!(
        refused,
        TopologyError::StalePlan {
            based_on: Epoch(1),
            current: Epoch(2)
        }
    );
    assert_eq!(topology, before);
}

#[test]
fn no_more_moves_are_in_flight_than_the_transition_allows() {
    let mut topology = founded(1);
    let new = enrol(&mut topology, 2);
    begin(&mut topology, TransitionKind::Join(new), 3);
    while topology.transition().is_some() {
        let (_, active) = topology.transition().unwrap().counts();
        assert!((1..=3).contains(&active), "{active} in flight");
        let moving: Vec<_> = topology
            .partitions()
            .iter()
            .filter(|p| topology.state(*p).unwrap().config.stage != Stage::Stable)
            .collect();
        satisfy(&mut topology, moving[0]);
    }
}

#[test]
fn joining_and_leaving_again_restores_the_ring_and_the_members() {
    let mut topology = founded(3);
    let before = topology.routing();
    let new = enrol(&mut topology, 4);
    begin(&mut topology, TransitionKind::Join(new), 8);
    run_to_end(&mut topology);
    assert_eq!(topology.members()[&new].state, MemberState::Active);
    begin(&mut topology, TransitionKind::Leave(new), 8);
    assert_eq!(topology.members()[&new].state, MemberState::Leaving);
    run_to_end(&mut topology);
    let after = topology.routing();
    assert_eq!((after.ring, after.members), (before.ring, before.members));
    let placed = |states: &[PartitionState]| states.iter().map(|s| s.lead).collect::<Vec<_>>();
    assert_eq!(placed(&after.states), placed(&before.states));
}

#[test]
fn repeating_a_command_is_harmless() {
    let mut topology = founded(1);
    let new = enrol(&mut topology, 2);
    let epoch = topology.epoch();
    assert_eq!(enrol(&mut topology, 2), new);
    assert_eq!(topology.epoch(), epoch, "enrolled already");
    let first = begin(&mut topology, TransitionKind::Join(new), 4);
    let again = begin(&mut topology, TransitionKind::Join(new), 4);
    assert_eq!(first, again);
}

#[test]
fn when_a_newcomer_falls_silent_writes_stop_waiting_for_it() {
    let mut topology = founded(1);
    let new = enrol(&mut topology, 2);
    begin(&mut topology, TransitionKind::Join(new), 2);
    let moving = in_stage(&topology, Stage::Copying);
    satisfy(&mut topology, moving[0]);
    let waiting = topology.state(moving[0]).unwrap();
    assert_eq!(waiting.config.stage, Stage::WriteBothReadOld);
    topology.apply(Command::Retreat { node: new }).unwrap();
    let state = topology.state(moving[0]).unwrap();
    assert_eq!(
        (state.config.stage, state.lead),
        (Stage::Copying, NodeId(1))
    );
    assert!(
        state.config.epoch > waiting.config.epoch,
        "an abort is one more epoch"
    );
    run_to_end(&mut topology);
    assert_eq!(
        topology.members()[&new].state,
        MemberState::Active,
        "it came back and went on"
    );
}

#[test]
fn the_last_holder_cannot_leave() {
    let mut topology = founded(1);
    let refused = topology
        .plan(&TransitionKind::Leave(NodeId(1)), false)
        .unwrap_err();
    assert_eq!(
        refused,
        TopologyError::TooFewNodes {
            active: 1,
            replicas: 1
        }
    );
    let new = enrol(&mut topology, 2);
    begin(&mut topology, TransitionKind::Leave(new), 1);
    assert!(
        topology.transition().is_none(),
        "a member without positions just goes"
    );
    assert!(!topology.members().contains_key(&new));
}

#[test]
fn a_newcomer_brings_an_address_of_its_own() {
    let mut topology = founded(2);
    let taken = member(1).address;
    let stranger = NewMember {
        address: taken.clone(),
        ..member(7)
    };
    let refused = topology.apply(Command::Enrol(stranger)).unwrap_err();
    assert_eq!(
        refused,
        TopologyError::AddressTaken {
            address: taken.clone()
        }
    );
    let peer_taken = member(1).peer_address;
    let stranger = NewMember {
        peer_address: peer_taken.clone(),
        ..member(7)
    };
    assert_eq!(
        topology.apply(Command::Enrol(stranger)).unwrap_err(),
        TopologyError::AddressTaken {
            address: peer_taken.clone()
        }
    );
    let relocate = |address: &str, peer_address: &str| Command::Relocate {
        node: NodeId(2),
        address: address.to_owned(),
        peer_address: peer_address.to_owned(),
        http_address: String::new(),
    };
    let (own, own_peer) = (member(2).address, member(2).peer_address);
    // It stays in the topology, so it must not be of any length.
    let long = format!("{}:7500", "x".repeat(256));
    for (address, peer_address) in [(&long, &own_peer), (&own, &long), (&own, &String::new())] {
        let refused = topology.apply(relocate(address, peer_address));
        assert!(
            matches!(refused, Err(TopologyError::Setting { .. })),
            "{refused:?}"
        );
    }
    topology.apply(relocate(&own, "elsewhere:7500")).unwrap();
    let moved = &topology.members()[&NodeId(2)].identity;
    assert_eq!(moved.peer_address, "elsewhere:7500");
}

#[test]
fn two_members_exchange_their_addresses_one_after_the_other() {
    let mut topology = founded(2);
    for (node, of) in [(1, 2), (2, 1)] {
        let new = member(of);
        let relocate = Command::Relocate {
            node: NodeId(node),
            address: new.address,
            peer_address: new.peer_address,
            http_address: new.http_address,
        };
        assert_eq!(topology.apply(relocate), Ok(Outcome::Done));
    }
    for (node, of) in [(1, 2), (2, 1)] {
        let identity = &topology.members()[&NodeId(node)].identity;
        let (now, new) = (
            (
                &identity.address,
                &identity.peer_address,
                &identity.http_address,
            ),
            member(of),
        );
        assert_eq!(now, (&new.address, &new.peer_address, &new.http_address));
    }
}

#[test]
fn founding_settings_out_of_range_are_refused() {
    let good = Founding {
        cluster: ClusterId([9; 16]),
        digest_key: DigestKey([1; 32]),
        partitions: Partitions::new(SMALL).unwrap(),
        replicas: 1,
        positions: 4,
        members: vec![member(1)],
    };
    assert!(Topology::found(good.clone()).is_ok());
    for bad in [
        Founding {
            replicas: 0,
            ..good.clone()
        },
        Founding {
            replicas: 6,
            ..good.clone()
        },
        Founding {
            positions: 0,
            ..good.clone()
        },
        Founding {
            members: Vec::new(),
            ..good
        },
    ] {
        assert!(matches!(
            Topology::found(bad),
            Err(TopologyError::Setting { .. })
        ));
    }
}

#[test]
fn a_stored_topology_that_contradicts_itself_is_refused() {
    let good = serde_json::to_value(founded(2)).unwrap();
    assert!(serde_json::from_value::<Topology>(good.clone()).is_ok());
    for (field, bad) in [("configs", "[]"), ("ring", "[]"), ("members", "{}")] {
        let mut json = good.clone();
        json[field] = serde_json::from_str(bad).unwrap();
        assert!(serde_json::from_value::<Topology>(json).is_err(), "{field}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Facts in any order, with retreats and restarts from the stored form in between.
    #[test]
    fn a_partitions_epoch_changes_exactly_when_its_state_does(
        nodes in 1_u8..4,
        choices in proptest::collection::vec((any::<u16>(), 0_u8..10), 1..120),
    ) {
        let mut topology = founded(nodes);
        let new = enrol(&mut topology, 9);
        begin(&mut topology, TransitionKind::Join(new), 5);
        for (which, what) in choices {
            let before = topology.routing();
            let moving: Vec<_> = topology.partitions().iter()
                .filter(|p| topology.state(*p).unwrap().config.stage != Stage::Stable).collect();
            if moving.is_empty() {
                break;
            }
            match what {
                0 => { topology.apply(Command::Retreat { node: new }).unwrap(); }
                1 => {
                    let json = serde_json::to_string(&topology).unwrap();
                    let restarted: Topology = serde_json::from_str(&json).unwrap();
                    prop_assert_eq!(&restarted, &topology);
                    topology = restarted;
                }
                _ => satisfy(&mut topology, moving[usize::from(which) % moving.len()]),
            }
            let after = topology.routing();
            for (old, new) in before.states.iter().zip(&after.states) {
                prop_assert_eq!(old.same_placement(new), old.config.epoch == new.config.epoch);
                prop_assert!(new.config.epoch <= after.epoch);
            }
            prop_assert!(before == after || before.epoch < after.epoch);
        }
    }
}

#[test]
fn reported_sizes_never_overflow() {
    let mut sum = Sizes::default();
    for _ in 0..2 {
        sum += Sizes {
            records: u64::MAX,
            bytes: u64::MAX,
        };
    }
    assert_eq!((sum.records, sum.bytes), (u64::MAX, u64::MAX));
}
