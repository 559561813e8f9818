//! Gets while a replica is slow.

use super::*;

#[test]
fn a_bare_quorum_is_asked_and_the_replica_on_this_node_for_the_value() {
    let asked = Scene::get(Some(B)).asked();
    assert_eq!(asked, [(B, true), (C, false)]);
    let asked = Scene::get(Some(C)).asked();
    assert_eq!(asked, [(A, false), (C, true)], "A comes after C");
    let asked = Scene::get(Some(NodeId(7))).asked();
    assert_eq!(asked, [(A, true), (B, false)], "it holds no replica");
}

#[test]
fn when_no_holder_gives_the_value_in_time_two_rounds_do() {
    let mut scene = Scene::get(None);
    scene.hear_held(B, held(5, None));
    scene.pass(5);
    scene.hear_held(C, held(5, None));
    for _ in 0..2 {
        assert_eq!(scene.prepares(), 0);
        scene.pass(5);
    }
    assert_eq!(scene.prepares(), 3);
}

#[test]
fn few_that_disagree_have_the_others_asked_and_waited_for_a_little() {
    let mut scene = Scene::get(Some(A));
    scene.asked();
    scene.hear_held(A, held(6, Some(b"new")));
    scene.hear_held(B, held(5, None));
    let only_c = scene.asked();
    assert_eq!(only_c, [(C, false)], "C may prove one of them chosen");
    scene.pass(5);
    assert_eq!(scene.prepares(), 3, "long before the round is over");
}

#[test]
fn what_nobody_answers_is_given_up_while_another_node_may_do_it() {
    let mut scene = Scene::get(None);
    for _ in 0..200 {
        scene.pass(10);
    }
    assert_eq!(scene.answers(), [(1, Outcome::Unavailable)]);
    assert_eq!(scene.coordinator.pending(), 0, "long before the deadline");
}

#[test]
fn without_a_quorum_within_reach_an_operation_fails_at_once() {
    let mut scene = Scene::new(Some(A));
    let lost = |nodes: &[NodeId]| OutOfReach {
        lost: nodes.iter().copied().collect(),
        ..OutOfReach::default()
    };
    scene.coordinator.on_peers(&lost(&[C]));
    scene.begin(1, Request::Get);
    assert_eq!(scene.asked(), [(A, true), (B, false)], "two are enough");
    scene.coordinator.on_peers(&lost(&[B, C]));
    scene.begin(2, Request::Get);
    scene.begin(3, put(b"v"));
    assert_eq!(
        scene.answers(),
        [(2, Outcome::Unavailable), (3, Outcome::Unavailable)]
    );
    assert!(scene.sent().is_empty(), "nothing is sent in vain");
    scene.coordinator.on_peers(&lost(&[]));
    scene.begin(4, Request::Get);
    assert_eq!(scene.asked(), [(A, true), (B, false)], "they are back");
}
