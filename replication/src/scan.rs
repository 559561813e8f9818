//! What a quorum holds in a stretch of a partition, for scans.
//!
//! A scanning replica begins with its own page, and asks the others whether they hold the same. It
//! sends the sum of its entries, so only a replica that differs sends a page. A quorum of answers
//! determines each key up to the end of the shortest page. A version that is proven chosen is taken
//! as it is (R5). Any other key must be read by a separate operation, and so must an expired value,
//! because only that makes its absence last. So a scan is linearizable per key, but not a snapshot.
//!
//! A filtering scan keeps only some values of its own page, and the sum of all records. If a quorum
//! holds the same, the dropped records need no read, provided that they are also proven chosen;
//! otherwise the scan starts over without a filter. For a key of an `eventual` namespace, the
//! newest version is taken, unless it has expired.
//!
//! Invariant: a page counts only for the round that requested it, and so does the answer that
//! another replica holds the same. A page requested earlier may lack later writes. The round's
//! epoch is the page's: replicas answer in the epoch of the request, or not at all (R1).

use std::collections::BTreeSet;
use std::sync::Arc;

use torc_record::{Ballot, Epoch, HybridTime, PageSum, Record, State};
use torc_ring::NodeId;

use crate::{
    Config, Envelope, KeyId, KnownPage, Locator, Message, Mutation, Mutations, Tag, Votes,
};

/// One round of requests for a page.
#[derive(Debug)]
pub struct ScanRound {
    config: Arc<Config>,
    mutations: Mutations,
    tag: Tag,
    after: Option<KeyId>,
    /// The replica whose page the others compare with theirs.
    first: Option<usize>,
    known: Option<KnownPage>,
    filter: Option<Filter>,
    pages: Vec<HeldPage>,
    /// The replicas that answered, with their collection watermarks.
    answered: Vec<(usize, Ballot)>,
    votes: Votes,
    collecting: HybridTime,
}

/// A page of the requester's own store, of which it kept only some values.
#[derive(Debug, Clone)]
pub struct FilteredPage {
    /// The kept records, in ring order.
    pub records: Vec<Record>,
    /// The page with all its records.
    pub known: KnownPage,
    /// The last key of the page; `None` at the end of the partition.
    pub last: Option<Locator>,
    /// The epochs in whose ballots the dropped records were written.
    pub left_out: BTreeSet<Epoch>,
}

/// Additional state of a round with a filtered page.
#[derive(Debug)]
struct Filter {
    last: Option<Locator>,
    left_out: BTreeSet<Epoch>,
    /// The replicas whose pages differ.
    different: Votes,
}

/// A page, and the replicas that hold it.
#[derive(Debug)]
struct HeldPage {
    records: Vec<Record>,
    next: Option<KeyId>,
    holders: Votes,
}

/// One replica's answer.
#[derive(Debug, Clone)]
pub enum ScanAnswer {
    /// Its page.
    Page(ScanPage),
    /// It holds the page in the request.
    Same {
        /// Its collection watermark.
        collected: Ballot,
        /// Its last started collection.
        collecting: Ballot,
    },
}

/// A replica's page.
#[derive(Debug, Clone)]
pub struct ScanPage {
    /// Its entries in ring order, tombstones included.
    pub records: Vec<Record>,
    /// Start of its next page; `None` at the end of the partition.
    pub next: Option<KeyId>,
    /// Its replica's collection watermark.
    pub collected: Ballot,
    /// Its replica's last started collection.
    pub collecting: Ballot,
}

impl ScanAnswer {
    /// The answer in a message and its round; `None` for a message that answers no scan.
    #[must_use]
    pub fn of(message: &Message) -> Option<(Tag, Self)> {
        let (tag, answer) = match message {
            Message::Page {
                tag,
                records,
                next,
                collected,
                collecting,
                ..
            } => {
                let page = ScanPage {
                    records: records.clone(),
                    next: *next,
                    collected: *collected,
                    collecting: *collecting,
                };
                (tag, Self::Page(page))
            }
            Message::SamePage {
                tag,
                collected,
                collecting,
            } => {
                let (collected, collecting) = (*collected, *collecting);
                let same = Self::Same {
                    collected,
                    collecting,
                };
                (tag, same)
            }
            _ => return None,
        };
        (*tag != Tag::default()).then_some((*tag, answer))
    }
}

/// The next step after an answer.
#[derive(Debug)]
pub enum ScanStep {
    /// Wait for more answers.
    Wait,
    /// Send the current [`ScanRound::asks`].
    Ask,
    /// A quorum has answered.
    Listed(Listed),
    /// A quorum does not hold the filtered page, or does not prove the dropped records: scan
    /// without a filter.
    Differs,
}

