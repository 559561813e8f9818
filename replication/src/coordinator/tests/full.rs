//! Replicas whose disks are full.

use super::*;

fn full(tag: Tag) -> Message {
    Message::Abstain { tag, is_full: true }
}

/// A blind put has met two full replicas, and its caller is gone.
fn met_full() -> Scene {
    let mut scene = Scene::new(None);
    scene.begin(1, put(b"v"));
    assert_eq!(scene.accepts().len(), 1, "it asks for no promise");
    scene.hear(A, 1, full);
    scene.hear(B, 1, full);
    let now = scene.now();
    let is_open = scene.coordinator.abandon(now, OpId(1), &mut scene.said);
    assert!(is_open, "C may have accepted it");
    scene
}

#[test]
fn a_put_that_too_few_replicas_have_space_for_ends_before_it_could_be_accepted() {
    let mut scene = met_full();
    for id in [2, 3] {
        scene.begin(id, put(b"v"));
        assert_eq!(scene.prepares(), 3, "a blind put asks for promises, too");
        scene.hear_promise(C, id, absent());
        scene.hear(A, id, full);
        scene.hear(B, id, full);
        assert_eq!(scene.answers(), [(id, Outcome::OutOfSpace)]);
        assert!(scene.accepts().is_empty(), "nothing can take effect");
    }
}

#[test]
fn a_put_finds_that_there_is_space_again() {
    let mut scene = met_full();
    scene.begin(2, put(b"v"));
    scene.hear_promise(A, 2, absent());
    scene.hear_promise(C, 2, absent());
    assert_eq!(
        scene.accepts().len(),
        1,
        "a promise says that there is space"
    );
    scene.hear_accepted(A, 2);
    scene.hear_accepted(C, 2);
    let answers = scene.answers();
    assert!(matches!(answers[..], [(2, Outcome::Written { .. })]));
    scene.begin(3, put(b"v"));
    assert_eq!(scene.accepts().len(), 1, "one round again");
}

#[test]
fn a_node_counts_its_own_full_disk_before_anybody_has_met_it() {
    let mut scene = Scene::new(Some(A));
    scene.coordinator.on_full(A);
    scene.begin(1, put(b"v"));
    assert_eq!(scene.accepts().len(), 1, "B and C are enough");
    scene.hear_accepted(B, 1);
    scene.hear_accepted(C, 1);
    scene.coordinator.on_full(B);
    scene.begin(2, put(b"v"));
    assert_eq!(scene.prepares(), 3, "C alone is not");
}

#[test]
fn one_full_replica_of_three_changes_nothing() {
    let mut scene = Scene::new(Some(A));
    for id in 1..=3 {
        scene.begin(id, put(b"v"));
        assert_eq!(scene.accepts().len(), 1, "one round");
        scene.hear(A, id, full);
        scene.hear_accepted(B, id);
        scene.hear_accepted(C, id);
        let answers = scene.answers();
        assert!(matches!(answers[..], [(_, Outcome::Written { .. })]));
    }
}

#[test]
fn a_full_replica_that_is_lost_is_out_of_reach_and_no_longer_full() {
    let mut scene = met_full();
    scene.coordinator.on_peers(&OutOfReach {
        lost: [A, B].into(),
        ..OutOfReach::default()
    });
    scene.begin(2, put(b"v"));
    assert_eq!(scene.answers(), [(2, Outcome::Unavailable)]);
}

#[test]
fn a_node_without_space_for_its_clock_says_so_at_once() {
    let mut scene = Scene::new(None);
    let now = Now {
        elapsed_ms: 500,
        unix_ms: 1_000_500,
    };
    let operation = |request| Operation {
        partition: Partition(0),
        at: locator(),
        rules: Rules::Linearizable,
        request,
        deadline_ms: 10_000,
    };
    let said = &mut scene.said;
    let coordinator = &mut scene.coordinator;
    coordinator.start(now, OpId(1), operation(put(b"v")), said);
    coordinator.start(now, OpId(2), operation(put(b"w")), said);
    coordinator.unreserved(now, said);
    assert!(scene.sent().is_empty(), "there is no reading to send under");
    let answers = scene.answers();
    assert_eq!(
        answers,
        [1, 2].map(|id| (id, Outcome::OutOfSpace)),
        "the one in line, too"
    );
    scene.said.clear();
    let coordinator = &mut scene.coordinator;
    coordinator.start(now, OpId(3), operation(put(b"v")), &mut scene.said);
    let [Intent::Reserve(ceiling)] = scene.said[..] else {
        panic!("it asks again: {:?}", scene.said);
    };
    scene.coordinator.reserved(now, ceiling, &mut scene.said);
    assert_eq!(scene.accepts().len(), 1, "there is space again");
}
