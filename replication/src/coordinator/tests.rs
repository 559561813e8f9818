//! Gets while a replica is slow, played by hand.

use bytes::Bytes;
use torc_record::{Digest, DigestKey, Key, NamespaceId};

use super::*;
use crate::{Content, Tag};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const EPOCH: Epoch = Epoch(3);

/// A coordinator on none of three replicas, or on one of them, with one get under way.
struct Scene {
    coordinator: Coordinator,
    at: Locator,
    ms: u64,
    said: Vec<Intent>,
}

fn ballot(time: u64) -> Ballot {
    Ballot {
        epoch: EPOCH,
        time: HybridTime(time),
        slot: NodeSlot(1),
    }
}

fn held(time: u64, value: Option<&'static [u8]>) -> Held {
    Held {
        origin: None,
        ballot: ballot(time),
        content: Content::Value {
            expires_at_ms: None,
            value: value.map(Bytes::from_static),
        },
        collected: Ballot::default(),
        collecting: Ballot::default(),
    }
}

impl Scene {
    fn get(near: Option<NodeId>) -> Self {
        let options = CoordinatorOptions {
            near,
            ..CoordinatorOptions::default()
        };
        let ceiling = HybridTime::default();
        let mut coordinator = Coordinator::new(NodeSlot(9), ceiling, options, Mutations::NONE);
        let config = Arc::new(Config::founded(Partition(0), EPOCH, &[A, B, C]));
        let key = Key::new(&b"key"[..]).unwrap();
        let at = Locator {
            namespace: NamespaceId::DEFAULT,
            digest: Digest::of(&DigestKey([0; 32]), NamespaceId::DEFAULT, key.as_bytes()),
            key,
        };
        let mut said = Vec::new();
        let now = Scene::at(100);
        coordinator.on_topology(now, &config, &mut said);
        coordinator.start(
            now,
            OpId(1),
            (Partition(0), at.clone()),
            Request::Get,
            10_000,
            &mut said,
        );
        let reserved = said.iter().find_map(|intent| match intent {
            Intent::Reserve(ceiling) => Some(*ceiling),
            _ => None,
        });
        if let Some(ceiling) = reserved {
            coordinator.reserved(now, ceiling, &mut said);
        }
        Self {
            coordinator,
            at,
            ms: 100,
            said,
        }
    }

    /// Another get of the key.
    fn begin(&mut self, id: OpId) {
        let (now, at) = (Self::at(self.ms), self.at.clone());
        let said = &mut self.said;
        self.coordinator
            .start(now, id, (Partition(0), at), Request::Get, 10_000, said);
    }

    const fn at(elapsed_ms: u64) -> Now {
        Now {
            elapsed_ms,
            unix_ms: 1_000_000 + elapsed_ms,
        }
    }

    /// Who was asked since the last look, and whether for the value.
    fn asked(&mut self) -> Vec<(NodeId, bool)> {
        let asked = self.said.drain(..).filter_map(|intent| match intent {
            Intent::Send { to, envelope } => match envelope.message {
                Message::Read { want_value, .. } => Some((to, want_value)),
                _ => None,
            },
            _ => None,
        });
        asked.collect()
    }

    fn outcome(&self) -> Option<&Outcome> {
        self.said.iter().find_map(|intent| match intent {
            Intent::Done { outcome, .. } => Some(outcome),
            _ => None,
        })
    }

    fn prepares(&self) -> usize {
        let is_prepare = |intent: &&Intent| {
            matches!(intent, Intent::Send { envelope, .. }
                if matches!(envelope.message, Message::Prepare { .. }))
        };
        self.said.iter().filter(is_prepare).count()
    }

    fn hear(&mut self, from: NodeId, held: Held) {
        let op = self.coordinator.ops.values().next().unwrap();
        let tag = Tag {
            op: op.id,
            round: op.round,
        };
        let envelope = Envelope {
            partition: Partition(0),
            epoch: EPOCH,
            message: Message::Holding { tag, held },
        };
        let now = Self::at(self.ms);
        self.coordinator
            .on_message(now, from, envelope, &mut self.said);
    }

    /// The disk is well, although nobody answers.
    fn keep_reserving(&mut self) {
        let wanted = self.said.iter().rev().find_map(|intent| match intent {
            Intent::Reserve(ceiling) => Some(*ceiling),
            _ => None,
        });
        if let Some(ceiling) = wanted {
            let now = Self::at(self.ms);
            self.coordinator.reserved(now, ceiling, &mut self.said);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.ms += ms;
        self.coordinator.tick(Self::at(self.ms), &mut self.said);
    }
}

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
fn when_one_of_the_few_is_late_the_others_are_asked() {
    let mut scene = Scene::get(None);
    scene.asked();
    scene.hear(B, held(5, None));
    scene.pass(4);
    assert_eq!(scene.asked(), [], "A has some milliseconds");
    scene.pass(1);
    assert_eq!(
        scene.asked(),
        [(C, true)],
        "C instead of A, and for the value"
    );
    scene.hear(C, held(5, Some(b"value")));
    assert!(matches!(
        scene.outcome(),
        Some(Outcome::Found { fast: true, .. })
    ));
    assert_eq!(scene.coordinator.pending(), 0);
    scene.said.clear();
    scene.begin(OpId(2));
    assert_eq!(
        scene.asked(),
        [(B, true), (C, false)],
        "who was late is left out for a while"
    );
}

#[test]
fn when_no_holder_gives_the_value_in_time_two_rounds_do() {
    let mut scene = Scene::get(None);
    scene.hear(B, held(5, None));
    scene.pass(5);
    scene.hear(C, held(5, None));
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
    scene.hear(A, held(6, Some(b"new")));
    scene.hear(B, held(5, None));
    let only_c: Vec<_> = scene.asked();
    assert_eq!(only_c, [(C, false)], "C may prove one of them chosen");
    assert_eq!(scene.prepares(), 0);
    scene.pass(5);
    assert_eq!(scene.prepares(), 3, "long before the round is over");
}

#[test]
fn what_nobody_answers_is_given_up_while_another_node_may_do_it() {
    let mut scene = Scene::get(None);
    for _ in 0..200 {
        scene.pass(10);
        scene.keep_reserving();
    }
    assert!(matches!(scene.outcome(), Some(Outcome::Unavailable)));
    assert_eq!(scene.coordinator.pending(), 0, "long before the deadline");
}

#[test]
fn a_node_whose_clock_was_set_back_an_hour_says_at_once_that_it_cannot_write() {
    let mut scene = Scene::get(None);
    scene.said.clear();
    let put = Request::Put {
        value: Bytes::from_static(b"value"),
        expires_at_ms: None,
        condition: Condition::None,
    };
    let an_hour_ago = Now {
        elapsed_ms: 101,
        unix_ms: 1_000_101 - 999_000,
    };
    let place = (Partition(0), scene.at.clone());
    let said = &mut scene.said;
    scene
        .coordinator
        .start(an_hour_ago, OpId(2), place, put, 10_000, said);
    assert!(matches!(scene.outcome(), Some(Outcome::Unavailable)));
}