/// The combined pages of a quorum.
#[derive(Debug, Default)]
pub struct Listed {
    /// Values, in ring order, and keys that a separate operation must read.
    pub entries: Vec<ListedEntry>,
    /// The key to continue after; `None` at the end of the partition.
    pub next: Option<Locator>,
}

/// A key that a scan met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedEntry {
    /// This value may be returned.
    Value(Record),
    /// Only a get can tell what this key holds.
    Ask(Locator),
}

impl ScanRound {
    /// A round in a partition's present configuration; no replica was asked yet. Begins with the
    /// page of `first`, if that node serves reads; otherwise requests pages from all.
    #[must_use]
    pub fn new(
        config: Arc<Config>,
        first: Option<NodeId>,
        tag: Tag,
        after: Option<KeyId>,
        mutations: Mutations,
    ) -> Self {
        let readers = config.readers().without(config.excluded);
        let first = first.and_then(|node| config.index(node));
        Self {
            first: first.filter(|index| readers.contains(*index)),
            known: None,
            filter: None,
            config,
            mutations,
            tag,
            after,
            pages: Vec::new(),
            answered: Vec::new(),
            votes: Votes::NONE,
            collecting: HybridTime::default(),
        }
    }

    /// A round that asks all replicas whether they hold what this node's store held when it made a
    /// filtered page.
    #[must_use]
    pub fn of_filtered(
        config: Arc<Config>,
        tag: Tag,
        after: Option<KeyId>,
        page: FilteredPage,
        mutations: Mutations,
    ) -> Self {
        let mut round = Self::new(config, None, tag, after, mutations);
        round.known = Some(page.known);
        round.pages.push(HeldPage {
            records: page.records,
            next: page.known.next,
            holders: Votes::NONE,
        });
        round.filter = Some(Filter {
            last: page.last,
            left_out: page.left_out,
            different: Votes::NONE,
        });
        round
    }

    fn readers(&self) -> Votes {
        self.config.readers().without(self.config.excluded)
    }

