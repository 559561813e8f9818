//! Gets that start together, with the records of the local replica.

use super::*;

impl Scene {
    /// Starts operations on the key that arrived together.
    fn together(&mut self, operations: Vec<(u64, Request, Option<Held>)>) {
        let operations = operations.into_iter().map(|(id, request, held)| {
            let operation = Operation {
                partition: Partition(0),
                at: locator(),
                rules: Rules::Linearizable,
                request,
                deadline_ms: 10_000,
            };
            (OpId(id), operation, held)
        });
        let now = self.now();
        self.coordinator.start_many(now, operations, &mut self.said);
        self.keep_reserving();
    }

    /// Two gets that know the local replica's value.
    fn two_gets() -> Self {
        let mut scene = Self::new(Some(A));
        scene.begin(9, put(b"makes the clock ready"));
        scene.hear_accepted(A, 9);
        scene.hear_accepted(B, 9);
        scene.said.clear();
        let get = |id| (id, Request::Get, Some(held(5, Some(b"value"))));
        scene.together(vec![get(1), get(2)]);
        scene
    }

    /// The claims sent since the last call: the receiver, the tag, and the number.
    fn claims(&mut self) -> Vec<(NodeId, Tag, usize)> {
        let sent = self.sent().into_iter();
        let claims = sent.filter_map(|(to, message)| match message {
            Message::Confirm { tag, claims } => Some((to, tag, claims.len())),
            _ => None,
        });
        claims.collect()
    }

    fn confirmed(&mut self, from: NodeId, tag: Tag, confirmed: &[bool]) {
        let envelope = Envelope {
            partition: Partition(0),
            epoch: EPOCH,
            message: Message::Confirmed {
                tag,
                confirmed: confirmed.to_vec(),
            },
        };
        let now = self.now();
        self.coordinator
            .on_message(now, from, envelope, &mut self.said);
        self.keep_reserving();
    }
}

fn is_found(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Found { fast: true, .. })
}

#[test]
fn one_other_is_asked_once_for_all_and_what_it_confirms_is_found() {
    let mut scene = Scene::two_gets();
    let claims = scene.claims();
    let [(B, tag, 2)] = claims[..] else {
        panic!("{claims:?}");
    };
    assert_eq!(scene.coordinator.pending(), 2);
    let earlier = Tag {
        round: HybridTime(1),
        ..tag
    };
    scene.confirmed(B, earlier, &[true; 8]);
    scene.confirmed(C, tag, &[true; 8]);
    assert_eq!(
        scene.answers(),
        [],
        "another round, and nobody who was asked"
    );
    scene.confirmed(B, tag, &[true; 8]);
    let answers = scene.answers();
    assert!(matches!(&answers[..], [(1, a), (2, b)] if is_found(a) && is_found(b)));
    assert_eq!(scene.coordinator.pending(), 0);
    scene.confirmed(B, tag, &[true; 8]);
    assert_eq!(scene.answers(), [], "once");
}

#[test]
fn what_is_not_confirmed_takes_a_round_of_its_own() {
    let mut scene = Scene::two_gets();
    let (_, tag, _) = scene.claims()[0];
    scene.confirmed(B, tag, &[true]);
    assert!(matches!(&scene.answers()[..], [(1, found)] if is_found(found)));
    assert_eq!(
        scene.asked(),
        [(A, true), (B, false)],
        "too short an answer"
    );
    assert_eq!(scene.coordinator.pending(), 1);
}

#[test]
fn the_others_are_asked_at_once_for_all_if_one_is_late() {
    let mut scene = Scene::two_gets();
    let (_, tag, _) = scene.claims()[0];
    let wake_ms = scene.coordinator.next_wake_ms();
    assert_eq!(wake_ms, Some(scene.ms + 5));
    scene.pass(5);
    assert_eq!(scene.claims(), [(C, tag, 2)], "B was late");
    scene.confirmed(C, tag, &[true, false]);
    assert!(matches!(&scene.answers()[..], [(1, found)] if is_found(found)));
    assert_eq!(scene.coordinator.pending(), 1, "B may still confirm");
    scene.confirmed(B, tag, &[false, true]);
    assert!(matches!(&scene.answers()[..], [(2, found)] if is_found(found)));
    assert_eq!(scene.coordinator.pending(), 0);
    assert_eq!(scene.asked(), []);
}

#[test]
fn what_no_other_replica_confirms_takes_a_round_of_its_own() {
    let mut scene = Scene::two_gets();
    let (_, tag, _) = scene.claims()[0];
    scene.pass(5);
    scene.claims();
    scene.confirmed(C, tag, &[true, false]);
    assert_eq!(scene.asked(), []);
    scene.confirmed(B, tag, &[false, false]);
    assert_eq!(scene.answers().len(), 1);
    assert!(!scene.asked().is_empty());
    assert_eq!(scene.coordinator.pending(), 1);
}

#[test]
fn nobody_waits_long_for_a_confirmation() {
    let mut scene = Scene::two_gets();
    scene.pass(5);
    scene.claims();
    scene.pass(5);
    let sent = scene.sent();
    assert_eq!(sent.len(), 4, "two gets, each by itself: {sent:?}");
    assert!(sent.iter().all(|it| matches!(it.1, Message::Read { .. })));
}

