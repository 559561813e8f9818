//! Pages of a partition as a quorum knows it, for scans. Asks replicas for pages, and reads the
//! keys that [`ScanRound`] marks with separate operations.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use torc_record::{HybridTime, Record, State};
use torc_replication::{
    Envelope, FilteredPage, KeyId, Listed, ListedEntry, Locator, OpId, Outcome, Request,
    ScanAnswer, ScanRound, ScanStep, Tag,
};
use torc_ring::topology::NamespaceMode;
use torc_ring::{NodeId, Partition};

use super::{Registers, Wanted};
use crate::mutants::broken_rules;

/// Time for a replica to send a page before it is asked again.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(250);
/// Interval between checks whether this node's replica acts in a configuration. It has none until
/// the adoption of a new epoch is durable.
pub(super) const ADOPTING: Duration = Duration::from_millis(2);
/// Upper bound: the interval doubles, to give busy replicas time.
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// One replica's answer.
pub(super) type Answer = (NodeId, ScanAnswer);

/// The listings that wait for pages.
#[derive(Debug)]
pub(super) struct Listings {
    /// Distinguishes this process's listings from those before a restart.
    life: HybridTime,
    last: AtomicU64,
    waiting: Mutex<HashMap<OpId, mpsc::UnboundedSender<Answer>>>,
}