    /// One message for each replica to ask now.
    pub fn asks(&self) -> impl Iterator<Item = (NodeId, Envelope)> + '_ {
        let readers = self.readers();
        let asked = match self.first {
            Some(first) if !self.votes.contains(first) => Votes::one(first),
            _ => readers.without(self.votes),
        };
        let asked = self.config.nodes(asked);
        asked.map(|node| (node, pull(&self.config, self.tag, self.after, self.known)))
    }

    /// Takes an answer with this round's tag. `is_eventual` returns the mode of a namespace; `None`
    /// if this node does not know it, so no client can ask for its keys.
    pub fn on_answer(
        &mut self,
        from: NodeId,
        answer: ScanAnswer,
        time: HybridTime,
        is_eventual: impl Fn(&Record) -> Option<bool>,
    ) -> ScanStep {
        let Some(index) = self.config.index(from) else {
            return ScanStep::Wait;
        };
        if self.votes.contains(index) {
            return ScanStep::Wait;
        }
        let readers = self.readers();
        if let (Some(filter), ScanAnswer::Page(_)) = (&mut self.filter, &answer) {
            filter.different.insert(index);
            let possible = readers.without(filter.different);
            return if self.config.may_read(possible, self.mutations) {
                ScanStep::Wait
            } else {
                ScanStep::Differs
            };
        }
        let (collected, collecting) = match answer {
            ScanAnswer::Page(page) => {
                let facts = (page.collected, page.collecting);
                self.pages.push(HeldPage {
                    records: page.records,
                    next: page.next,
                    holders: Votes::one(index),
                });
                facts
            }
            ScanAnswer::Same {
                collected,
                collecting,
            } => {
                // The replica compared its page with the first one, if there was one.
                let Some(same) = self.pages.first_mut().filter(|_| self.known.is_some()) else {
                    return ScanStep::Wait;
                };
                same.holders.insert(index);
                (collected, collecting)
            }
        };
        self.votes.insert(index);
        self.answered.push((index, collected));
        self.collecting = self.collecting.max(collecting.time);
        let enough = self.config.may_read(self.votes, self.mutations)
            || self.mutations.has(Mutation::ScanOnePage);
        if enough && !self.proves_left_out() {
            // Another answer may prove them, but that is unlikely while a partition moves.
            return ScanStep::Differs;
        }
        if enough {
            return ScanStep::Listed(self.merge(time, is_eventual));
        }
        if self.first == Some(index) {
            self.known = self.pages.first().and_then(HeldPage::known);
            return ScanStep::Ask;
        }
        ScanStep::Wait
    }

    /// Whether the dropped records are proven chosen, so that no reader can see an earlier value
    /// any more.
    fn proves_left_out(&self) -> bool {
        let (Some(filter), Some(page)) = (&self.filter, self.pages.first()) else {
            return true;
        };
        let is_chosen = |epoch: &Epoch| {
            let any = Ballot {
                epoch: *epoch,
                ..Ballot::default()
            };
            self.config.is_chosen(any, page.holders, self.mutations)
        };
        filter.left_out.iter().all(is_chosen) || self.mutations.has(Mutation::FilterHidesUnproven)
    }

    fn merge(&mut self, time: HybridTime, is_eventual: impl Fn(&Record) -> Option<bool>) -> Listed {
        let pages = std::mem::take(&mut self.pages);
        let ends = pages.iter().filter_map(|page| page.next);
        let next = if self.mutations.has(Mutation::ScanBeyondShortest) {
            ends.max()
        } else {
            ends.min()
        };
        let time = time.max(self.collecting);
        let collected = std::mem::take(&mut self.answered);
        let mut keys = self.newest(pages);
        if let Some(next) = next {
            let within = keys.partition_point(|(record, _)| KeyId::of(record) <= next);
            keys.truncate(within);
        }
        // The shortest page has it as its last key, unless a filter dropped it.
        let next = match self.filter.take() {
            Some(filter) => filter.last,
            None => next.and_then(|next| {
                let (record, _) = keys.last()?;
                (KeyId::of(record) == next).then(|| Locator::of(record))
            }),
        };
        let entries = keys.into_iter().filter_map(|(record, holders)| {
            let expires_at_ms = record.expires_at_ms();
            let has_expired = expires_at_ms.is_some_and(|at| at <= time.unix_ms());
            let is_value = matches!(record.state, State::Value { .. });
            let is_final = !has_expired || self.mutations.has(Mutation::ScanExpiredAsIs);
            if is_eventual(&record)? {
                // One replica may have answered before the key was deleted, and another one after
                // its tombstone was collected.
                let newest = |holds: bool| {
                    let of = collected
                        .iter()
                        .filter(|(i, _)| holders.contains(*i) == holds);
                    of.map(|(_, collected)| *collected)
                        .max()
                        .unwrap_or_default()
                };
                let outdated = newest(false) > newest(true) && record.ballot <= newest(false);
                let outdated = outdated && !self.mutations.has(Mutation::EventualOutdated);
                return match (is_value, is_final && !outdated) {
                    (true, false) => Some(ListedEntry::Ask(Locator::of(&record))),
                    (true, true) if !has_expired => Some(ListedEntry::Value(record)),
                    _ => None,
                };
            }
            let proven = self
                .config
                .is_chosen(record.ballot, holders, self.mutations)
                || self.mutations.has(Mutation::ScanUnproven);
            match (proven && is_final, is_value) {
                (true, true) if has_expired => None,
                (true, true) => Some(ListedEntry::Value(record)),
                (true, false) => None,
                (false, _) => Some(ListedEntry::Ask(Locator::of(&record))),
            }
        });
        Listed {
            entries: entries.collect(),
            next,
        }
    }
    /// The newest version of each key in the pages, in ring order, with its holders.
    fn newest(&self, pages: Vec<HeldPage>) -> Vec<(Record, Votes)> {
        let is_one = pages.len() == 1;
        let mut held: Vec<(Record, Votes)> = Vec::new();
        for page in pages {
            held.extend(page.records.into_iter().map(|it| (it, page.holders)));
        }
        if is_one {
            return held;
        }
        // Two keys share a digest if a record has a wrong one.
        let by_digest = self.mutations.has(Mutation::ScanByDigest);
        let name = |record: &Record| (!by_digest).then(|| record.key.clone());
        // The pages are sorted runs, which this sort exploits.
        held.sort_by(|(a, _), (b, _)| (KeyId::of(a), &a.key).cmp(&(KeyId::of(b), &b.key)));
        let mut keys: Vec<(Record, Votes)> = Vec::with_capacity(held.len());
        for (record, holders) in held {
            match keys.last_mut() {
                Some((last, all))
                    if KeyId::of(last) == KeyId::of(&record) && name(last) == name(&record) =>
                {
                    if record.ballot > last.ballot {
                        (*last, *all) = (record, holders);
                    } else if record.ballot == last.ballot {
                        *all = all.union(holders);
                    }
                }
                _ => keys.push((record, holders)),
            }
        }
        keys
    }
}

