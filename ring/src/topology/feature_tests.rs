//! Feature levels, with fictitious releases.

use super::replica_tests::{begin, enrol, founded, member, run_to_end};
use super::*;

fn release(version: &str, oldest: u32, newest: u32) -> Release {
    Release {
        version: version.to_owned(),
        levels: Levels { oldest, newest },
    }
}

/// Starts a member again, with another release.
fn restart(topology: &mut Topology, node: u64, release: Release) -> Result<Outcome, TopologyError> {
    let node = NodeId(node);
    let number = topology.boot(node).unwrap_or_default().number + 1;
    topology.apply(Command::Booted {
        node,
        incarnation: topology.members()[&node].identity.incarnation,
        boot: Boot { number, draw: 1 },
        release,
    })
}

fn reread(topology: &Topology) -> Topology {
    let json = serde_json::to_string(topology).unwrap();
    serde_json::from_str(&json).unwrap()
}

#[test]
fn the_level_rises_when_the_last_member_works_at_a_higher_one() {
    let mut topology = founded(3, 3, 1);
    assert_eq!(topology.feature_level(), Levels::OURS.newest);
    for (node, level) in [(1, 1), (2, 1), (3, 2)] {
        let epoch = topology.epoch();
        restart(&mut topology, node, release("0.9.0", 1, 2)).unwrap();
        assert_eq!(topology.feature_level(), level, "after node {node}");
        assert!(topology.epoch() > epoch, "all are to hear of it");
        let known = &topology.members()[&NodeId(node)].identity.release;
        assert_eq!(known.version, "0.9.0");
    }
    assert_eq!(topology.routing().feature_level, 2);
    assert_eq!(reread(&topology), topology);
    let epoch = topology.epoch();
    restart(&mut topology, 2, release("0.9.0", 1, 2)).unwrap();
    assert_eq!(topology.epoch(), epoch, "no router sees another start");
}

#[test]
fn the_level_never_goes_down_and_a_member_that_cannot_work_at_it_is_refused() {
    let mut topology = founded(3, 2, 1);
    for node in [1, 2] {
        restart(&mut topology, node, release("0.9.0", 1, 2)).unwrap();
    }
    let before = topology.clone();
    let refused = restart(&mut topology, 2, release("0.2.0", 1, 1)).unwrap_err();
    assert_eq!(topology, before, "a refusal changes nothing");
    assert_eq!(
        refused.to_string(),
        "node 2 (127.0.0.1:7402) runs release 0.2.0, which supports feature level 1, but the \
         cluster is at level 2. Nothing was changed: start it with a release that supports level 2"
    );
    restart(&mut topology, 2, release("0.9.1", 2, 4)).unwrap();
    assert_eq!(topology.feature_level(), 2, "node 1 does not work at more");
}

#[test]
fn a_newcomer_that_does_not_work_at_the_level_is_refused_by_name() {
    let mut topology = founded(3, 3, 1);
    let before = topology.clone();
    let new = NewMember {
        release: release("1.4.0", 2, 3),
        ..member(4, 1)
    };
    let refused = topology.apply(Command::Enrol(new)).unwrap_err();
    assert_eq!(topology, before);
    assert_eq!(
        refused.to_string(),
        "the node at 127.0.0.1:7404 runs release 1.4.0, which supports feature levels 2 to 3, but \
         the cluster is at level 1. Nothing was changed: first upgrade every member to a release \
         that supports level 2"
    );
    let new = NewMember {
        release: release("0.3.0", 1, 2),
        ..member(4, 1)
    };
    topology.apply(Command::Enrol(new)).unwrap();
    assert_eq!(topology.feature_level(), 1);
}

#[test]
fn a_member_that_leaves_as_the_last_of_its_release_lets_the_level_rise() {
    let mut topology = founded(1, 3, 1);
    for node in [1, 2] {
        restart(&mut topology, node, release("0.9.0", 1, 2)).unwrap();
    }
    begin(&mut topology, TransitionKind::Leave(NodeId(3)), 64);
    assert_eq!(topology.feature_level(), 1);
    run_to_end(&mut topology, &[]);
    assert_eq!(topology.feature_level(), 2);
    assert_eq!(reread(&topology), topology);
}

#[test]
fn a_joining_member_of_an_older_release_holds_the_level_down() {
    let mut topology = founded(1, 1, 1);
    let joining = enrol(&mut topology, 2);
    restart(&mut topology, 1, release("0.9.0", 1, 2)).unwrap();
    assert_eq!(topology.feature_level(), 1);
    restart(&mut topology, joining.0, release("0.9.0", 1, 2)).unwrap();
    assert_eq!(topology.feature_level(), 2);
}

#[test]
fn a_cluster_is_founded_at_the_highest_level_that_all_its_members_work_at() {
    let founding = |releases: [Release; 2]| Founding {
        cluster: ClusterId([9; 16]),
        digest_key: torc_record::DigestKey([1; 32]),
        partitions: Partitions::new(4).unwrap(),
        replicas: 1,
        positions: 1,
        members: (1..)
            .zip(releases)
            .map(|(number, release)| NewMember {
                release,
                ..member(number, 1)
            })
            .collect(),
    };
    let mixed = Topology::found(founding([release("a", 1, 3), release("b", 2, 2)])).unwrap();
    assert_eq!(mixed.feature_level(), 2);
    let apart = Topology::found(founding([release("a", 1, 1), release("b", 2, 2)]));
    let refused = apart.unwrap_err().to_string();
    assert!(
        refused.contains("127.0.0.1:7402 runs release b"),
        "{refused}"
    );
    let wrong = Topology::found(founding([release("a", 2, 1), release("b", 1, 1)]));
    assert!(matches!(wrong, Err(TopologyError::Setting { .. })));
}

#[test]
fn a_stored_level_that_a_member_does_not_work_at_is_refused() {
    let mut value = serde_json::to_value(founded(1, 2, 1)).unwrap();
    value["feature_level"] = 2.into();
    let error = serde_json::from_value::<Topology>(value).unwrap_err();
    assert!(error.to_string().contains("feature level"), "{error}");
}
