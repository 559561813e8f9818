//! Changes of the number of replicas: which namespaces change together, what moves, and the aborts.

use torc_record::{Layer, NamespaceId};

use super::replica_tests::{
    begin, enrol, exclude, founded, proposal, report_all, run_to_end, sets, write_off,
};
use super::*;
use crate::replicas::MoveError;

const PARTITIONS: usize = 64;

fn create(topology: &mut Topology, name: &str, replicas: Option<u8>) -> Result<u8, TopologyError> {
    topology.apply(Command::CreateNamespace(NewNamespace {
        name: name.to_owned(),
        mode: NamespaceMode::Linearizable,
        replicas,
    }))?;
    Ok(topology.routing().namespaces[name].id.layer().number())
}

fn alter(topology: &Topology, name: &str, replicas: u8) -> TransitionKind {
    topology.alteration(name, replicas).unwrap()
}

fn refused(topology: &mut Topology, kind: TransitionKind) -> TopologyError {
    let before = topology.clone();
    let proposal = proposal(topology, kind, 16);
    let planned = topology.plan(&kind, false).map(drop);
    let error = topology.apply(Command::Begin(proposal)).unwrap_err();
    assert_eq!(planned, Err(error.clone()), "the plan tells the same");
    assert_eq!(*topology, before, "a refusal changes nothing");
    error
}

/// The widths of the replica sets of a layer.
fn widths(topology: &Topology, at: usize) -> BTreeSet<usize> {
    let sets = sets(topology);
    let of_layer = &sets[at * PARTITIONS..][..PARTITIONS];
    of_layer.iter().map(BTreeSet::len).collect()
}

fn replicas_of(topology: &Topology, name: &str) -> u8 {
    topology.routing().namespaces[name].replicas
}

fn reread(topology: &Topology) -> Topology {
    let json = serde_json::to_string(topology).unwrap();
    let read = serde_json::from_str(&json).unwrap();
    assert_eq!(&read, topology);
    read
}

#[test]
fn a_cluster_of_one_replica_grows_to_three_and_back_and_nothing_else_moves() {
    let mut topology = founded(1, 3, 1);
    create(&mut topology, "two", Some(2)).unwrap();
    let ring = topology.routing().ring;
    let before = sets(&topology);
    for (from, to) in [(1, 3), (3, 1)] {
        let kind = alter(&topology, "default", to);
        let plan = topology.plan(&kind, false).unwrap();
        let number = begin(&mut topology, kind, 8);
        let again = proposal(&topology, kind, 3);
        let repeated = topology.apply(Command::Begin(again));
        let begun = Outcome::Begun { transition: number };
        assert_eq!(repeated, Ok(begun), "repeating it is harmless");
        report_all(&mut topology, &[]);
        topology = reread(&topology);
        assert_eq!(
            replicas_of(&topology, "default"),
            from,
            "until it has ended"
        );
        run_to_end(&mut topology, &[]);
        topology = reread(&topology);
        assert_eq!(widths(&topology, 0), BTreeSet::from([usize::from(to)]));
        assert_eq!(replicas_of(&topology, "default"), to);
        assert_eq!(topology.routing().replicas(), to);
        assert_eq!(sets(&topology)[PARTITIONS..], before[PARTITIONS..]);
        assert_eq!(topology.routing().ring, ring, "the ring stays");
        let moved: Vec<_> = plan.moves.iter().map(|it| it.partition.index()).collect();
        assert_eq!(moved, (0..PARTITIONS).collect::<Vec<_>>());
        let last = topology.last_transition().unwrap();
        assert_eq!(last.namespaces, ["default"]);
        assert_eq!((last.id, last.total), (number, PARTITIONS as u32));
    }
    assert_eq!(sets(&topology), before, "who held it first, holds it again");
}

#[test]
fn namespaces_of_a_layer_change_together_and_are_named() {
    let mut topology = founded(3, 4, 1);
    create(&mut topology, "urls", None).unwrap();
    create(&mut topology, "one", Some(1)).unwrap();
    assert_eq!(topology.check_alone("one"), Ok(()));
    let not_alone = TopologyError::NotAlone {
        name: "urls".into(),
        others: vec!["default".into()],
    };
    assert_eq!(topology.check_alone("urls"), Err(not_alone));
    let kind = alter(&topology, "urls", 4);
    begin(&mut topology, kind, 64);
    let names = ["default".to_owned(), "urls".to_owned()];
    assert_eq!(topology.transition().unwrap().namespaces, names);
    run_to_end(&mut topology, &[]);
    assert_eq!(
        ["default", "urls", "one"].map(|name| replicas_of(&topology, name)),
        [4, 4, 1]
    );
    assert_eq!(
        [0, 1].map(|at| widths(&topology, at)),
        [[4].into(), [1].into()]
    );
}

