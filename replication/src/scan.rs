//! What a quorum holds of a stretch of a partition, for scans.
//!
//! Every replica that reads is asked for the same page; with a quorum of answers each key up
//! to where the shortest of them ends is known. A version that is proven chosen is taken as
//! it is (R5); any other key is to be read by an operation of its own, and so is a value that
//! has expired, because only that makes its absence last. So a scan is linearizable per key,
//! and no snapshot. Of a key of an `eventual` namespace the newest version is taken, unless it
//! has expired.
//!
//! Invariant: a page counts only for the round that asked for it. One that was asked for earlier
//! may lack what was written since. The round's epoch is the page's: replicas answer in the
//! epoch in which they were asked, or not at all (R1).

use std::collections::BTreeMap;
use std::sync::Arc;

use torc_record::{Ballot, HybridTime, Key, Record, State};
use torc_ring::NodeId;

use crate::{Config, Envelope, KeyId, Locator, Message, Mutation, Mutations, Tag, Votes};

/// One round of asking for a page.
#[derive(Debug)]
pub struct ScanRound {
    config: Arc<Config>,
    mutations: Mutations,
    tag: Tag,
    after: Option<KeyId>,
    pages: Vec<(usize, ScanPage)>,
    votes: Votes,
}

/// One replica's answer.
#[derive(Debug, Clone)]
pub struct ScanPage {
    /// Its entries in ring order, tombstones included.
    pub records: Vec<Record>,
    /// Where its next page begins; none at the end of the partition.
    pub next: Option<KeyId>,
    /// Its replica's collection watermark.
    pub collected: Ballot,
    /// The collection its replica begun last.
    pub collecting: Ballot,
}

/// What the pages of a quorum say together.
#[derive(Debug, Default)]
pub struct Listed {
    /// Values, in ring order, and keys that must be read by an operation of their own.
    pub entries: Vec<ListedEntry>,
    /// After which key to go on; none at the end of the partition.
    pub next: Option<Locator>,
}

/// A key that a scan met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedEntry {
    /// This value may be returned.
    Value(Record),
    /// What the key holds only a get can tell.
    Ask(Locator),
}

impl ScanRound {
    /// A round in a partition's present configuration; nothing was asked yet.
    #[must_use]
    pub const fn new(
        config: Arc<Config>,
        tag: Tag,
        after: Option<KeyId>,
        mutations: Mutations,
    ) -> Self {
        Self {
            config,
            mutations,
            tag,
            after,
            pages: Vec::new(),
            votes: Votes::NONE,
        }
    }

    /// One message for each replica that reads.
    pub fn asks(&self) -> impl Iterator<Item = (NodeId, Envelope)> + '_ {
        let readers = self.config.readers().without(self.config.excluded);
        self.config.nodes(readers).map(|node| {
            let envelope = Envelope {
                partition: self.config.partition,
                epoch: self.config.epoch,
                message: Message::Pull {
                    tag: self.tag,
                    after: self.after,
                    since: None,
                },
            };
            (node, envelope)
        })
    }

    /// Takes a page that carries this round's tag; what it says with those before, once they
    /// are a quorum. `is_eventual` tells the mode of a namespace; none if it is not known here,
    /// so that nobody can ask for its keys.
    pub fn on_page(
        &mut self,
        from: NodeId,
        page: ScanPage,
        time: HybridTime,
        is_eventual: impl Fn(&Record) -> Option<bool>,
    ) -> Option<Listed> {
        let index = self.config.index(from)?;
        if self.votes.contains(index) {
            return None;
        }
        self.votes.insert(index);
        self.pages.push((index, page));
        let enough = self.config.may_read(self.votes, self.mutations)
            || self.mutations.has(Mutation::ScanOnePage);
        enough.then(|| self.merge(time, is_eventual))
    }

    fn merge(&mut self, time: HybridTime, is_eventual: impl Fn(&Record) -> Option<bool>) -> Listed {
        let pages = std::mem::take(&mut self.pages);
        let ends = pages.iter().filter_map(|(_, page)| page.next);
        let next = if self.mutations.has(Mutation::ScanBeyondShortest) {
            ends.max()
        } else {
            ends.min()
        };
        let collecting = pages.iter().map(|(_, page)| page.collecting.time).max();
        let time = time.max(collecting.unwrap_or_default());
        let collected: Vec<_> = pages
            .iter()
            .map(|(index, page)| (*index, page.collected))
            .collect();
        // Two keys may share a digest, if a record has a wrong one.
        let by_digest = self.mutations.has(Mutation::ScanByDigest);
        let name = |record: &Record| (!by_digest).then(|| record.key.clone());
        let mut keys: BTreeMap<(KeyId, Option<Key>), (Record, Votes)> = BTreeMap::new();
        for (index, page) in pages {
            for record in page.records {
                let id = KeyId::of(&record);
                if next.is_some_and(|next| id > next) {
                    continue;
                }
                let (held, holders) = keys
                    .entry((id, name(&record)))
                    .or_insert_with(|| (record.clone(), Votes::NONE));
                if record.ballot > held.ballot {
                    (*held, *holders) = (record, Votes::one(index));
                } else if record.ballot == held.ballot {
                    holders.insert(index);
                }
            }
        }
        // The page that ends first has it as its last key.
        let next = next.and_then(|next| {
            let mut last = keys.iter().rev();
            let (_, (record, _)) = last.find(|((id, _), _)| *id == next)?;
            Some(Locator::of(record))
        });
        let entries = keys.into_values().filter_map(|(record, holders)| {
            let expires_at_ms = record.expires_at_ms();
            let has_expired = expires_at_ms.is_some_and(|at| at <= time.unix_ms());
            let is_value = matches!(record.state, State::Value { .. });
            let settled = !has_expired || self.mutations.has(Mutation::ScanExpiredAsIs);
            if is_eventual(&record)? {
                // One replica may have answered before the key was deleted, and another after its
                // tombstone was collected.
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
                return match (is_value, settled && !outdated) {
                    (true, false) => Some(ListedEntry::Ask(Locator::of(&record))),
                    (true, true) if !has_expired => Some(ListedEntry::Value(record)),
                    _ => None,
                };
            }
            let proven = self
                .config
                .is_chosen(record.ballot, holders, self.mutations)
                || self.mutations.has(Mutation::ScanUnproven);
            match (proven && settled, is_value) {
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
}