impl Listings {
    /// No listings; `life` is the time at which this process began.
    pub(super) fn new(life: HybridTime) -> Self {
        Self {
            life,
            last: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    pub(super) fn wait(&self) -> (Tag, mpsc::UnboundedReceiver<Answer>) {
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

    /// Delivers an answer to its listing; returns whether there was one.
    pub(super) fn take(&self, from: NodeId, envelope: &Envelope) -> bool {
        let Some((tag, answer)) = ScanAnswer::of(&envelope.message) else {
            return false;
        };
        let waiting = self.waiting.lock();
        if let Some(sender) = waiting.get(&tag.op).filter(|_| tag.round == self.life) {
            // The receiver is gone if the listing had enough answers.
            let _ = sender.send((from, answer));
        }
        true
    }
}

/// Unregisters a listing on drop, also if it is cancelled.
pub(super) struct Forgotten<'a>(pub(super) &'a Listings, pub(super) Tag);

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

/// Values of a stretch of a partition, in ring order, and where to continue.
pub struct Found {
    /// The records.
    pub records: Vec<Record>,
    /// `None` at the end of the partition.
    pub next: Option<Locator>,
}

/// No quorum answered in time.
pub struct NoQuorum;

impl Registers {
    /// The values of a partition after a key, as many as fit a page.
    pub async fn list(
        self: &Arc<Self>,
        partition: Partition,
        after: Option<KeyId>,
        deadline: Instant,
    ) -> Result<Found, NoQuorum> {
        let mut round_timeout = ASK_AGAIN;
        // The local replica may be the one without an answer, so only the first round starts with
        // it.
        let mut first = Some(self.me.node);
        while Instant::now() < deadline {
            let Some(config) = self.config(partition) else {
                tokio::time::sleep(ADOPTING).await;
                continue;
            };
            let (tag, answers) = self.listings.wait();
            let is_first = first.is_some();
            let round = ScanRound::new(
                Arc::clone(&config),
                first.take(),
                tag,
                after,
                broken_rules(),
            );
            let listed = self.finish(partition, (tag, answers), round, round_timeout);
            if let Some(listed) = listed.await {
                return self.complete(partition, listed, deadline).await;
            }
            let gone = self.gone();
            if !is_first && !config.answering(|node| !gone.contains(&node)).1 {
                return Err(NoQuorum);
            }
            round_timeout = (2 * round_timeout).min(LONGEST_WAIT);
        }
        Err(NoQuorum)
    }

    /// The values of a filtered page; `None` if the page is not what a quorum holds, or no quorum
    /// answers at once.
    pub async fn list_filtered(
        self: &Arc<Self>,
        partition: Partition,
        after: Option<KeyId>,
        page: FilteredPage,
        deadline: Instant,
    ) -> Result<Option<Found>, NoQuorum> {
        let Some(config) = self.config(partition) else {
            return Ok(None);
        };
        let (tag, answers) = self.listings.wait();
        let round = ScanRound::of_filtered(config, tag, after, page, broken_rules());
        let listed = self.finish(partition, (tag, answers), round, ASK_AGAIN);
        match listed.await {
            Some(listed) => self.complete(partition, listed, deadline).await.map(Some),
            None => Ok(None),
        }
    }

    /// Runs a round until it has ended; `None` after `timeout`, or if a filtered page differs.
    async fn finish(
        &self,
        partition: Partition,
        (tag, mut answers): (Tag, mpsc::UnboundedReceiver<Answer>),
        mut round: ScanRound,
        timeout: Duration,
    ) -> Option<Listed> {
        let _forgotten = Forgotten(&self.listings, tag);
        let time = self.send_asks(partition, round.asks());
        let again = tokio::time::Instant::from_std(Instant::now() + timeout);
        let is_eventual =
            |record: &Record| Some(self.mode(record.namespace)? == NamespaceMode::Eventual);
        while let Ok(Some((from, answer))) = tokio::time::timeout_at(again, answers.recv()).await {
            match round.on_answer(from, answer, time, is_eventual) {
                ScanStep::Wait => {}
                ScanStep::Ask => {
                    let _time = self.send_asks(partition, round.asks());
                }
                ScanStep::Listed(listed) => return Some(listed),
                ScanStep::Differs => return None,
            }
        }
        None
    }

    /// Sends the round's requests, and returns the time by which expiry is judged.
    pub(super) fn send_asks(
        &self,
        partition: Partition,
        asks: impl Iterator<Item = (NodeId, Envelope)>,
    ) -> HybridTime {
        let mut turn = self.turn(partition);
        for (node, envelope) in asks {
            turn.send(node, envelope);
        }
        let time = HybridTime::from_unix_ms(turn.now().unix_ms);
        turn.end();
        time
    }

    /// Reads the keys for which the pages prove nothing. Leaves out records under the digest of
    /// another key.
    async fn complete(
        self: &Arc<Self>,
        partition: Partition,
        listed: Listed,
        deadline: Instant,
    ) -> Result<Found, NoQuorum> {
        let (keys, mut foreign) = (self.keys.load_full(), 0);
        let entries = listed.entries.into_iter().filter(|entry| {
            let is_foreign = keys.is_foreign(match entry {
                ListedEntry::Value(record) => record.locator(),
                ListedEntry::Ask(at) => at.borrowed(),
            });
            foreign += u64::from(is_foreign);
            !is_foreign
        });
        // Nobody can ask for a key of a namespace without rules.
        let entries = entries.filter_map(|entry| match entry {
            ListedEntry::Value(_) => Some((entry, None)),
            ListedEntry::Ask(ref at) => {
                let rules = self.rules(at.namespace)?;
                Some((entry, Some(rules)))
            }
        });
        let entries: Vec<_> = entries.collect();
        self.note_foreign(partition, foreign);
        let asked = entries.iter().filter_map(|(entry, rules)| match entry {
            ListedEntry::Value(_) => None,
            ListedEntry::Ask(at) => Some(Wanted {
                partition,
                at: at.clone(),
                rules: (*rules)?,
                request: Request::Get,
                deadline,
                trace: None,
            }),
        });
        let outcomes = self.operate_many(asked.collect()).await;
        let (mut outcomes, mut records) = (outcomes.into_iter(), Vec::new());
        for (entry, _) in entries {
            match entry {
                ListedEntry::Value(record) => records.push(record),
                ListedEntry::Ask(at) => {
                    let told = outcomes.next().and_then(Result::ok);
                    let outcome = told.unwrap_or(Outcome::Unavailable);
                    records.extend(found(at, outcome)?);
                }
            }
        }
        let next = listed.next;
        Ok(Found { records, next })
    }
}

/// The record that a get of a key found, if any.
fn found(at: Locator, outcome: Outcome) -> Result<Option<Record>, NoQuorum> {
    match outcome {
        Outcome::Found {
            value,
            version,
            expires_at_ms,
            ..
        } => Ok(Some(Record {
            namespace: at.namespace,
            digest: at.digest,
            key: at.key,
            ballot: version,
            origin: None,
            state: State::Value {
                value,
                expires_at_ms,
            },
        })),
        Outcome::Absent { .. } => Ok(None),
        _ => Err(NoQuorum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{HERE, ME, Rig, record};
    use torc_record::{Ballot, Digest, DigestKey, Epoch, ReplicaBatch};
    use torc_replication::Rules;
    use torc_replication::{Config, Message};

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
        assert_eq!(pages.try_recv().map(|page| page.0), Ok(PEER));
    }

    #[test]
    fn a_newcomers_page_is_no_listings() {
        let listings = Listings::new(HybridTime(7));
        assert!(!listings.take(PEER, &page(Tag::default())));
    }

    /// A get of such a key would accept it on all replicas.
    #[tokio::test]
    async fn a_listing_leaves_out_and_counts_records_under_the_digest_of_another_key() {
        let mut rig = Rig::start(|_| {});
        let digest_key = DigestKey([7; 32]);
        rig.know_digests(digest_key);
        let config = Config::founded(HERE, Epoch(2), &[ME]);
        rig.adopt(&Arc::new(config)).await;
        let (mut own, foreign, mut asked) =
            (record(7, vec![1]), record(8, vec![1]), record(9, vec![1]));
        own.digest = Digest::of(&digest_key, own.namespace, own.key.as_bytes());
        // Only an operation can prove that it has expired.
        asked.state = State::Value {
            value: "v".into(),
            expires_at_ms: Some(1),
        };
        let batch = ReplicaBatch {
            records: vec![own.clone(), foreign, asked.clone()],
            ..ReplicaBatch::default()
        };
        let registers = Arc::clone(&rig.registers);
        let (done, durable) = tokio::sync::oneshot::channel();
        registers.store.apply_many([(HERE, batch)], |applied| {
            assert!(applied.failed.is_empty());
            done.send(()).unwrap();
        });
        durable.await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let Ok(found) = rig.during(registers.list(HERE, None, deadline)).await else {
            panic!("the only replica answers");
        };
        assert_eq!(found.records, [own]);
        assert_eq!(registers.metrics.foreign_digests.get(), 2);
        let stored = registers.store.get(asked.locator()).unwrap();
        assert_eq!(stored, Some(asked), "nothing was settled");
    }

    #[tokio::test]
    async fn while_the_replica_adopts_an_epoch_a_listing_waits() {
        let mut rig = Rig::start(|_| {});
        let config = Config::founded(HERE, Epoch(1), &[ME]);
        rig.adopt(&Arc::new(config.clone())).await;
        let registers = Arc::clone(&rig.registers);
        let deadline = Instant::now() + Duration::from_secs(60);
        let key = record(7, Vec::new());
        let put = registers.operate(Wanted {
            partition: HERE,
            at: Locator::of(&key),
            rules: Rules::Linearizable,
            request: Request::Put {
                value: "v".into(),
                expires_at_ms: None,
                condition: None,
            },
            deadline,
            trace: None,
        });
        let put = rig.during(put).await;
        assert!(matches!(put, Outcome::Written { .. }), "{put:?}");

        // The replica waits until its batch is durable, which the rig has not reported yet.
        registers.configure(&Arc::new(config.renew(Epoch(2), false).unwrap()));
        assert!(registers.config(HERE).is_none());
        let mut listing = std::pin::pin!(registers.list(HERE, None, deadline));
        assert!(futures::poll!(&mut listing).is_pending());
        let Ok(found) = rig.during(listing).await else {
            panic!("it waited for the configuration");
        };
        let keys: Vec<_> = found.records.into_iter().map(|it| it.key).collect();
        assert_eq!(keys, [key.key]);
        assert!(registers.listings.waiting.lock().is_empty());
    }
}