/// Requests a page from a replica, or asks whether it holds the known one.
pub(crate) fn pull(
    config: &Config,
    tag: Tag,
    after: Option<KeyId>,
    known: Option<KnownPage>,
) -> Envelope {
    Envelope {
        partition: config.partition,
        epoch: config.epoch,
        message: Message::Pull {
            tag,
            after,
            since: None,
            known,
        },
    }
}

impl HeldPage {
    /// The sum for the others to compare; `None` if a sum would not suffice.
    fn known(&self) -> Option<KnownPage> {
        let mut held = PageSum::default();
        let mut records = self.records.iter();
        let all = records.all(|it| held.add(KeyId::of(it), it.ballot));
        all.then_some(KnownPage {
            next: self.next,
            count: held.count,
            sum: held.sum,
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use torc_record::{Digest, DigestKey, Epoch, Key, NamespaceId, NodeSlot};
    use torc_ring::Partition;

    use super::*;
    use crate::{OpId, SameRound};

    const TAG: Tag = Tag {
        op: OpId(3),
        round: HybridTime(1),
    };
    const NOW: HybridTime = HybridTime(0);
    const SAME: ScanAnswer = ScanAnswer::Same {
        collected: Ballot {
            epoch: Epoch(0),
            time: HybridTime(0),
            slot: NodeSlot(0),
        },
        collecting: Ballot {
            epoch: Epoch(0),
            time: HybridTime(0),
            slot: NodeSlot(0),
        },
    };

    fn config() -> Arc<Config> {
        let nodes: Vec<_> = (1..=3).map(NodeId).collect();
        Config::founded(Partition(0), Epoch(4), &nodes).into()
    }

    fn records(times: &[u64]) -> Vec<Record> {
        let record = |(number, time): (usize, &u64)| {
            let key = Key::new(format!("key {number}")).unwrap();
            Record {
                namespace: NamespaceId::DEFAULT,
                digest: Digest::of(&DigestKey([1; 32]), NamespaceId::DEFAULT, key.as_bytes()),
                key,
                ballot: Ballot {
                    epoch: Epoch(4),
                    time: HybridTime(*time),
                    slot: NodeSlot(1),
                },
                origin: None,
                state: State::Value {
                    value: Bytes::new(),
                    expires_at_ms: None,
                },
            }
        };
        let mut records: Vec<_> = times.iter().enumerate().map(record).collect();
        records.sort_by_key(|record| record.digest);
        records
    }

    fn page(times: &[u64]) -> ScanAnswer {
        ScanAnswer::Page(ScanPage {
            records: records(times),
            next: None,
            collected: Ballot::default(),
            collecting: Ballot::default(),
        })
    }

    fn asked(asks: impl Iterator<Item = (NodeId, Envelope)>) -> Vec<(u64, Option<u64>)> {
        let known = asks.map(|(to, envelope)| match envelope.message {
            Message::Pull { known, .. } => (to.0, known.map(|known| known.count)),
            other => panic!("{other:?}"),
        });
        known.collect()
    }

    fn values(step: ScanStep) -> Vec<Record> {
        let ScanStep::Listed(listed) = step else {
            panic!("{step:?}");
        };
        let values = listed.entries.into_iter().map(|entry| match entry {
            ListedEntry::Value(record) => record,
            ListedEntry::Ask(at) => panic!("{at:?}"),
        });
        values.collect()
    }

    #[test]
    fn a_page_that_another_replica_holds_too_is_sent_by_nobody() {
        let none = Mutations::NONE;
        let mut round = ScanRound::new(config(), Some(NodeId(2)), TAG, None, none);
        assert_eq!(asked(round.asks()), [(2, None)]);
        let step = round.on_answer(NodeId(2), page(&[1, 2, 3]), NOW, |_| Some(false));
        assert!(matches!(step, ScanStep::Ask), "{step:?}");
        assert_eq!(asked(round.asks()), [(1, Some(3)), (3, Some(3))]);
        let step = round.on_answer(NodeId(3), SAME, NOW, |_| Some(false));
        assert_eq!(values(step), records(&[1, 2, 3]));
    }

    #[test]
    fn a_replica_that_differs_sends_its_page_and_the_newest_is_asked_for() {
        let none = Mutations::NONE;
        let mut round = ScanRound::new(config(), Some(NodeId(2)), TAG, None, none);
        drop(round.on_answer(NodeId(2), page(&[1, 2, 3]), NOW, |_| Some(false)));
        let step = round.on_answer(NodeId(3), page(&[1, 9, 3]), NOW, |_| Some(false));
        let ScanStep::Listed(listed) = step else {
            panic!("{step:?}");
        };
        let ask = |entry: &&ListedEntry| matches!(entry, ListedEntry::Ask(_));
        assert_eq!(listed.entries.iter().filter(ask).count(), 1);
        assert_eq!(listed.entries.len(), 3);
    }

    /// A page of three records, written in this epoch, of which a filter dropped the middle one.
    fn filtered(left_out: Epoch) -> (Record, ScanRound) {
        let all = records(&[1, 2, 3]);
        let page = FilteredPage {
            records: vec![all[0].clone()],
            known: KnownPage {
                next: Some(KeyId::of(&all[2])),
                count: 3,
                sum: 9,
            },
            last: Some(Locator::of(&all[2])),
            left_out: BTreeSet::from([left_out]),
        };
        let round = ScanRound::of_filtered(config(), TAG, None, page, Mutations::NONE);
        assert_eq!(asked(round.asks()), [1, 2, 3].map(|node| (node, Some(3))));
        (all[0].clone(), round)
    }

    #[test]
    fn a_filtered_page_that_a_quorum_holds_proves_what_it_kept_and_goes_on_behind_what_it_dropped()
    {
        let (kept, mut round) = filtered(Epoch(4));
        let step = round.on_answer(NodeId(1), SAME, NOW, |_| Some(false));
        assert!(matches!(step, ScanStep::Wait), "{step:?}");
        let step = round.on_answer(NodeId(3), page(&[1]), NOW, |_| Some(false));
        assert!(matches!(step, ScanStep::Wait), "{step:?}");
        let step = round.on_answer(NodeId(2), SAME, NOW, |_| Some(false));
        let ScanStep::Listed(listed) = step else {
            panic!("{step:?}");
        };
        assert_eq!(listed.entries, [ListedEntry::Value(kept)]);
        let last = records(&[1, 2, 3]).pop();
        assert_eq!(listed.next, last.as_ref().map(Locator::of));
    }

    #[test]
    fn a_filtered_page_that_differs_or_drops_what_may_be_unchosen_is_not_used() {
        let (_, mut round) = filtered(Epoch(4));
        drop(round.on_answer(NodeId(1), page(&[1]), NOW, |_| Some(false)));
        let step = round.on_answer(NodeId(2), page(&[1]), NOW, |_| Some(false));
        assert!(matches!(step, ScanStep::Differs), "{step:?}");
        // A version of an epoch in which the partition moved may or may not be chosen.
        let (_, mut round) = filtered(Epoch(3));
        let settled = torc_ring::replicas::Settled::unknown_before(Epoch(4));
        round.config = Arc::new(Config {
            settled,
            ..(*config()).clone()
        });
        drop(round.on_answer(NodeId(1), SAME, NOW, |_| Some(false)));
        let step = round.on_answer(NodeId(2), SAME, NOW, |_| Some(false));
        assert!(matches!(step, ScanStep::Differs), "{step:?}");
    }

    #[test]
    fn nobody_holds_the_same_as_a_page_that_was_not_asked_about() {
        let mut round = ScanRound::new(config(), None, TAG, None, Mutations::NONE);
        assert_eq!(asked(round.asks()), [(1, None), (2, None), (3, None)]);
        let step = round.on_answer(NodeId(1), SAME, NOW, |_| Some(false));
        assert!(matches!(step, ScanStep::Wait), "{step:?}");
        drop(round.on_answer(NodeId(2), page(&[1]), NOW, |_| Some(false)));
        let step = round.on_answer(NodeId(3), SAME, NOW, |_| Some(false));
        assert!(matches!(step, ScanStep::Wait), "{step:?}");
        let step = round.on_answer(NodeId(3), page(&[1]), NOW, |_| Some(false));
        assert_eq!(values(step), records(&[1]));
    }

    #[test]
    fn a_quorum_holds_the_same_or_it_does_not() {
        let known = KnownPage {
            next: None,
            count: 2,
            sum: 7,
        };
        let begun = || SameRound::new(config(), TAG, known, Mutations::NONE);
        let mut round = begun();
        assert_eq!(asked(round.asks()).len(), 3);
        assert_eq!(round.on_answer(NodeId(1), &SAME), None);
        assert_eq!(round.on_answer(NodeId(1), &SAME), None, "it counts once");
        assert_eq!(round.on_answer(NodeId(3), &SAME), Some(true));
        let mut round = begun();
        assert_eq!(round.on_answer(NodeId(2), &SAME), None);
        assert_eq!(round.on_answer(NodeId(1), &page(&[1])), None, "another may");
        assert_eq!(round.on_answer(NodeId(3), &page(&[1])), Some(false));
    }
}
