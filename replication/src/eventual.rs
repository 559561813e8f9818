//! Operations of `eventual` namespaces: last writer wins by hybrid clock.
//!
//! A write is stored where it is newer, a read returns the newest of the answers; how
//! many must answer is the request's choice. There are no promises and no rounds, so
//! concurrent writes are lost, all but one. Never mix these with registers on one key.
//!
//! While a partition moves, as many of the new set as of the old must have stored a
//! write, so that a move loses nothing that was acknowledged.

use std::sync::Arc;

use torc_record::Record;
use torc_ring::NodeId;

use crate::{Config, Content, Envelope, Held, Message, Tag, Votes};

/// How many replicas must answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quorum {
    /// One.
    One,
    /// More than half.
    Majority,
    /// All.
    All,
}

impl Quorum {
    fn is_met(self, votes: Votes, set: Votes) -> bool {
        let count = votes.intersection(set).count();
        match self {
            Self::One => count >= 1,
            Self::Majority => count > set.count() / 2,
            Self::All => count == set.count(),
        }
    }
}

/// A write on its way. Ask for [`sends`](Self::sends), take the answers, and when the
/// time is over keep a [`Hint`](crate::Hint) for each of [`missing`](Self::missing).
#[derive(Debug, Clone)]
pub struct EventualWrite {
    config: Arc<Config>,
    tag: Tag,
    record: Record,
    quorum: Quorum,
    stored: Votes,
}

impl EventualWrite {
    /// A write of `record`, whose ballot is a fresh reading of the coordinator's clock.
    #[must_use]
    pub const fn new(config: Arc<Config>, tag: Tag, record: Record, quorum: Quorum) -> Self {
        Self {
            config,
            tag,
            record,
            quorum,
            stored: Votes::NONE,
        }
    }

    /// One message to each replica, of both sets while the partition moves.
    #[must_use]
    pub fn sends(&self) -> Vec<(NodeId, Envelope)> {
        let message = || Message::Store {
            tag: self.tag,
            record: self.record.clone(),
        };
        self.config
            .nodes(self.config.acceptors())
            .map(|node| (node, envelope(&self.config, message())))
            .collect()
    }

    /// Notes that a replica has stored it; whether the write is done.
    pub fn on_stored(&mut self, from: NodeId) -> bool {
        if let Some(index) = self.config.index(from) {
            self.stored.insert(index);
        }
        let new = self.config.new;
        let both = !self.config.writes_both() || self.quorum.is_met(self.stored, new);
        both && self.quorum.is_met(self.stored, self.config.old)
    }

    /// Replicas that have not confirmed.
    pub fn missing(&self) -> impl Iterator<Item = NodeId> + '_ {
        let missing = self.config.acceptors().without(self.stored);
        self.config.nodes(missing)
    }
}

/// A read on its way.
#[derive(Debug, Clone)]
pub struct EventualRead {
    config: Arc<Config>,
    quorum: Quorum,
    answers: Vec<(NodeId, Held)>,
    answered: Votes,
}

impl EventualRead {
    /// A read that waits for this many replicas of the set that reads.
    #[must_use]
    pub const fn new(config: Arc<Config>, quorum: Quorum) -> Self {
        Self {
            config,
            quorum,
            answers: Vec::new(),
            answered: Votes::NONE,
        }
    }

    /// Takes an answer to `Read` with the value; the newest version once enough are
    /// there. It may be a tombstone or have expired: the caller judges by its clock.
    pub fn on_holding(&mut self, from: NodeId, held: Held) -> Option<&Held> {
        let index = self.config.index(from)?;
        if !self.answered.contains(index) {
            self.answered.insert(index);
            self.answers.push((from, held));
        }
        let met = self.quorum.is_met(self.answered, self.config.readers());
        self.newest().filter(|_| met)
    }

    /// Replicas that answered with an older version, to be sent the newest.
    pub fn behind(&self) -> impl Iterator<Item = NodeId> + '_ {
        let newest = self.newest().map(|held| held.ballot).unwrap_or_default();
        self.answers
            .iter()
            .filter(move |(_, held)| held.ballot < newest)
            .map(|(node, _)| *node)
    }

    fn newest(&self) -> Option<&Held> {
        let held = |answer: &(NodeId, Held)| {
            let present = answer.1.content != Content::Absent;
            (answer.1.ballot, present)
        };
        self.answers
            .iter()
            .max_by_key(|answer| held(answer))
            .map(|(_, held)| held)
    }
}

fn envelope(config: &Config, message: Message) -> Envelope {
    Envelope {
        partition: config.partition,
        epoch: config.epoch,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use torc_record::{Ballot, Digest, Epoch, HybridTime, Key, NamespaceId, NodeSlot, State};
    use torc_ring::Partition;

    const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn config() -> Arc<Config> {
        Arc::new(Config::founded(Partition(0), Epoch(1), &NODES))
    }

    fn ballot(time: u64) -> Ballot {
        Ballot {
            epoch: Epoch(1),
            time: HybridTime(time),
            slot: NodeSlot(0),
        }
    }

    fn held(time: u64) -> Held {
        Held {
            origin: None,
            ballot: ballot(time),
            content: Content::Value {
                expires_at_ms: None,
                value: Some(Bytes::from_static(b"v")),
            },
            collected: Ballot::default(),
            collecting: Ballot::default(),
        }
    }

    #[test]
    fn a_write_is_done_when_as_many_as_asked_have_stored_it() {
        let record = Record {
            namespace: NamespaceId::DEFAULT,
            digest: Digest([1; 16]),
            key: Key::new(&b"k"[..]).unwrap(),
            ballot: ballot(1),
            origin: None,
            state: State::Tombstone,
        };
        let moving = config().begin(Epoch(2), &[NODES[0], NODES[1], NodeId(4)], &[]);
        let both = moving
            .and_then(|c| c.advance(Epoch(3), crate::Mutations::NONE))
            .unwrap();
        let new = |config: Arc<Config>| {
            EventualWrite::new(config, Tag::default(), record.clone(), Quorum::Majority)
        };
        let mut write = new(config());
        assert!(!write.on_stored(NODES[0]));
        assert!(!write.on_stored(NODES[0]), "the same replica counts once");
        assert!(!write.on_stored(NodeId(9)), "a stranger does not count");
        assert!(write.on_stored(NODES[2]));
        assert_eq!(write.missing().collect::<Vec<_>>(), [NODES[1]]);

        let mut write = new(Arc::new(both));
        assert_eq!(write.sends().len(), 4, "both sets are asked");
        write.on_stored(NODES[0]);
        assert!(
            !write.on_stored(NODES[2]),
            "one of the new set is no majority"
        );
        assert!(write.on_stored(NodeId(4)));
    }

    #[test]
    fn a_read_returns_the_newest_of_enough_answers_and_names_the_others() {
        let mut read = EventualRead::new(config(), Quorum::Majority);
        assert_eq!(
            read.on_holding(NODES[0], held(5)),
            None,
            "one is not enough"
        );
        let newest = read.on_holding(NODES[1], held(7)).map(|held| held.ballot);
        assert_eq!(newest, Some(ballot(7)));
        assert_eq!(read.behind().collect::<Vec<_>>(), [NODES[0]]);
    }
}
