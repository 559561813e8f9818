//! Pages of a partition as a quorum holds it, for scans.
//!
//! Every replica that reads is asked for the same page; with a quorum of answers each key up to
//! where the shortest of them ends is known. A version that is proven chosen is taken as
//! it is, any other key is read by an operation of its own. So a scan is linearizable a key,
//! and no snapshot.
//!
//! Invariant: a page counts only for the listing that asked for it. One that was asked for
//! earlier may lack what was written since.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use torc_record::{Epoch, HybridTime, Record};
use torc_replication::{
    Envelope, KeyId, Locator, Message, Mutations, OpId, Outcome, Request, Tag, Votes,
};
use torc_ring::{NodeId, Partition};

use super::Registers;
use super::work::Work;

/// How long a replica has for a page before it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// One replica's page.
#[derive(Debug, Clone)]
struct Page {
    from: NodeId,
    epoch: Epoch,
    records: Vec<Record>,
    next: Option<KeyId>,
}

/// Who waits for pages.
#[derive(Debug)]
pub(super) struct Listings {
    /// Tells the pages that were asked for before a restart from those of now.
    life: HybridTime,
    last: AtomicU64,
    waiting: Mutex<HashMap<OpId, mpsc::UnboundedSender<Page>>>,
}

impl Listings {
    /// None yet, of a node that began at this moment.
    pub(super) fn new(life: HybridTime) -> Self {
        Self {
            life,
            last: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    fn wait(&self) -> (Tag, mpsc::UnboundedReceiver<Page>) {
        let (sender, pages) = mpsc::unbounded_channel();
        let tag = Tag {
            op: OpId(self.last.fetch_add(1, Ordering::Relaxed) + 1),
            round: self.life,
        };
        self.waiting.lock().insert(tag.op, sender);
        (tag, pages)
    }

    fn forget(&self, tag: Tag) {
        self.waiting.lock().remove(&tag.op);
    }

    /// Hands a page to whoever asked for it; whether that was a listing.
    pub(super) fn take(&self, from: NodeId, envelope: &Envelope) -> bool {
        let Message::Page {
            tag, records, next, ..
        } = &envelope.message
        else {
            return false;
        };
        if *tag == Tag::default() {
            return false;
        }
        let waiting = self.waiting.lock();
        if let Some(sender) = waiting.get(&tag.op).filter(|_| tag.round == self.life) {
            // Whoever waited has enough.
            let _ = sender.send(Page {
                from,
                epoch: envelope.epoch,
                records: records.clone(),
                next: *next,
            });
        }
        true
    }
}

/// Nobody waits any more when this is dropped, be it in the middle.
struct Forgotten<'a>(&'a Listings, Tag);

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

/// What a quorum holds of a stretch of a partition.
pub(crate) struct Listed {
    /// In ring order, tombstones left out.
    pub(crate) records: Vec<Record>,
    /// After which key to go on; none at the partition's end.
    pub(crate) next: Option<Locator>,
}

/// No quorum answered in time.
pub(crate) struct NoQuorum;

impl Registers {
    /// The records of a partition after a key, as many as fit a page.
    pub(crate) async fn list(
        &self,
        partition: Partition,
        after: Option<KeyId>,
        deadline: Instant,
    ) -> Result<Listed, NoQuorum> {
        let (tag, mut pages) = self.listings.wait();
        let _forgotten = Forgotten(&self.listings, tag);
        let since = None;
        let pull = Message::Pull { tag, after, since };
        self.list_from(partition, &pull, &mut pages, deadline).await
    }