#[test]
fn a_replica_that_is_lost_is_not_asked_to_confirm() {
    let mut scene = Scene::two_gets();
    scene.claims();
    scene.coordinator.on_peers(&OutOfReach {
        lost: [C].into(),
        ..OutOfReach::default()
    });
    scene.pass(5);
    let sent = scene.sent();
    assert!(!sent.is_empty());
    assert!(sent.iter().all(|it| matches!(it.1, Message::Read { .. })));
}

#[test]
fn an_abandoned_get_is_not_begun_again() {
    let mut scene = Scene::two_gets();
    let (_, tag, _) = scene.claims()[0];
    let now = scene.now();
    assert!(!scene.coordinator.abandon(now, OpId(1), &mut scene.said));
    scene.confirmed(B, tag, &[false, true]);
    assert!(matches!(&scene.answers()[..], [(2, found)] if is_found(found)));
    assert_eq!(scene.asked(), []);
    assert_eq!(scene.coordinator.pending(), 0);
}

#[test]
fn gets_that_are_abandoned_are_found_among_those_that_ask_other_nodes() {
    let mut scene = Scene::two_gets();
    scene.claims();
    let now = scene.now();
    let config = Arc::new(Config::founded(Partition(1), EPOCH, &[A, C, NodeId(4)]));
    scene.coordinator.on_topology(now, &config, &mut scene.said);
    let get = |id| {
        let operation = Operation {
            partition: Partition(u32::from(id % 2 == 1)),
            at: locator(),
            rules: Rules::Linearizable,
            request: Request::Get,
            deadline_ms: 10_000,
        };
        (OpId(id), operation, Some(held(5, Some(b"value"))))
    };
    let gets = (10..20).map(get);
    scene.coordinator.start_many(now, gets, &mut scene.said);
    let claims = scene.claims();
    let [(B, of_b, 5), (C, of_c, 5)] = claims[..] else {
        panic!("{claims:?}");
    };
    let mut left = scene.coordinator.pending();
    for id in [19, 11, 10, 14, 2, 17] {
        scene.coordinator.abandon(now, OpId(id), &mut scene.said);
        left -= 1;
        assert_eq!(scene.coordinator.pending(), left, "{id}");
    }
    for id in [0, 9, 14, 20] {
        scene.coordinator.abandon(now, OpId(id), &mut scene.said);
        assert_eq!(scene.coordinator.pending(), left, "{id} does not wait");
    }
    scene.confirmed(B, of_b, &[true; 5]);
    scene.confirmed(C, of_c, &[true; 5]);
    let answers: Vec<_> = scene.answers().into_iter().map(|(id, _)| id).collect();
    assert_eq!(answers, [12, 16, 18, 13, 15]);
}

#[test]
fn a_get_sees_the_write_before_it_and_not_the_one_behind() {
    let mut scene = Scene::two_gets();
    scene.claims();
    let get = |id| (id, Request::Get, Some(held(5, Some(b"value"))));
    scene.together(vec![get(3), (4, put(b"new"), None), get(5)]);
    let sent = scene.sent();
    let kinds: Vec<_> = sent
        .iter()
        .filter(|(to, _)| *to == B)
        .map(|(_, message)| match message {
            Message::Confirm { .. } => "confirm",
            Message::Accept { .. } => "accept",
            Message::Read { .. } => "read",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["confirm", "accept", "read"]);
}

#[test]
fn what_expires_or_lies_in_a_partition_that_moves_takes_the_ordinary_way() {
    let mut scene = Scene::two_gets();
    scene.claims();
    let content = Content::Value {
        expires_at_ms: Some(1_000_000 + scene.ms),
        value: Some(Bytes::from_static(b"value")),
    };
    let expired = held_content(ballot(5), content);
    scene.together(vec![(3, Request::Get, Some(expired))]);
    assert_eq!(scene.asked(), [(A, true), (B, false)]);
    let stable = Config::founded(Partition(0), EPOCH, &[A, B, C]);
    let moving = stable.begin(Epoch(4), &[A, B, NodeId(4)], &[]).unwrap();
    let now = scene.now();
    scene
        .coordinator
        .on_topology(now, &Arc::new(moving), &mut scene.said);
    scene.together(vec![(4, Request::Get, Some(held(5, Some(b"value"))))]);
    assert_eq!(scene.claims(), []);
}

#[test]
fn an_absent_key_is_confirmed_as_absent() {
    let mut scene = Scene::two_gets();
    scene.claims();
    scene.together(vec![(3, Request::Get, Some(absent()))]);
    let (_, tag, _) = scene.claims()[0];
    scene.confirmed(B, tag, &[true]);
    assert_eq!(scene.answers(), [(3, Outcome::Absent { fast: true })]);
}

#[test]
fn an_answer_refers_to_the_claims_that_were_sent() {
    let mut scene = Scene::two_gets();
    scene.claims();
    let now = scene.now();
    scene.coordinator.abandon(now, OpId(1), &mut scene.said);
    scene.pass(5);
    let claims = scene.claims();
    let [(C, tag, 1)] = claims[..] else {
        panic!("{claims:?}");
    };
    scene.confirmed(C, tag, &[true]);
    assert!(matches!(&scene.answers()[..], [(2, found)] if is_found(found)));
    assert_eq!(scene.coordinator.pending(), 0);
}