#[test]
fn what_cannot_be_altered_is_refused_by_name() {
    let mut topology = founded(3, 3, 1);
    let unknown = topology.alteration("urls", 2);
    let name = "urls".to_owned();
    assert_eq!(unknown, Err(TopologyError::UnknownNamespace { name }));
    let too_few = TopologyError::TooFewNodesFor {
        asked: 4,
        active: 3,
    };
    let kind = alter(&topology, "default", 4);
    assert_eq!(refused(&mut topology, kind), too_few);
    for replicas in [0, 6, 255] {
        let kind = alter(&topology, "default", replicas);
        let error = refused(&mut topology, kind);
        assert!(matches!(error, TopologyError::Setting { .. }), "{error}");
    }
    let unused = TransitionKind::Alter {
        layer: Layer::new(7).unwrap(),
        replicas: 2,
    };
    let error = refused(&mut topology, unused);
    assert!(matches!(error, TopologyError::Setting { .. }), "{error}");

    let fourth = enrol(&mut topology, 4);
    let transition = begin(&mut topology, TransitionKind::Join(fourth), 1);
    let kind = alter(&topology, "default", 2);
    assert_eq!(
        refused(&mut topology, kind),
        TopologyError::Busy { transition }
    );
    run_to_end(&mut topology, &[]);
    topology.apply(write_off(NodeId(2))).unwrap();
    let written_off = TopologyError::WrittenOff { node: NodeId(2) };
    assert_eq!(refused(&mut topology, kind), written_off);
}

#[test]
fn a_number_that_changes_no_set_is_adopted_at_once() {
    let mut topology = founded(3, 1, 1);
    let kind = alter(&topology, "default", 1);
    begin(&mut topology, kind, 8);
    assert_eq!(topology.transition(), None);
    assert_eq!(topology.routing().replicas(), 1);
    assert_eq!(reread(&topology).routing().replicas(), 1);
}

#[test]
fn a_namespace_finds_a_layer_with_its_number_wherever_that_is_now() {
    let mut topology = founded(1, 5, 1);
    assert_eq!(create(&mut topology, "three", Some(3)), Ok(3));
    let kind = alter(&topology, "default", 3);
    begin(&mut topology, kind, 64);
    run_to_end(&mut topology, &[]);
    assert_eq!(
        create(&mut topology, "more", Some(3)),
        Ok(0),
        "the base layer first"
    );
    assert_eq!(create(&mut topology, "plain", None), Ok(0));
    assert_eq!(
        create(&mut topology, "three", None),
        Ok(3),
        "the same settings"
    );
    let kind = alter(&topology, "three", 4);
    begin(&mut topology, kind, 64);
    run_to_end(&mut topology, &[]);
    assert_eq!(
        create(&mut topology, "four", Some(4)),
        Ok(3),
        "a layer in use"
    );
    let kind = alter(&topology, "four", 5);
    begin(&mut topology, kind, 64);
    run_to_end(&mut topology, &[]);
    assert_eq!(create(&mut topology, "again", Some(4)), Ok(4), "its own");
    let kind = alter(&topology, "again", 2);
    begin(&mut topology, kind, 64);
    run_to_end(&mut topology, &[]);
    assert_eq!(
        create(&mut topology, "fours", Some(4)),
        Ok(1),
        "its own is taken"
    );
    let exists = TopologyError::NamespaceExists {
        name: "again".into(),
    };
    assert_eq!(create(&mut topology, "again", Some(4)), Err(exists));
    assert_eq!(reread(&topology).routing(), topology.routing());
}

#[test]
fn when_all_layers_have_other_numbers_that_is_said() {
    let mut topology = founded(5, 5, 1);
    // Namespaces with 1 replica, created one after the other and altered to 2: every layer fills
    // up.
    for nth in 0..7 {
        let name = format!("n{nth}");
        create(&mut topology, &name, Some(1)).unwrap();
        let kind = alter(&topology, &name, 2);
        begin(&mut topology, kind, 1_000);
        run_to_end(&mut topology, &[]);
    }
    let before = topology.clone();
    let none_left = TopologyError::NoLayerLeft { asked: 1 };
    assert_eq!(create(&mut topology, "last", Some(1)), Err(none_left));
    assert_eq!(topology, before);
    assert_eq!(create(&mut topology, "two", Some(2)), Ok(1));
}

