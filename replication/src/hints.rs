//! Hints: writes of `eventual` namespaces that a replica has missed, kept to send later.
//!
//! A hint only makes replicas converge sooner: it never counts towards a write's
//! quorum, and anti-entropy makes up for lost hints. So they are bounded, and the
//! oldest are dropped first.

use std::collections::BTreeMap;
use std::ops::Bound;

use torc_record::{DIGEST_LEN, Digest, NamespaceId, Record};
use torc_ring::NodeId;

use crate::KeyId;

/// A version for a node that did not confirm it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The node.
    pub to: NodeId,
    /// The version.
    pub record: Record,
}

/// The identity of a hint: receiver and key.
pub type HintId = (NodeId, KeyId);

/// The hints of one node: the newest version of each key for each node that missed it.
#[derive(Debug, Clone)]
pub struct Hints {
    capacity: usize,
    capacity_bytes: usize,
    held: BTreeMap<HintId, Held>,
    /// Oldest first.
    order: BTreeMap<u64, HintId>,
    last: u64,
    bytes: usize,
    dropped: u64,
}

#[derive(Debug, Clone)]
struct Held {
    age: u64,
    record: Record,
}

impl Hints {
    /// No hints, with limits on their number and on the bytes of keys and values.
    #[must_use]
    pub const fn new(capacity: usize, capacity_bytes: usize) -> Self {
        Self {
            capacity,
            capacity_bytes,
            held: BTreeMap::new(),
            order: BTreeMap::new(),
            last: 0,
            bytes: 0,
            dropped: 0,
        }
    }

    /// Keeps a hint unless there is a newer version for that node. Returns the changes:
    /// this hint, and those dropped for it.
    pub fn keep(&mut self, hint: Hint) -> Vec<HintId> {
        let id = (hint.to, KeyId::of(&hint.record));
        let known = self.held.get(&id);
        if known.is_some_and(|held| !hint.record.supersedes(&held.record)) {
            return Vec::new();
        }
        self.remove(id);
        self.last += 1;
        self.bytes += hint.record.payload_len();
        self.order.insert(self.last, id);
        // A client's record shares the buffer of its whole request, which the limits do not count.
        let held = Held {
            age: self.last,
            record: hint.record.detached(),
        };
        self.held.insert(id, held);
        let mut changed = vec![id];
        while self.held.len() > self.capacity || self.bytes > self.capacity_bytes {
            let Some((_, oldest)) = self.order.first_key_value() else {
                break;
            };
            let oldest = *oldest;
            self.remove(oldest);
            self.dropped += 1;
            changed.push(oldest);
        }
        changed
    }

    /// The record of a hint.
    #[must_use]
    pub fn get(&self, id: HintId) -> Option<&Record> {
        self.held.get(&id).map(|held| &held.record)
    }

    /// Up to `limit` hints for a node that answers again, in key order. They stay until
    /// [`confirmed`](Self::confirmed) is called.
    pub fn for_node(&self, node: NodeId, limit: usize) -> impl Iterator<Item = &Record> {
        let mine = self.held.range(first_of(node)..);
        mine.take_while(move |((to, _), _)| *to == node)
            .map(|(_, held)| &held.record)
            .take(limit)
    }

    /// The same, beginning after a key and going round.
    pub fn for_node_after(
        &self,
        node: NodeId,
        after: KeyId,
        limit: usize,
    ) -> impl Iterator<Item = &Record> {
        let id = (node, after);
        let later = self.held.range((Bound::Excluded(id), Bound::Unbounded));
        let mine = later.take_while(move |((to, _), _)| *to == node);
        mine.chain(self.held.range(first_of(node)..=id))
            .map(|(_, held)| &held.record)
            .take(limit)
    }

    /// The nodes with hints.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        let mut next = self.held.keys().next();
        while let Some(&(node, _)) = next {
            nodes.push(node);
            let Some(after) = node.0.checked_add(1) else {
                break;
            };
            let later = self.held.range(first_of(NodeId(after))..);
            next = later.map(|(id, _)| id).next();
        }
        nodes
    }

    /// Records that the node has stored this version or a newer one, or never will.
    /// Returns whether this ends a hint.
    pub fn confirmed(&mut self, node: NodeId, record: &Record) -> bool {
        let id = (node, KeyId::of(record));
        let known = self.held.get(&id);
        let ends = known.is_some_and(|held| !held.record.supersedes(record));
        if ends {
            self.remove(id);
        }
        ends
    }

    fn remove(&mut self, id: HintId) {
        if let Some(held) = self.held.remove(&id) {
            self.order.remove(&held.age);
            self.bytes -= held.record.payload_len();
        }
    }

    /// The number of hints.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Bytes of keys and values of all hints.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are no hints.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The number of hints dropped for lack of room since the start.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Sorts before all hints for a node.
