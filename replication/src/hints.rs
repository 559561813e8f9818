//! Writes of `eventual` namespaces that a replica has missed, kept to be sent later.
//!
//! A hint only makes copies equal sooner: it never counts towards a write's quorum, and
//! losing all hints loses nothing that anti-entropy does not find. So they are bounded,
//! and the oldest go first.

use std::collections::{BTreeMap, VecDeque};

use torc_record::Record;
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

/// The hints of one coordinator: the newest version of each key for each node.
#[derive(Debug, Clone)]
pub struct Hints {
    capacity: usize,
    held: BTreeMap<(NodeId, KeyId), Record>,
    order: VecDeque<(NodeId, KeyId)>,
    dropped: u64,
}

impl Hints {
    /// No hints, and room for this many.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            held: BTreeMap::new(),
            order: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Keeps a hint unless a newer version for that node is kept already.
    pub fn keep(&mut self, hint: Hint) {
        let name = (hint.to, KeyId::of(&hint.record));
        match self.held.get_mut(&name) {
            Some(held) if hint.record.supersedes(held) => *held = hint.record,
            Some(_) => {}
            None => {
                self.held.insert(name, hint.record);
                self.order.push_back(name);
            }
        }
        while self.held.len() > self.capacity {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            self.dropped += u64::from(self.held.remove(&oldest).is_some());
        }
    }

    /// Up to `limit` hints for a node that answers again, in key order. They stay until
    /// [`confirmed`](Self::confirmed).
    pub fn for_node(&self, node: NodeId, limit: usize) -> impl Iterator<Item = &Record> {
        let mine = self.held.iter().filter(move |((to, _), _)| *to == node);
        mine.map(|(_, record)| record).take(limit)
    }

    /// The node has stored this version, or a newer one.
    pub fn confirmed(&mut self, node: NodeId, record: &Record) {
        let name = (node, KeyId::of(record));
        if self
            .held
            .get(&name)
            .is_some_and(|held| !held.supersedes(record))
        {
            self.held.remove(&name);
            self.order.retain(|known| *known != name);
        }
    }

    /// Forgets what is kept for a node that left.
    pub fn forget(&mut self, node: NodeId) {
        self.held.retain(|(to, _), _| *to != node);
        self.order.retain(|(to, _)| *to != node);
    }

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many were dropped for lack of room since the start.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::{Ballot, Digest, Epoch, HybridTime, Key, NamespaceId, NodeSlot, State};

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
        let mut hints = Hints::new(10);
        hints.keep(hint(1, 7, 5));
        hints.keep(hint(1, 7, 9));
        hints.keep(hint(1, 7, 6));
        assert_eq!(hints.len(), 1);
        hints.confirmed(NodeId(1), &hint(1, 7, 5).record);
        assert_eq!(hints.len(), 1, "a newer version waits still");
        hints.confirmed(NodeId(1), &hint(1, 7, 9).record);
        assert!(hints.is_empty());
    }

    #[test]
    fn beyond_its_room_the_oldest_are_dropped_and_counted() {
        let mut hints = Hints::new(2);
        for key in 1..=5 {
            hints.keep(hint(1, key, 1));
        }
        assert_eq!((hints.len(), hints.dropped()), (2, 3));
        let kept: Vec<_> = hints.for_node(NodeId(1), 10).collect();
        assert_eq!(kept[0].key.as_bytes(), [4], "the newest two");
        hints.forget(NodeId(1));
        assert!(hints.is_empty());
    }
}