#[test]
fn no_namespace_comes_into_a_layer_while_it_is_altered() {
    let mut topology = founded(3, 4, 1);
    create(&mut topology, "two", Some(2)).unwrap();
    let kind = alter(&topology, "default", 4);
    let transition = begin(&mut topology, kind, 8);
    let busy = TopologyError::Busy { transition };
    assert_eq!(create(&mut topology, "plain", None), Err(busy.clone()));
    assert_eq!(create(&mut topology, "three", Some(3)), Err(busy));
    assert_eq!(create(&mut topology, "two-too", Some(2)), Ok(2));
    assert_eq!(create(&mut topology, "default", None), Ok(0), "asked again");
    run_to_end(&mut topology, &[]);
    assert_eq!(create(&mut topology, "plain", None), Ok(0));
}

#[test]
fn an_abort_at_any_moment_goes_back_to_the_number_before() {
    for (from, to) in [(1, 3), (3, 1), (2, 5), (5, 2)] {
        for rounds in 0..14 {
            let mut topology = founded(from, 5, 2);
            let before = sets(&topology);
            let kind = alter(&topology, "default", to);
            let transition = begin(&mut topology, kind, 24);
            for _ in 0..rounds {
                report_all(&mut topology, &[]);
            }
            let abort = Command::Abort {
                transition,
                at_ms: 3,
            };
            if topology.transition().is_none() {
                assert_eq!(widths(&topology, 0), [usize::from(to)].into());
                continue;
            }
            topology.apply(abort).unwrap();
            run_to_end(&mut topology, &[]);
            assert_eq!(sets(&reread(&topology)), before);
            assert_eq!(replicas_of(&topology, "default"), from);
            assert!(topology.last_transition().unwrap().aborted);
        }
    }
}

#[test]
fn how_many_replicas_are_due_follows_the_stages() {
    for (from, to) in [(1, 3), (3, 1)] {
        let mut topology = founded(from, 3, 1);
        let kind = alter(&topology, "default", to);
        begin(&mut topology, kind, 16);
        let mut seen = BTreeSet::new();
        while topology.transition().is_some() {
            for partition in topology.partitions_in_use() {
                let config = topology.config(partition).unwrap();
                let due = topology.replicas_due(partition);
                assert_eq!(config.readers().count(), u32::from(due), "{config:?}");
                seen.insert(due);
            }
            report_all(&mut topology, &[]);
        }
        assert_eq!(seen, BTreeSet::from([from, to]));
        assert_eq!(topology.replicas_due(Partition(0)), to);
    }
}

#[test]
fn nobody_waits_for_a_node_that_is_to_stay_and_cannot_be_reached() {
    let mut topology = founded(3, 3, 1);
    let kind = alter(&topology, "default", 1);
    begin(&mut topology, kind, 1_000);
    report_all(&mut topology, &[]);
    let stays = |node| {
        let moving = topology.moving();
        moving.filter(|(_, config)| config.waits_for(node)).count()
    };
    let held_up = stays(NodeId(1));
    assert!(held_up > 0);
    assert!(topology.awaited_copiers().contains(&NodeId(1)));
    topology
        .apply(Command::Retreat { node: NodeId(1) })
        .unwrap();
    assert!(!topology.awaited_copiers().contains(&NodeId(1)));
    let copying = topology.moving().filter(|(_, c)| c.stage == Stage::Copying);
    assert_eq!(copying.count(), held_up);
    // The other moves continue without the node; only its own moves wait for it.
    for _ in 0..20 {
        report_all(&mut topology, &[NodeId(1)]);
    }
    let (done, moving) = topology.transition().unwrap().counts();
    assert_eq!(
        (done as usize, moving as usize),
        (PARTITIONS - held_up, held_up)
    );
    run_to_end(&mut topology, &[]);
    assert_eq!(widths(&topology, 0), [1].into());
}

#[test]
fn a_node_that_is_down_holds_back_no_partition_that_leaves_it() {
    let mut topology = founded(3, 3, 1);
    let kind = alter(&topology, "default", 1);
    begin(&mut topology, kind, 1_000);
    let place = sets(&topology);
    for _ in 0..20 {
        report_all(&mut topology, &[NodeId(3)]);
    }
    let waits =
        |(_, config): (Partition, Arc<Config>)| config.nodes(config.new).collect::<Vec<_>>();
    let waiting: BTreeSet<_> = topology.moving().flat_map(waits).collect();
    assert_eq!(waiting, [NodeId(3)].into(), "only what it is to keep");
    assert_eq!(place.len(), PARTITIONS);
    run_to_end(&mut topology, &[]);
}

