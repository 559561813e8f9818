//! Recovers a stretch in which this replica has lost records with unknown keys, from the
//! other replicas.
//!
//! 1. Each of the others durably raises its floor to the highest ballot that may have
//!    been lost, or above: it accepts nothing at or below any more.
//! 2. Then it lists its durable records of the stretch: everything that it ever accepted
//!    there at or below, or its replacement.
//! 3. This suffices once the replicas that have not listed are, with this replica, not a
//!    quorum: then every version that was or may be chosen is in a list.
//!
//! Every listed key that may have been lost is reconciled. Other records in those places were
//! never chosen and never will be: this replica may forget them.
//!
//! A replica that cannot read all of its own copy lists nothing. With a single replica, lost
//! records stay unknown.

use std::collections::BTreeMap;
use std::sync::Arc;

use torc_record::{Ballot, Digest, HybridTime, Key, Layer, NamespaceId, NodeSlot};
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use crate::{Config, Envelope, KeyId, Locator, Message, Mutations, ScanPage, Sends, Tag, Votes};

/// A part of a partition, between two known digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The partition's layer.
    pub layer: Layer,
    /// Lost keys are after this digest; `None` if unknown.
    pub after: Option<Digest>,
    /// Lost keys are before this digest; `None` if unknown.
    pub before: Option<Digest>,
}

impl Stretch {
    /// The position before its first key; `None` at the start of the partition. It is within the
    /// partition, like every key in a message.
    #[must_use]
    pub fn start(&self) -> Option<KeyId> {
        self.after.map(|digest| KeyId {
            digest,
            namespace: NamespaceId::in_layer(self.layer, NamespaceId::MAX_NUMBER),
        })
    }

    /// Whether it ends before this digest.
    #[must_use]
    pub fn ends_before(&self, digest: Digest) -> bool {
        self.before.is_some_and(|before| before <= digest)
    }
}

/// The state of one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Floor,
    Page(Option<KeyId>),
    Nothing,
}

/// One inquiry about one stretch. Repeating or abandoning it is harmless.
#[derive(Debug)]
pub struct LostStretch {
    config: Arc<Config>,
    mutations: Mutations,
    me: usize,
    upto: Ballot,
    tag: Tag,
    stretch: Stretch,
    /// By member index.
    asks: Vec<Ask>,
    listed: BTreeMap<(KeyId, Key), Ballot>,
}

impl LostStretch {
    /// An inquiry of `me` about records lost at or below `highest`. `recent` is a time below all
    /// writes under way, `tag` the tag of the pages. `None` unless the partition is stable, `me` is
    /// a replica, and `highest` is not of a later epoch.
    #[must_use]
    pub fn new(
        config: Arc<Config>,
        me: NodeId,
        (highest, recent): (Ballot, HybridTime),
        tag: Tag,
        stretch: Stretch,
        mutations: Mutations,
    ) -> Option<Self> {
        let me = config.index(me)?;
        let fits = config.stage == Stage::Stable && highest.epoch <= config.epoch;
        let time = if highest.epoch == config.epoch {
            highest.time.max(recent)
        } else {
            recent
        };
        let mut asks = vec![Ask::Floor; config.members.len()];
        asks[me] = Ask::Nothing;
        fits.then(|| Self {
            upto: Ballot {
                epoch: config.epoch,
                time,
                slot: NodeSlot(u16::MAX),
            },
            config,
            mutations,
            me,
            tag,
            stretch,
            asks,
            listed: BTreeMap::new(),
        })
    }

    /// The ballot to which the others raise their floors.
    #[must_use]
    pub const fn upto(&self) -> Ballot {
        self.upto
    }

    /// The messages to send now; repeated, for replicas that have not answered.
    #[must_use]
    pub fn asks(&self) -> Sends {
        (0..self.asks.len())
            .filter_map(|index| self.ask(index))
            .collect()
    }

    /// A replica has raised its floor. Returns the next question.
    pub fn on_floor(&mut self, from: NodeId, upto: Ballot) -> Sends {
        let index = self.config.index(from).filter(|_| upto == self.upto);
        let Some(index) = index.filter(|index| self.asks[*index] == Ask::Floor) else {
            return Vec::new();
        };
        self.asks[index] = Ask::Page(self.stretch.start());
        self.ask(index).into_iter().collect()
    }

    /// Takes a replica's page with this inquiry's tag. Returns the next question. Duplicates
    /// are harmless, because a page starts where the previous one ended.
    pub fn on_page(&mut self, from: NodeId, page: ScanPage) -> Sends {
        let Some(index) = self.config.index(from) else {
            return Vec::new();
        };
        if !matches!(self.asks[index], Ask::Page(_)) {
            return Vec::new();
        }
        let mut next = page.next;
        for record in page.records {
            if self.stretch.ends_before(record.digest) {
                next = None;
                break;
            }
            // The page's buffer holds the values too, so the kept keys must not share it.
            let at = (KeyId::of(&record), record.key.detached());
            let highest = self.listed.entry(at).or_default();
            *highest = record.ballot.max(*highest);
        }
        self.asks[index] = next.map_or(Ask::Nothing, |next| Ask::Page(Some(next)));
        self.ask(index).into_iter().collect()
    }