const fn first_of(node: NodeId) -> HintId {
    let key = KeyId {
        digest: Digest([0; DIGEST_LEN]),
        namespace: NamespaceId(0),
    };
    (node, key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use torc_record::{Ballot, Epoch, HybridTime, Key, NodeSlot, State};

    fn hint(to: u64, key: u8, time: u64) -> Hint {
        let record = Record {
            namespace: NamespaceId::DEFAULT,
            digest: Digest([key; 16]),
            key: Key::new(vec![key]).unwrap(),
            ballot: Ballot {
                epoch: Epoch(1),
                time: HybridTime(time),
                slot: NodeSlot(0),
            },
            origin: None,
            state: State::Tombstone,
        };
        Hint {
            to: NodeId(to),
            record,
        }
    }

    #[test]
    fn only_the_newest_version_is_kept_and_only_its_confirmation_ends_it() {
        let mut hints = Hints::new(10, 1_000);
        hints.keep(hint(1, 7, 5));
        assert_eq!(hints.keep(hint(1, 7, 9)).len(), 1);
        assert!(
            hints.keep(hint(1, 7, 6)).is_empty(),
            "older: nothing changed"
        );
        assert_eq!((hints.len(), hints.bytes()), (1, 1));
        assert!(!hints.confirmed(NodeId(1), &hint(1, 7, 5).record));
        assert_eq!(hints.len(), 1, "a newer version waits still");
        assert!(hints.confirmed(NodeId(1), &hint(1, 7, 9).record));
        assert!(hints.is_empty() && hints.bytes() == 0);
    }

    #[test]
    fn a_hint_does_not_keep_the_request_of_its_client_in_memory() {
        let request = Bytes::from(vec![7; 1 << 20]);
        let mut hint = hint(1, 7, 5);
        hint.record.key = Key::new(request.slice(..3)).unwrap();
        hint.record.state = State::Value {
            value: request.slice(3..9),
            expires_at_ms: None,
        };
        let mut hints = Hints::new(10, 1_000);
        hints.keep(hint.clone());
        let kept = hints.for_node(NodeId(1), 1).next();
        assert_eq!(kept, Some(&hint.record));
        drop(hint);
        assert!(request.is_unique());
    }

    #[test]
    fn beyond_its_room_the_oldest_are_dropped_and_counted() {
        for mut hints in [Hints::new(2, 1_000), Hints::new(100, 2)] {
            for key in 1..=4 {
                hints.keep(hint(1, key, 1));
            }
            let changed = hints.keep(hint(1, 5, 1));
            assert_eq!(changed.len(), 2, "one came and one went");
            assert_eq!(hints.get(changed[1]), None);
            assert_eq!((hints.len(), hints.dropped()), (2, 3));
            let kept: Vec<_> = hints.for_node(NodeId(1), 10).collect();
            assert_eq!(kept[0].key.as_bytes(), [4], "the newest two");
        }
    }

    #[test]
    fn each_node_that_missed_something_is_named_once() {
        let mut hints = Hints::new(10, 1_000);
        for (to, key) in [(3, 1), (3, 2), (1, 9), (u64::MAX, 4)] {
            hints.keep(hint(to, key, 1));
        }
        assert_eq!(hints.nodes(), [NodeId(1), NodeId(3), NodeId(u64::MAX)]);
        assert_eq!(hints.for_node(NodeId(3), 1).count(), 1);
        assert_eq!(hints.for_node(NodeId(2), 9).count(), 0);
    }

    #[test]
    fn hints_of_a_node_go_round() {
        let mut hints = Hints::new(10, 1_000);
        for (to, key) in [(1, 9), (2, 1), (2, 2), (2, 3), (3, 4)] {
            hints.keep(hint(to, key, 1));
        }
        let after = |key| {
            let id = KeyId::of(&hint(2, key, 1).record);
            let records = hints.for_node_after(NodeId(2), id, 3);
            records
                .map(|record| record.key.as_bytes()[0])
                .collect::<Vec<_>>()
        };
        assert_eq!(after(0), [1, 2, 3]);
        assert_eq!(after(1), [2, 3, 1]);
        assert_eq!(after(3), [1, 2, 3]);
        assert_eq!(after(9), [1, 2, 3]);
    }
}