/// Writes off a node at every moment: the survivors of each partition continue, in place if the dead
/// node is the one that was to keep the partition, and data that a majority held is not lost.
#[test]
fn a_node_written_off_while_replicas_become_fewer_takes_nothing_with_it_that_others_hold() {
    for aborts in [false, true] {
        for rounds in 0..12 {
            let mut topology = founded(3, 4, 1);
            let kind = alter(&topology, "default", 1);
            let transition = begin(&mut topology, kind, 24);
            for _ in 0..rounds {
                report_all(&mut topology, &[]);
            }
            let (before, node) = (sets(&topology), NodeId(2));
            topology.apply(write_off(node)).unwrap();
            let once = topology.clone();
            topology.apply(write_off(node)).unwrap();
            assert_eq!(topology, once, "repeating it is harmless");
            if aborts && topology.transition().is_some() {
                let abort = Command::Abort {
                    transition,
                    at_ms: 4,
                };
                topology.apply(abort).unwrap();
            }
            topology = reread(&topology);
            run_to_end(&mut topology, &[node]);
            topology = reread(&topology);
            let replicas = replicas_of(&topology, "default");
            for (before, after) in before.iter().zip(sets(&topology)) {
                let kept = before.iter().any(|it| *it != node && after.contains(it));
                assert!(kept || before.len() == 1, "{before:?} {after:?}");
            }
            begin(&mut topology, TransitionKind::Leave(node), 64);
            run_to_end(&mut topology, &[node]);
            topology = reread(&topology);
            assert_eq!(widths(&topology, 0), [usize::from(replicas)].into());
            assert!(sets(&topology).iter().all(|set| !set.contains(&node)));
        }
    }
}

#[test]
fn a_node_written_off_while_replicas_become_more_is_left_out_until_it_is_removed() {
    for rounds in 0..14 {
        let mut topology = founded(1, 4, 1);
        let kind = alter(&topology, "default", 3);
        begin(&mut topology, kind, 24);
        for _ in 0..rounds {
            report_all(&mut topology, &[]);
        }
        let node = NodeId(2);
        topology.apply(write_off(node)).unwrap();
        topology = reread(&topology);
        run_to_end(&mut topology, &[node]);
        assert_eq!(replicas_of(&topology, "default"), 3);
        begin(&mut topology, TransitionKind::Leave(node), 64);
        run_to_end(&mut topology, &[node]);
        assert_eq!(widths(&reread(&topology), 0), [3].into());
    }
}

/// Found by the random commands: a partition that the abort had returned to a set without a quorum
/// never advanced to a later epoch.
#[test]
fn an_abort_after_a_node_was_written_off_ends() {
    for node in (1..=4).map(NodeId) {
        for rounds in 0..6 {
            let mut topology = founded(2, 4, 3);
            let kind = alter(&topology, "default", 3);
            let transition = begin(&mut topology, kind, 1);
            for _ in 0..rounds {
                report_all(&mut topology, &[]);
            }
            topology.apply(write_off(node)).unwrap();
            let abort = Command::Abort {
                transition,
                at_ms: 4,
            };
            topology.apply(abort).unwrap();
            run_to_end(&mut reread(&topology), &[node]);
        }
    }
}

#[test]
fn a_dead_node_can_be_excluded_where_it_is_displaced_only() {
    let mut topology = founded(3, 3, 1);
    let kind = alter(&topology, "default", 1);
    begin(&mut topology, kind, 8);
    let done = topology.apply(exclude(NodeId(3)));
    assert_eq!(done, Ok(Outcome::Done));
    assert_eq!(topology.transition().unwrap().dead, [NodeId(3)].into());

    let mut topology = founded(1, 3, 1);
    let kind = alter(&topology, "default", 3);
    begin(&mut topology, kind, 8);
    let node = NodeId(3);
    let refused = topology.apply(exclude(node));
    let not_displaced = TopologyError::Move(MoveError::NotDisplaced { node });
    assert_eq!(refused, Err(not_displaced));
}

#[test]
fn joins_and_leaves_after_an_alteration_go_by_the_new_number() {
    let mut topology = founded(1, 3, 1);
    let kind = alter(&topology, "default", 3);
    begin(&mut topology, kind, 64);
    run_to_end(&mut topology, &[]);
    let too_few = TopologyError::TooFewNodes {
        active: 3,
        replicas: 3,
    };
    let leave = TransitionKind::Leave(NodeId(3));
    assert_eq!(refused(&mut topology, leave), too_few);
    let fourth = enrol(&mut topology, 4);
    begin(&mut topology, TransitionKind::Join(fourth), 64);
    run_to_end(&mut topology, &[]);
    begin(&mut topology, leave, 64);
    run_to_end(&mut topology, &[]);
    assert_eq!(widths(&topology, 0), [3].into());
    let table = topology.routing();
    let partition = table.partition_of(NamespaceId::DEFAULT, &torc_record::Digest([1; 16]));
    assert_eq!(table.state(partition).unwrap().nodes.len(), 3);
}