    /// Whether so many have listed that the rest, with this replica, are not a quorum.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_open = |index: &usize| *index == self.me || self.asks[*index] != Ask::Nothing;
        let open = (0..self.asks.len()).filter(is_open);
        let open = open.fold(Votes::NONE, |votes, index| votes.union(Votes::one(index)));
        !self.config.may_accept(open, self.mutations)
    }

    /// Replicas that have not listed yet, and whether their floors are raised.
    pub fn missing(&self) -> impl Iterator<Item = (NodeId, bool)> + '_ {
        let members = self.config.members.iter().zip(&self.asks);
        let open = members.filter(|(_, ask)| **ask != Ask::Nothing);
        open.map(|(member, ask)| (member.node, *ask != Ask::Floor))
    }

    /// The listed keys, each with the highest ballot of any replica.
    #[must_use]
    pub fn into_listed(self) -> Vec<(Locator, Ballot)> {
        let listed = self.listed.into_iter().map(|((id, key), highest)| {
            let at = Locator {
                namespace: id.namespace,
                digest: id.digest,
                key,
            };
            (at, highest)
        });
        listed.collect()
    }

    fn ask(&self, index: usize) -> Option<(NodeId, Envelope)> {
        let message = match self.asks[index] {
            Ask::Nothing => return None,
            Ask::Floor => Message::GcFloor { upto: self.upto },
            Ask::Page(after) => Message::Pull {
                tag: self.tag,
                after,
                since: None,
                known: None,
            },
        };
        let envelope = Envelope {
            partition: self.config.partition,
            epoch: self.config.epoch,
            message,
        };
        Some((self.config.members[index].node, envelope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use torc_record::{DigestKey, Epoch, Record, State};
    use torc_ring::Partition;

    const EPOCH: Epoch = Epoch(4);
    const RECENT: HybridTime = HybridTime(70);
    const WHOLE: Stretch = Stretch {
        layer: Layer::BASE,
        after: None,
        before: None,
    };

    fn nodes(count: u64) -> Vec<NodeId> {
        (1..=count).map(NodeId).collect()
    }

    fn ballot(epoch: Epoch, time: u64) -> Ballot {
        Ballot {
            epoch,
            time: HybridTime(time),
            slot: NodeSlot(1),
        }
    }

    /// An inquiry of node 1 among `count` nodes.
    fn inquiry(count: u64, highest: Ballot, stretch: Stretch) -> Option<LostStretch> {
        let config = Config::founded(Partition(0), EPOCH, &nodes(count));
        LostStretch::new(
            config.into(),
            NodeId(1),
            (highest, RECENT),
            Tag::default(),
            stretch,
            Mutations::NONE,
        )
    }

    fn records(count: u8) -> Vec<Record> {
        let record = |number: u8| {
            let key = Key::new(vec![number + 1]).unwrap();
            Record {
                namespace: NamespaceId::DEFAULT,
                digest: Digest::of(&DigestKey([1; 32]), NamespaceId::DEFAULT, key.as_bytes()),
                key,
                ballot: ballot(EPOCH, u64::from(number)),
                origin: None,
                state: State::Value {
                    value: Bytes::new(),
                    expires_at_ms: None,
                },
            }
        };
        let mut records: Vec<_> = (0..count).map(record).collect();
        records.sort_by_key(|record| record.digest);
        records
    }

    fn page(records: &[Record], is_last: bool) -> ScanPage {
        let last = records.last().map(KeyId::of);
        ScanPage {
            records: records.to_vec(),
            next: last.filter(|_| !is_last),
            collected: Ballot::default(),
            collecting: Ballot::default(),
        }
    }

    fn after_of(sends: &Sends) -> Vec<(u64, Option<KeyId>)> {
        let pulls = sends.iter().map(|(to, envelope)| match envelope.message {
            Message::Pull { after, .. } => (to.0, after),
            ref other => panic!("{other:?}"),
        });
        pulls.collect()
    }

    #[test]
    fn a_list_counts_only_behind_a_floor_above_all_that_was_lost() {
        let highest = ballot(EPOCH, 90);
        let mut lost = inquiry(3, highest, WHOLE).unwrap();
        assert!(lost.upto() > highest);
        let floors = |sends: &Sends| {
            let all = sends.iter();
            let floors = all.map(|(to, envelope)| match envelope.message {
                Message::GcFloor { upto } if upto > highest => to.0,
                ref other => panic!("{other:?}"),
            });
            floors.collect::<Vec<_>>()
        };
        assert_eq!(floors(&lost.asks()), [2, 3], "not this replica itself");
        assert!(lost.on_page(NodeId(2), page(&records(1), true)).is_empty());
        assert!(lost.on_floor(NodeId(2), highest).is_empty(), "of another");
        assert!(
            lost.on_floor(NodeId(1), lost.upto()).is_empty(),
            "its own word says nothing of what it lost"
        );
        assert_eq!(
            after_of(&lost.on_floor(NodeId(2), lost.upto())),
            [(2, None)]
        );
        assert!(lost.missing().eq([(NodeId(2), true), (NodeId(3), false)]));
        assert!(lost.on_page(NodeId(2), page(&records(1), true)).is_empty());
        assert!(lost.missing().eq([(NodeId(3), false)]));
        assert!(
            !lost.is_complete(),
            "the third and this one may have chosen what the second has not"
        );
        lost.on_floor(NodeId(3), lost.upto());
        lost.on_page(NodeId(3), page(&[], true));
        assert!(lost.is_complete());
        assert_eq!(lost.into_listed().len(), 1);
    }

    #[test]
    fn a_listed_key_does_not_keep_its_page_in_memory() {
        let frame = Bytes::from(vec![7; 1 << 20]);
        let key = Key::new(frame.slice(5..9)).unwrap();
        let record = Record {
            key,
            ..records(1).remove(0)
        };
        let mut lost = inquiry(2, Ballot::default(), WHOLE).unwrap();
        lost.on_floor(NodeId(2), lost.upto());
        lost.on_page(NodeId(2), page(&[record], true));
        assert!(frame.is_unique());
        let listed = lost.into_listed();
        assert_eq!(listed[0].0.key.as_bytes(), &frame[5..9]);
    }

    #[test]
    fn those_who_have_not_listed_are_no_quorum_with_this_replica() {
        for (count, needed) in [(2, 1), (3, 2), (4, 2), (5, 3)] {
            let mut lost = inquiry(count, Ballot::default(), WHOLE).unwrap();
            for node in 2..2 + needed {
                assert!(!lost.is_complete(), "{node} of {count}");
                lost.on_floor(NodeId(node), lost.upto());
                lost.on_page(NodeId(node), page(&[], true));
            }
            assert!(lost.is_complete(), "of {count}");
        }
        let alone = inquiry(1, Ballot::default(), WHOLE).unwrap();
        assert!(alone.asks().is_empty() && !alone.is_complete());
    }

    #[test]
    fn pages_are_asked_for_to_the_end_of_the_stretch_and_their_highest_ballots_count() {
        let all = records(20);
        let stretch = Stretch {
            layer: Layer::BASE,
            after: Some(all[4].digest),
            before: Some(all[12].digest),
        };
        let mut lost = inquiry(2, Ballot::default(), stretch).unwrap();
        let first = lost.on_floor(NodeId(2), lost.upto());
        assert_eq!(after_of(&first), [(2, stretch.start())]);
        assert!(stretch.start() >= Some(KeyId::of(&all[4])));
        let layer = stretch.start().unwrap().namespace.layer();
        assert_eq!(layer, Layer::BASE, "another one is of another partition");
        let next = Some(KeyId::of(&all[9]));
        for _ in 0..2 {
            let second = lost.on_page(NodeId(2), page(&all[5..10], false));
            assert_eq!(after_of(&second), [(2, next)], "the same answer twice");
        }
        assert!(!lost.is_complete());
        assert!(
            lost.on_page(NodeId(2), page(&all[10..20], false))
                .is_empty()
        );
        assert!(lost.is_complete(), "what follows is behind the stretch");
        let of = |record: &Record| (Locator::of(record), record.ballot);
        let expected: Vec<_> = all[5..12].iter().map(of).collect();
        assert_eq!(lost.into_listed(), expected);
    }

    #[test]
    fn nobody_is_asked_while_the_partition_moves_or_of_a_later_epoch() {
        assert!(inquiry(3, ballot(Epoch(5), 1), WHOLE).is_none());
        let earlier = inquiry(3, ballot(Epoch(3), 900), WHOLE).unwrap();
        let upto = earlier.upto();
        assert_eq!((upto.epoch, upto.time), (EPOCH, RECENT));
        let mut moving = Config::founded(Partition(0), EPOCH, &nodes(3));
        moving.stage = Stage::Copying;
        let highest = (Ballot::default(), RECENT);
        let (tag, stretch) = (Tag::default(), WHOLE);
        let none = LostStretch::new(
            moving.into(),
            NodeId(1),
            highest,
            tag,
            stretch,
            Mutations::NONE,
        );
        assert!(none.is_none());
    }
}
