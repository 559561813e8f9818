//! Operations on registers, step by step.

mod confirms;
mod full;
mod gets;
mod writes;

use bytes::Bytes;
use torc_record::{Digest, DigestKey, Key, NamespaceId};

use super::*;
use crate::{Content, Recall, Tag};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const EPOCH: Epoch = Epoch(3);

/// A coordinator on a node with or without one of the three replicas.
struct Scene {
    coordinator: Coordinator,
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

fn held_content(ballot: Ballot, content: Content) -> Held {
    Held {
        origin: None,
        ballot,
        content,
        collected: Ballot::default(),
        collecting: Ballot::default(),
    }
}

fn held(time: u64, value: Option<&'static [u8]>) -> Held {
    let content = Content::Value {
        expires_at_ms: None,
        value: value.map(Bytes::from_static),
    };
    held_content(ballot(time), content)
}

fn absent() -> Held {
    held_content(Ballot::default(), Content::Absent)
}

fn locator() -> Locator {
    locator_of("key")
}

fn locator_of(key: &str) -> Locator {
    let key = Key::new(key.to_owned()).unwrap();
    Locator {
        namespace: NamespaceId::DEFAULT,
        digest: Digest::of(&DigestKey([0; 32]), NamespaceId::DEFAULT, key.as_bytes()),
        key,
    }
}

fn put(value: &'static [u8]) -> Request {
    Request::Put {
        value: Bytes::from_static(value),
        expires_at_ms: None,
        condition: None,
    }
}

impl Scene {
    fn new(near: Option<NodeId>) -> Self {
        let options = CoordinatorOptions {
            near,
            ..CoordinatorOptions::default()
        };
        let ceiling = HybridTime::default();
        let config = Arc::new(Config::founded(Partition(0), EPOCH, &[A, B, C]));
        let mut scene = Self {
            coordinator: Coordinator::new(NodeSlot(9), ceiling, options, Mutations::NONE),
            ms: 100,
            said: Vec::new(),
        };
        let now = scene.now();
        scene.coordinator.on_topology(now, &config, &mut scene.said);
        scene
    }

    /// A scene with one get under way.
    fn get(near: Option<NodeId>) -> Self {
        let mut scene = Self::new(near);
        scene.begin(1, Request::Get);
        scene
    }

    /// Starts an operation on the key; clock reservations become durable at once.
    fn begin(&mut self, id: u64, request: Request) {
        self.begin_at(locator(), id, request);
    }

    fn begin_at(&mut self, at: Locator, id: u64, request: Request) {
        let operation = Operation {
            partition: Partition(0),
            at,
            rules: Rules::Linearizable,
            request,
            deadline_ms: 10_000,
        };
        let now = self.now();
        self.coordinator
            .start(now, OpId(id), operation, &mut self.said);
        self.keep_reserving();
    }

    const fn now(&self) -> Now {
        Now {
            elapsed_ms: self.ms,
            unix_ms: 1_000_000 + self.ms,
        }
    }

    /// Makes clock reservations durable, although no replica answers.
    fn keep_reserving(&mut self) {
        let reserve = |intent: &mut Intent| matches!(intent, Intent::Reserve(_));
        let wanted: Vec<_> = self.said.extract_if(.., reserve).collect();
        let now = self.now();
        for intent in wanted {
            if let Intent::Reserve(ceiling) = intent {
                self.coordinator.reserved(now, ceiling, &mut self.said);
            }
        }
    }

    /// The messages sent since the last call.
    fn sent(&mut self) -> Vec<(NodeId, Message)> {
        let is_send = |intent: &mut Intent| matches!(intent, Intent::Send { .. });
        let sent = self.said.extract_if(.., is_send);
        let sent = sent.filter_map(|intent| match intent {
            Intent::Send { to, envelope } => Some((to, envelope.message)),
            _ => None,
        });
        sent.collect()
    }

    /// The operations answered since the last call, with their outcomes.
    fn answers(&mut self) -> Vec<(u64, Outcome)> {
        let is_done = |intent: &mut Intent| matches!(intent, Intent::Done { .. });
        let done = self.said.extract_if(.., is_done);
        let done = done.filter_map(|intent| match intent {
            Intent::Done { op, outcome } => Some((op.0, outcome)),
            _ => None,
        });
        done.collect()
    }

    /// The nodes asked since the last call, and whether for the value.
    fn asked(&mut self) -> Vec<(NodeId, bool)> {
        let asked = self.sent().into_iter();
        let asked = asked.filter_map(|(to, message)| match message {
            Message::Read { want_value, .. } => Some((to, want_value)),
            _ => None,
        });
        asked.collect()
    }

    /// The versions that replicas were asked to accept since the last call, each once.
    fn accepts(&mut self) -> Vec<(torc_record::Record, Option<Ballot>)> {
        let mut accepts = Vec::new();
        for (_, message) in self.sent() {
            if let Message::Accept { record, next, .. } = message
                && !accepts.contains(&(record.clone(), next))
            {
                accepts.push((record, next));
            }
        }
        accepts
    }

    /// The number of promises requested since the last call.
    fn prepares(&mut self) -> usize {
        let is_prepare =
            |(_, message): &(NodeId, Message)| matches!(message, Message::Prepare { .. });
        self.sent().into_iter().filter(is_prepare).count()
    }

    fn tag(&self, id: u64) -> Tag {
        let Some(table::Pending::Register(op)) = self.coordinator.table.get(OpId(id)) else {
            panic!("operation {id} is over");
        };
        Tag {
            op: op.id,
            round: op.round,
        }
    }

    /// Delivers a replica's answer to the present round of an operation.
    fn hear(&mut self, from: NodeId, id: u64, message: impl FnOnce(Tag) -> Message) {
        let envelope = Envelope {
            partition: Partition(0),
            epoch: EPOCH,
            message: message(self.tag(id)),
        };
        let now = self.now();
        self.coordinator
            .on_message(now, from, envelope, &mut self.said);
        self.keep_reserving();
    }

    fn hear_held(&mut self, from: NodeId, held: Held) {
        self.hear(from, 1, |tag| Message::Holding { tag, held });
    }

    fn hear_promise(&mut self, from: NodeId, id: u64, held: Held) {
        self.hear_recall(from, id, held, Recall::Unsure);
    }

    /// Delivers a promise with a replica's memory of the operation's versions.
    fn hear_recall(&mut self, from: NodeId, id: u64, held: Held, recall: Recall) {
        self.hear(from, id, |tag| Message::Promised { tag, held, recall });
    }

    fn hear_accepted(&mut self, from: NodeId, id: u64) {
        self.hear(from, id, |tag| Message::Accepted { tag });
    }

    fn hear_refusal(&mut self, from: NodeId, id: u64, highest: Ballot) {
        self.hear(from, id, |tag| Message::Nack { tag, highest });
    }

    fn pass(&mut self, ms: u64) {
        self.ms += ms;
        let now = self.now();
        self.coordinator.tick(now, &mut self.said);
        self.keep_reserving();
    }
}
