//! Writes: blind, refused, conditional, in line, abandoned.

use super::*;
use crate::Content;

const HIGH: HybridTime = HybridTime::from_unix_ms(1_000_150);

fn higher(ballot: Ballot) -> Ballot {
    Ballot {
        time: HIGH,
        ..ballot
    }
}

/// The version of the one accept that was sent.
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

#[test]
fn a_blind_put_takes_one_round_and_asks_for_no_promise() {
    let mut scene = Scene::new(None);
    scene.begin(1, put(b"v"));
    let accepts = scene.accepts();
    let [(record, next)] = &accepts[..] else {
        panic!("{accepts:?}");
    };
    assert_eq!(*next, None);
    scene.hear_accepted(A, 1);
    assert_eq!(scene.answers(), [], "one is no quorum");
    scene.hear_accepted(B, 1);
    let fast = true;
    let version = record.ballot;
    assert_eq!(
        scene.answers(),
        [(
            1,
            Outcome::Written {
                version,
                fast,
                existed: true
            }
        )]
    );
}

/// A blind put that one replica has accepted and two have refused, and that asks now what
/// is there.
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

#[test]
fn a_refused_blind_put_that_finds_a_higher_version_is_unknown() {
    let (mut scene, mine) = refused();
    let other = held(1, Some(b"w"));
    let above = Held {
        ballot: higher(mine),
        ..other
    };
    scene.hear_promise(B, 1, above.clone());
    scene.hear_recall(C, 1, above.clone(), Recall::Never);
    assert_eq!(scene.answers(), [], "A may deny it too");
    scene.hear_promise(A, 1, above);
    assert_eq!(scene.answers(), [(1, Outcome::Overtaken)]);
}

#[test]
fn who_was_overtaken_waits_a_while_for_those_that_may_know_of_its_write() {
    let (mut scene, mine) = refused();
    let above = Held {
        ballot: higher(mine),
        ..held(1, Some(b"w"))
    };
    scene.hear_recall(B, 1, above.clone(), Recall::Never);
    scene.hear_promise(C, 1, above);
    let doubt_ms = CoordinatorOptions::default().doubt_ms;
    for _ in 0..doubt_ms / 10 - 1 {
        scene.pass(10);
        assert_eq!(scene.answers(), []);
    }
    for _ in 0..400 {
        scene.pass(10);
    }
    assert_eq!(scene.answers(), [(1, Outcome::Overtaken)]);
}

#[test]
fn an_overtaken_put_that_a_write_quorum_accepted_is_written() {
    let (mut scene, mine) = refused();
    let above = Held {
        ballot: higher(mine),
        ..held(1, Some(b"w"))
    };
    scene.hear_recall(B, 1, above.clone(), Recall::Accepted(mine));
    scene.hear_promise(C, 1, above.clone());
    assert_eq!(scene.answers(), [], "A may have accepted it too");
    scene.hear_recall(A, 1, above, Recall::Accepted(mine));
    assert_eq!(written(&mut scene), [(1, mine)]);
}

#[test]
fn a_refused_blind_put_that_most_replicas_never_stored_is_tried_again() {
    let (mut scene, mine) = refused();
    let above = Held {
        ballot: higher(mine),
        ..held(1, Some(b"w"))
    };
    scene.hear_recall(B, 1, above.clone(), Recall::Never);
    scene.hear_recall(C, 1, above, Recall::Never);
    let again = accepted(&mut scene);
    assert!(again > higher(mine));
    scene.hear_accepted(B, 1);
    scene.hear_accepted(C, 1);
    assert_eq!(written(&mut scene), [(1, again)]);
}

#[test]
fn a_refused_blind_put_that_finds_lower_versions_only_is_tried_again() {
    let (mut scene, mine) = refused();
    scene.hear_promise(B, 1, held(1, Some(b"w")));
    scene.hear_promise(C, 1, absent());
    let again = accepted(&mut scene);
    assert!(again > mine);
    scene.hear_accepted(B, 1);
    scene.hear_accepted(C, 1);
    assert_eq!(written(&mut scene), [(1, again)]);
}

#[test]
fn a_refused_blind_put_that_finds_itself_is_carried_on_under_its_own_version() {
    let (mut scene, mine) = refused();
    let own = held(1, Some(b"v"));
    scene.hear_promise(
        A,
        1,
        Held {
            ballot: mine,
            ..own
        },
    );
    scene.hear_promise(C, 1, absent());
    let accepts = scene.accepts();
    assert_eq!(accepts[0].0.origin, Some(mine));
    scene.hear_accepted(A, 1);
    scene.hear_accepted(C, 1);
    assert_eq!(written(&mut scene), [(1, mine)]);
}

fn put_if_absent() -> Request {
    Request::Put {
        value: Bytes::from_static(b"if absent"),
        expires_at_ms: None,
        condition: Condition::Absent,
    }
}

