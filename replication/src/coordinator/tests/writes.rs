//! Writes that depend on time. The scripts in `tests/scripts/registers` cover the others.

use super::*;
use torc_record::Condition;

const HIGH: HybridTime = HybridTime::from_unix_ms(1_000_150);

fn higher(ballot: Ballot) -> Ballot {
    Ballot {
        time: HIGH,
        ..ballot
    }
}

/// The version in the only accept that was sent.
fn accepted(scene: &mut Scene) -> Ballot {
    let accepts = scene.accepts();
    let [(record, _)] = &accepts[..] else {
        panic!("{accepts:?}");
    };
    record.ballot
}

fn written(scene: &mut Scene) -> Vec<(u64, Ballot)> {
    let answers = scene.answers().into_iter();
    let versions = answers.map(|(op, outcome)| match outcome {
        Outcome::Written { version, .. } => (op, version),
        other => panic!("operation {op}: {other:?}"),
    });
    versions.collect()
}

/// A blind put that one replica has accepted and two have refused, and that now asks for the
/// present version.
fn refused() -> (Scene, Ballot) {
    let mut scene = Scene::new(None);
    scene.begin(1, put(b"v"));
    let mine = accepted(&mut scene);
    scene.hear_accepted(A, 1);
    scene.hear_refusal(B, 1, higher(mine));
    scene.hear_refusal(C, 1, higher(mine));
    scene.pass(10);
    assert_eq!(scene.prepares(), 3);
    (scene, mine)
}

/// A put that was overtaken by the returned version. One replica, which may know its outcome, is silent.
fn overtaken() -> (Scene, Held) {
    let (mut scene, mine) = refused();
    let above = Held {
        ballot: higher(mine),
        ..held(1, Some(b"w"))
    };
    scene.hear_recall(B, 1, above.clone(), Recall::Never);
    scene.hear_promise(C, 1, above.clone());
    for _ in 0..500 {
        scene.pass(10);
        assert_eq!(scene.answers(), [], "it may come back");
    }
    scene.hear_recall(B, 1, above.clone(), Recall::Never);
    scene.hear_promise(C, 1, above.clone());
    assert_eq!(scene.answers(), [], "it may still come back");
    (scene, above)
}

#[test]
fn an_overtaken_write_waits_for_a_replica_that_may_know_its_outcome_and_restarts() {
    let (mut scene, above) = overtaken();
    scene.hear_recall(A, 1, above, Recall::Never);
    assert!(!scene.accepts().is_empty(), "it was never chosen");
    scene.hear_accepted(A, 1);
    scene.hear_accepted(B, 1);
    let _ = written(&mut scene);
}

/// The answers to an overtaken put that A stored, and that B and C stored when coordinators with
/// these slots had it accepted again.
fn completed_by(by_b: u16, by_c: u16) -> Vec<(u64, Outcome)> {
    let (mut scene, mine) = refused();
    let by = |slot| Ballot {
        slot: NodeSlot(slot),
        ..higher(mine)
    };
    let above = Held {
        ballot: by(9),
        ..held(1, Some(b"w"))
    };
    for (replica, ballot) in [(A, mine), (B, by(by_b)), (C, by(by_c))] {
        let stored = Recall::Stored {
            version: mine,
            is_accepted: ballot == mine,
            last: ballot,
        };
        scene.hear_recall(replica, 1, above.clone(), stored);
    }
    scene.answers()
}

#[test]
fn an_overtaken_write_that_another_coordinator_completed_has_succeeded() {
    let answers = completed_by(7, 7);
    assert!(
        matches!(answers[..], [(1, Outcome::Written { .. })]),
        "{answers:?}"
    );
}

#[test]
fn memories_of_a_version_under_different_ballots_prove_nothing() {
    let answers = completed_by(7, 8);
    assert_eq!(answers, [(1, Outcome::Overtaken)]);
}

#[test]
fn a_write_that_is_still_overtaken_at_its_deadline_says_so() {
    let (mut scene, _) = overtaken();
    for _ in 0..1_000 {
        scene.pass(10);
    }
    assert_eq!(scene.answers(), [(1, Outcome::Overtaken)]);
}

#[test]
fn versions_are_distinct_even_if_the_clock_waits_for_its_disk() {
    let mut scene = Scene::new(None);
    scene.begin(1, put(b"one"));
    scene.begin(2, put(b"two"));
    scene.begin(3, put(b"three"));
    scene.begin(4, put(b"four"));
    scene.sent();
    // Beyond the reserved readings.
    scene.ms += 5_000;
    let now = scene.now();
    let message = Message::Accepted { tag: scene.tag(1) };
    for from in [A, B] {
        let envelope = Envelope {
            partition: Partition(0),
            epoch: EPOCH,
            message: message.clone(),
        };
        let said = &mut scene.said;
        scene.coordinator.on_message(now, from, envelope, said);
    }
    assert!(
        scene.sent().is_empty(),
        "no ballot before its time is reserved"
    );
    let _ = written(&mut scene);
    scene.keep_reserving();
    scene.hear_accepted(A, 4);
    scene.hear_accepted(B, 4);
    let done = written(&mut scene);
    let [(2, second), (3, third), (4, fourth)] = done[..] else {
        panic!("{done:?}");
    };
    assert!(second < third && third < fourth);
}