    async fn list_from(
        &self,
        partition: Partition,
        pull: &Message,
        pages: &mut mpsc::UnboundedReceiver<Page>,
        deadline: Instant,
    ) -> Result<Listed, NoQuorum> {
        while Instant::now() < deadline {
            let config = self.config(partition).ok_or(NoQuorum)?;
            let mut work = Work::new(self);
            for node in config.nodes(config.readers()) {
                let envelope = Envelope {
                    partition,
                    epoch: config.epoch,
                    message: pull.clone(),
                };
                work.send(node, envelope);
            }
            work.finish();
            let again = tokio::time::Instant::from_std(Instant::now() + ASK_AGAIN);
            let (mut heard, mut votes) = (Vec::new(), Votes::NONE);
            while let Ok(Some(page)) = tokio::time::timeout_at(again, pages.recv()).await {
                let member = config
                    .index(page.from)
                    .filter(|_| page.epoch == config.epoch);
                let Some(index) = member.filter(|at| !votes.contains(*at)) else {
                    continue;
                };
                votes.insert(index);
                heard.push((index, page));
                if config.may_read(votes, Mutations::NONE) {
                    return self.merge(partition, &config, heard, deadline).await;
                }
            }
        }
        Err(NoQuorum)
    }

    async fn merge(
        &self,
        partition: Partition,
        config: &torc_replication::Config,
        heard: Vec<(usize, Page)>,
        deadline: Instant,
    ) -> Result<Listed, NoQuorum> {
        let next = heard.iter().filter_map(|(_, page)| page.next).min();
        let mut keys: BTreeMap<KeyId, (Record, Votes)> = BTreeMap::new();
        for (index, page) in heard {
            for record in page.records {
                let id = KeyId::of(&record);
                if next.is_some_and(|next| id > next) {
                    continue;
                }
                let (held, holders) = keys
                    .entry(id)
                    .or_insert_with(|| (record.clone(), Votes::NONE));
                if record.ballot > held.ballot {
                    (*held, *holders) = (record, Votes::one(index));
                } else if record.ballot == held.ballot {
                    holders.insert(index);
                }
            }
        }
        // The page that ends first has it as its last key.
        let next = next.and_then(|next| keys.get(&next).map(|(record, _)| Locator::of(record)));
        let reads = keys.into_values().map(|(record, holders)| async move {
            if config.is_chosen(record.ballot, holders, Mutations::NONE) {
                return Ok(Some(record));
            }
            let outcome = self
                .operate(partition, Locator::of(&record), Request::Get, deadline)
                .await;
            found(record, outcome)
        });
        let records: Result<Vec<_>, NoQuorum> =
            futures::future::join_all(reads).await.into_iter().collect();
        let records = records?.into_iter().flatten();
        let is_value = |record: &Record| record.state != torc_record::State::Tombstone;
        Ok(Listed {
            records: records.filter(is_value).collect(),
            next,
        })
    }
}

/// The record that a get of its key found, if it did.
fn found(record: Record, outcome: Outcome) -> Result<Option<Record>, NoQuorum> {
    match outcome {
        Outcome::Found {
            value,
            version,
            expires_at_ms,
            ..
        } => Ok(Some(Record {
            ballot: version,
            origin: None,
            state: torc_record::State::Value {
                value,
                expires_at_ms,
            },
            ..record
        })),
        Outcome::Absent { .. } => Ok(None),
        _ => Err(NoQuorum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::Ballot;

    const PEER: NodeId = NodeId(2);

    fn page(tag: Tag) -> Envelope {
        Envelope {
            partition: Partition(0),
            epoch: Epoch(1),
            message: Message::Page {
                tag,
                after: None,
                records: Vec::new(),
                next: None,
                collected: Ballot::default(),
                collecting: Ballot::default(),
            },
        }
    }

    #[test]
    fn a_page_that_was_asked_for_earlier_does_not_count() {
        let listings = Listings::new(HybridTime(7));
        let (first, _gone) = listings.wait();
        let (second, mut pages) = listings.wait();
        assert!(listings.take(PEER, &page(first)));
        assert!(
            pages.try_recv().is_err(),
            "it may lack what was written since"
        );
        let before = Tag {
            round: HybridTime(6),
            ..second
        };
        assert!(listings.take(PEER, &page(before)));
        assert!(pages.try_recv().is_err(), "asked for before a restart");
        assert!(listings.take(PEER, &page(second)));
        assert_eq!(pages.try_recv().map(|page| page.from), Ok(PEER));
    }

    #[test]
    fn a_newcomers_page_is_no_listings() {
        let listings = Listings::new(HybridTime(7));
        assert!(!listings.take(PEER, &page(Tag::default())));
    }
}