#[test]
fn blind_puts_that_wait_share_a_round_and_the_last_one_is_written() {
    let mut scene = Scene::new(None);
    scene.begin(1, put(b"one"));
    let first = accepted(&mut scene);
    scene.begin(2, put(b"two"));
    scene.begin(3, put(b"three"));
    scene.begin(4, put_if_absent());
    assert!(scene.sent().is_empty(), "they stand in line");
    scene.hear_accepted(A, 1);
    scene.hear_accepted(B, 1);
    let done = written(&mut scene);
    assert_eq!(done, [(1, first)]);
    let accepts = scene.accepts();
    let [(record, None)] = &accepts[..] else {
        panic!("{accepts:?}");
    };
    let three = torc_record::State::Value {
        value: Bytes::from_static(b"three"),
        expires_at_ms: None,
    };
    assert_eq!(record.state, three);
    scene.hear_accepted(A, 3);
    scene.hear_accepted(B, 3);
    let done = written(&mut scene);
    let [(2, second), (3, third)] = done[..] else {
        panic!("{done:?}");
    };
    assert!(
        first < second && second < third,
        "as if one after the other"
    );
    assert_eq!(third, record.ballot);
    assert_eq!(scene.prepares(), 3, "then comes the conditional one");
}

#[test]
fn versions_are_distinct_even_if_the_clock_waits_for_its_disk() {
    let mut scene = Scene::new(None);
    scene.begin(1, put(b"one"));
    scene.begin(2, put(b"two"));
    scene.begin(3, put(b"three"));
    scene.begin(4, put(b"four"));
    scene.sent();
    // Beyond what is reserved.
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
fn an_abandoned_write_frees_the_line_and_is_not_answered() {
    let mut scene = Scene::new(None);
    scene.begin(1, put(b"one"));
    scene.begin(2, put_if_absent());
    scene.begin(3, put(b"three"));
    scene.sent();
    let now = scene.now();
    let mut abandon = |id| scene.coordinator.abandon(now, OpId(id), &mut scene.said);
    assert!(abandon(1), "what it has sent may be accepted");
    assert!(!abandon(3), "it has sent nothing");
    assert!(!abandon(2), "it has only asked for promises");
    assert_eq!(scene.prepares(), 3, "the next one went on");
    assert_eq!(scene.coordinator.pending(), 0);
    assert_eq!(scene.answers(), []);
    scene.begin(4, put(b"four"));
    assert_eq!(scene.accepts().len(), 1, "nobody stands in line");
}

#[test]
fn a_shared_round_goes_on_for_those_who_wait_for_it() {
    let mut scene = Scene::new(None);
    for (id, value) in [(1, &b"one"[..]), (2, b"two"), (3, b"three")] {
        scene.begin(id, put(value));
    }
    scene.hear_accepted(A, 1);
    scene.hear_accepted(B, 1);
    scene.answers();
    let now = scene.now();
    scene.coordinator.abandon(now, OpId(3), &mut scene.said);
    scene.hear_accepted(A, 3);
    scene.hear_accepted(B, 3);
    let done = written(&mut scene);
    assert!(matches!(done[..], [(2, _)]), "{done:?}");
    assert_eq!(scene.coordinator.pending(), 0);
}

#[test]
fn a_conditional_delete_of_an_absent_key_mismatches() {
    let mut scene = Scene::new(None);
    let delete = Request::Delete {
        condition: Condition::Version(ballot(5)),
        tells_existed: true,
    };
    scene.begin(1, delete);
    scene.hear_promise(A, 1, absent());
    scene.hear_promise(B, 1, absent());
    let current = None;
    assert_eq!(scene.answers(), [(1, Outcome::Mismatch { current })]);
}

#[test]
fn a_delete_asks_what_is_there_only_if_its_caller_wants_to_know() {
    let delete = |tells_existed| Request::Delete {
        condition: Condition::None,
        tells_existed,
    };
    let mut scene = Scene::new(None);
    scene.begin(1, delete(false));
    let accepts = scene.accepts();
    assert_eq!(accepts[0].0.state, torc_record::State::Tombstone);
    let mut scene = Scene::new(None);
    scene.begin(1, delete(true));
    let absent = held_content(Ballot::default(), Content::Absent);
    scene.hear_promise(A, 1, absent.clone());
    scene.hear_promise(B, 1, absent);
    let fast = false;
    assert_eq!(scene.answers(), [(1, Outcome::Absent { fast })]);
}

#[test]
fn what_may_have_been_accepted_outlives_a_stall_of_its_replicas() {
    let mut scene = Scene::new(Some(A));
    let both = BTreeSet::from([B, C]);
    scene.begin(1, put(b"v"));
    assert!(!scene.sent().is_empty());
    let mut out_of_reach = OutOfReach {
        lost: both.clone(),
        ..OutOfReach::default()
    };
    scene.coordinator.on_peers(&out_of_reach);
    for _ in 0..200 {
        scene.pass(10);
    }
    assert_eq!(scene.answers(), [], "they may come back");
    out_of_reach.gone = both;
    scene.coordinator.on_peers(&out_of_reach);
    for _ in 0..200 {
        scene.pass(10);
    }
    assert_eq!(scene.answers(), [(1, Outcome::Unknown)]);
}
