//! Messages that wait until this replica has adopted their epoch. Their senders ask again, so the
//! oldest ones may be dropped.

use std::collections::VecDeque;

use torc_record::Epoch;
use torc_ring::NodeId;

use super::{MOST_PARKED, ReplicaOptions};
use crate::Envelope;

#[derive(Debug, Default)]
pub(super) struct Parked {
    messages: VecDeque<(NodeId, Envelope)>,
    bytes: usize,
}

impl Parked {
    /// Adds a message. The oldest ones make room for it; one that is too long is dropped.
    pub(super) fn push(&mut self, limits: &ReplicaOptions, from: NodeId, envelope: Envelope) {
        let bytes = envelope.message.approximate_bytes();
        if bytes > limits.parked_bytes {
            return;
        }
        while self.messages.len() >= MOST_PARKED || self.bytes + bytes > limits.parked_bytes {
            let Some((_, oldest)) = self.messages.pop_front() else {
                break;
            };
            self.bytes -= oldest.message.approximate_bytes();
        }
        self.bytes += bytes;
        let envelope = Envelope {
            // It may be a small part of the batch in which it came.
            message: envelope.message.detached(),
            ..envelope
        };
        self.messages.push_back((from, envelope));
    }

    pub(super) fn highest_epoch(&self) -> Option<Epoch> {
        self.messages
            .iter()
            .map(|(_, envelope)| envelope.epoch)
            .max()
    }

    /// The messages, in the order in which they came.
    pub(super) fn into_messages(self) -> VecDeque<(NodeId, Envelope)> {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Tag};
    use torc_record::{Ballot, Digest, Key, NamespaceId, Record, State};
    use torc_ring::Partition;

    fn store(number: u8, value_bytes: usize) -> Envelope {
        let record = Record {
            namespace: NamespaceId::DEFAULT,
            digest: Digest([number; 16]),
            key: Key::new(vec![number]).unwrap(),
            ballot: Ballot::default(),
            origin: None,
            state: State::Value {
                value: vec![0; value_bytes].into(),
                expires_at_ms: None,
            },
        };
        let tag = Tag::default();
        Envelope {
            partition: Partition(0),
            epoch: Epoch(1),
            message: Message::Store { tag, record },
        }
    }

    fn parked(parked: &Parked) -> Vec<u8> {
        let keys = parked.messages.iter().map(|(_, it)| it.message.keys());
        keys.map(|keys| keys[0].digest.0[0]).collect()
    }

    #[test]
    fn the_oldest_messages_make_room_by_count_and_bytes_and_a_too_long_one_gets_none() {
        let limits = ReplicaOptions::default();
        let mut waiting = Parked::default();
        for number in 0..100 {
            waiting.push(&limits, NodeId(2), store(number, 0));
        }
        assert_eq!(parked(&waiting), (36..100).collect::<Vec<_>>());
        for number in 0..64 {
            waiting.push(&limits, NodeId(2), store(number, 20_000));
        }
        assert_eq!(
            parked(&waiting),
            [61, 62, 63],
            "three of them are below 64 KiB"
        );
        waiting.push(&limits, NodeId(2), store(64, 1 << 20));
        assert_eq!(parked(&waiting), [61, 62, 63], "it would be alone");
        waiting.push(&limits, NodeId(2), store(65, 60_000));
        assert_eq!(parked(&waiting), [65]);
    }
}