#[test]
fn what_may_have_been_accepted_outlives_a_stall_of_its_replicas() {
    let mut scene = Scene::new(Some(A));
    let both = BTreeSet::from([B, C]);
    scene.begin(1, put(b"v"));
    scene.begin(2, put(b"w"));
    assert!(!scene.sent().is_empty());
    scene.coordinator.on_peers(&OutOfReach {
        silent: both.clone(),
        lost: both,
    });
    for _ in 0..200 {
        scene.pass(10);
    }
    assert_eq!(
        scene.answers(),
        [(2, Outcome::Unavailable)],
        "what only waits for the key is not in doubt"
    );
    for _ in 0..700 {
        scene.pass(10);
    }
    assert_eq!(scene.answers(), [], "they may come back");
    for _ in 0..200 {
        scene.pass(10);
    }
    assert_eq!(scene.answers(), [(1, Outcome::Unknown)], "at its deadline");
}

/// All places of a node could be taken for ten seconds by writes of partitions that had just lost their quorum.
#[test]
fn only_a_few_operations_wait_in_doubt_without_a_quorum() {
    let mut scene = Scene::new(Some(A));
    for id in 0..400 {
        let at = || locator_of(&id.to_string());
        scene.begin_at(at(), id, put(b"v"));
        scene.begin_at(at(), 400 + 2 * id, put(b"waits"));
        scene.begin_at(at(), 401 + 2 * id, put(b"waits"));
    }
    let lost = BTreeSet::from([B, C]);
    scene.coordinator.on_peers(&OutOfReach {
        silent: lost.clone(),
        lost,
    });
    for _ in 0..200 {
        scene.pass(10);
    }
    let (waited, ended): (Vec<_>, Vec<_>) = scene.answers().into_iter().partition(|it| it.0 >= 400);
    assert_eq!(ended.len(), 400 - 256);
    assert!(ended.iter().all(|it| it.1 == Outcome::Unknown));
    assert_eq!(waited.len(), 800);
    assert!(
        waited.iter().all(|it| it.1 == Outcome::Unavailable),
        "nothing was sent for them"
    );
    for _ in 0..900 {
        scene.pass(10);
    }
    assert_eq!(scene.answers().len(), 256, "at their deadline");
}

#[test]
fn a_value_that_a_collection_may_have_dropped_is_not_written_over_in_one_round() {
    let conditional = |condition| Request::Put {
        value: Bytes::from_static(b"v"),
        expires_at_ms: Some(1_000_100),
        condition,
    };
    let mut scene = Scene::new(None);
    scene.begin(1, conditional(Some(Condition::IfAbsent)));
    scene.hear_promise(A, 1, absent());
    scene.hear_promise(B, 1, absent());
    scene.hear_accepted(A, 1);
    scene.hear_accepted(B, 1);
    let [(1, version)] = written(&mut scene)[..] else {
        panic!("the key is warm after a write");
    };
    scene.sent();
    // The clock goes back.
    scene.ms = 50;
    scene.begin(2, conditional(Some(Condition::IfVersion(version))));
    assert_eq!(scene.prepares(), 3, "the replicas know whether it is gone");
}

/// Answers of replicas that need two seconds. No round of a coordinator that had not seen a successful one lasted
/// longer than 1.6 seconds, so no put ever succeeded.
#[test]
fn rounds_get_longer_until_answers_arrive_in_time() {
    let mut scene = Scene::new(None);
    let operation = Operation {
        partition: Partition(0),
        at: locator(),
        rules: Rules::Linearizable,
        request: put(b"v"),
        deadline_ms: 60_000,
    };
    let now = scene.now();
    let said = &mut scene.said;
    scene.coordinator.start(now, OpId(1), operation, said);
    scene.keep_reserving();
    let (mut under_way, mut answers) = (std::collections::VecDeque::new(), Vec::new());
    let mut stored = absent();
    while answers.is_empty() {
        let sent = scene.sent().into_iter();
        under_way.extend(sent.map(|(to, message)| (scene.ms + 2_000, to, message)));
        while under_way.front().is_some_and(|it| it.0 <= scene.ms) {
            let (_, from, message) = under_way.pop_front().unwrap();
            let message = match message {
                Message::Accept { tag, record, .. } => {
                    stored = held(1, Some(b"v"));
                    stored.ballot = record.ballot;
                    stored.origin = record.origin;
                    Message::Accepted { tag }
                }
                Message::Prepare { tag, .. } => Message::Promised {
                    tag,
                    held: stored.clone(),
                    recall: Recall::Unsure,
                },
                other => panic!("{other:?}"),
            };
            let envelope = Envelope {
                partition: Partition(0),
                epoch: EPOCH,
                message,
            };
            let now = scene.now();
            let said = &mut scene.said;
            scene.coordinator.on_message(now, from, envelope, said);
            scene.keep_reserving();
        }
        scene.pass(10);
        answers = scene.answers();
    }
    assert!(
        matches!(answers[..], [(1, Outcome::Written { .. })]),
        "{answers:?}"
    );
    assert!(scene.ms < 20_000, "{}", scene.ms);
}
