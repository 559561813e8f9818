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

#[test]
fn who_was_overtaken_waits_a_while_for_those_that_may_know_of_its_write() {
    let (mut scene, mine) = refused();
    let above = Held {
        ballot: higher(mine),
        ..held(1, Some(b"w"))
    };
    scene.hear_recall(B, 1, above.clone(), Recall::Never);
    scene.hear_promise(C, 1, above);
    for _ in 0..DOUBT_MS / 10 - 1 {
        scene.pass(10);
        assert_eq!(scene.answers(), []);
    }
    for _ in 0..400 {
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
