//! Rotations of the authority: their steps, and what blocks them.

use super::replica_tests;
use super::*;

const THREE: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

fn begin(topology: &mut Topology, old: &str, new: &str) -> Result<Outcome, TopologyError> {
    topology.apply(Command::BeginRotation {
        old: old.to_owned(),
        new: new.to_owned(),
    })
}

fn rotate(
    topology: &mut Topology,
    rotation: u32,
    to: RotationStep,
) -> Result<Outcome, TopologyError> {
    topology.apply(Command::Rotate { rotation, to })
}

fn done(topology: &mut Topology, nodes: &[NodeId], rotation: u32, step: RotationStep) {
    for node in nodes {
        let command = Command::RotationDone {
            node: *node,
            rotation,
            step,
        };
        topology.apply(command).unwrap();
    }
}

fn rotating() -> Topology {
    let mut topology = replica_tests::founded(3, 3, 1);
    assert_eq!(topology.authorities(), None);
    begin(&mut topology, "old", "new").unwrap();
    topology
}

fn trusted(topology: &Topology) -> Vec<String> {
    let routed = topology.routing().authorities;
    assert_eq!(routed, topology.authorities().unwrap().trusted);
    routed
}

#[test]
fn each_step_waits_until_every_member_has_done_the_one_before() {
    let mut topology = rotating();
    assert_eq!(trusted(&topology), ["old", "new"], "issued by the old one");
    let waits = |waiting: &[NodeId]| {
        let waiting = waiting.to_vec();
        Err(TopologyError::RotationWaits { waiting })
    };
    let (trust, issue, finished) = (
        RotationStep::Trust,
        RotationStep::Issue,
        RotationStep::Finished,
    );
    done(&mut topology, &THREE[..2], 1, trust);
    assert_eq!(rotate(&mut topology, 1, issue), waits(&THREE[2..]));
    let skipped = TopologyError::RotationStep {
        step: trust,
        to: finished,
    };
    assert_eq!(rotate(&mut topology, 1, finished), Err(skipped));
    done(&mut topology, &THREE[2..], 1, issue);
    assert_eq!(
        rotate(&mut topology, 1, issue),
        waits(&THREE[2..]),
        "what it did is no answer to what was asked"
    );
    done(&mut topology, &THREE, 1, trust);
    let before = topology.epoch();
    rotate(&mut topology, 1, issue).unwrap();
    assert_eq!(trusted(&topology), ["new", "old"]);
    assert!(topology.epoch() > before, "clients hear of it");
    assert_eq!(topology.rotation_waits_for(), THREE, "from the start");
    rotate(&mut topology, 1, issue).unwrap();
    assert_eq!(trusted(&topology), ["new", "old"], "once");

    done(&mut topology, &THREE, 1, issue);
    rotate(&mut topology, 1, finished).unwrap();
    rotate(&mut topology, 1, finished).unwrap();
    assert_eq!(trusted(&topology), ["new"]);

    begin(&mut topology, "new", "newer").unwrap();
    assert_eq!(trusted(&topology), ["new", "newer"]);
    let late = rotate(&mut topology, 1, finished);
    assert_eq!(late, Err(TopologyError::NoRotation), "of the one before");
}

#[test]
fn of_two_rotations_that_begin_at_once_one_does() {
    let mut topology = rotating();
    let other = begin(&mut topology, "old", "other");
    assert_eq!(other, Err(TopologyError::Rotating));
    assert_eq!(trusted(&topology), ["old", "new"]);
    let abort = |rotation| Command::AbortRotation { rotation };
    let unknown = topology.apply(abort(2));
    assert_eq!(unknown, Err(TopologyError::NoRotation));
    topology.apply(abort(1)).unwrap();
    topology.apply(abort(1)).unwrap();
    assert_eq!(trusted(&topology), ["old"]);
    for old in ["old", "old"] {
        let same = begin(&mut topology, old, old);
        assert!(matches!(same, Err(TopologyError::Setting { .. })));
    }
    let stale = begin(&mut topology, "new", "newer");
    assert_eq!(stale, Err(TopologyError::Rotating), "it never was current");
    begin(&mut topology, "old", "newer").unwrap();
    done(&mut topology, &THREE, 1, RotationStep::Trust);
    assert_eq!(topology.rotation_waits_for(), THREE, "that was another one");
    done(&mut topology, &THREE, 2, RotationStep::Trust);
    rotate(&mut topology, 2, RotationStep::Issue).unwrap();
    let late = topology.apply(abort(2));
    assert_eq!(late, Err(TopologyError::RotationIssues));
}

#[test]
fn a_newcomer_is_waited_for_and_who_has_left_is_not() {
    let mut topology = rotating();
    done(&mut topology, &THREE, 1, RotationStep::Trust);
    let newcomer = replica_tests::enrol(&mut topology, 4);
    assert_eq!(topology.rotation_waits_for(), [newcomer]);
    done(&mut topology, &[NodeId(99)], 1, RotationStep::Trust);
    let known = topology.authorities().unwrap();
    assert_eq!(known.done.len(), 3, "99 is no member");
}

#[test]
fn a_rotation_is_stored_and_what_was_stored_before_there_were_any_is_read() {
    let topology = rotating();
    let mut stored = serde_json::to_value(&topology).unwrap();
    let again: Topology = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(again, topology);
    stored.as_object_mut().unwrap().remove("authorities");
    let before: Topology = serde_json::from_value(stored).unwrap();
    assert_eq!(before.authorities(), None);
}

#[test]
fn a_written_off_member_is_not_waited_for() {
    let mut topology = rotating();
    done(&mut topology, &THREE[..2], 1, RotationStep::Trust);
    topology.apply(replica_tests::write_off(THREE[2])).unwrap();
    assert_eq!(topology.rotation_waits_for(), []);
    rotate(&mut topology, 1, RotationStep::Issue).unwrap();
}
