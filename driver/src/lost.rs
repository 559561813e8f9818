//! Recovers the content of damaged places from the other replicas: see [`LostStretch`] for
//! the rule, `store/src/repair.rs` for the store's part.
//!
//! Until a place is vouched for, its content is unknown: this replica abstains for every key
//! that leads there. No place is vouched for while a listed key is in doubt here.
//!
//! Not repaired: records without another copy, and a stretch in which so many replicas have
//! lost records that too few are left to list it. `kvctl replace-node` solves the latter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use torc_record::{Ballot, Digest, HybridTime, Key, Layer, to_millis};
use torc_replication::{
    Config, KeyId, Locator, LostStretch, Request, Rules, ScanAnswer, Sends, Stretch,
};
use torc_ring::{NodeId, Partition};
use torc_store::{ScanLimits, StoreError, Unreadable};

use super::listing::Forgotten;
use super::{Registers, Wanted, disk};
use crate::mutants::broken_rules;
use torc_telemetry::clock::unix_ms;

/// Writes under way are younger than this, so their ballots are above the raised floors.
const UNDER_WAY: Duration = Duration::from_secs(10);
/// Time for the others to raise a floor or send a page before they are asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// An inquiry without an answer for this long is abandoned until the next inquiry.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Keys reconciled at a time.
const RECONCILES_AT_ONCE: usize = 64;
const RECONCILE_TIME: Duration = Duration::from_secs(5);
/// Time for a reconciled key to be stored here.
const STORE_TIME: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Inquiries that wait until the others have raised their floors.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<BTreeMap<Partition, (Ballot, mpsc::UnboundedSender<NodeId>)>>);

impl Floors {
    /// Each partition has one inquiry at a time.
    fn wait(&self, partition: Partition, upto: Ballot) -> mpsc::UnboundedReceiver<NodeId> {
        let (sender, raised) = mpsc::unbounded_channel();
        self.0.lock().insert(partition, (upto, sender));
        raised
    }

    fn forget(&self, partition: Partition) {
        self.0.lock().remove(&partition);
    }

    /// A replica has raised its floor.
    pub(super) fn take(&self, partition: Partition, from: NodeId, upto: Ballot) {
        let waiting = self.0.lock();
        if let Some((_, sender)) = waiting.get(&partition).filter(|(at, _)| *at == upto) {
            // The receiver is gone if the inquiry had enough answers.
            let _ = sender.send(from);
        }
    }
}

/// Why places have not been recovered. They stay unknown, and the next inquiry asks for them again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsupplied {
    /// A quorum of the others, without this replica, is needed.
    #[error(
        "too few other replicas have listed their records of it: {raising:?} have not raised their \
         floors or cannot summarise their copies, {listing:?} have not listed theirs"
    )]
    TooFew {
        /// Nodes that did not answer the first question.
        raising: Vec<NodeId>,
        /// Nodes that did not answer the second question.
        listing: Vec<NodeId>,
    },
    /// During a move it is unclear which of the others count.
    #[error("the partition is moving")]
    Moving,
    /// Keys that other replicas hold there could not be reconciled.
    #[error("could not reconcile {keys} keys that may have been in it")]
    InDoubt {
        /// Number of such keys.
        keys: usize,
    },
    /// This replica's own copy cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopped,
}

/// Keys of a stretch, each with its highest known ballot.
type Versions = BTreeMap<(KeyId, Key), Ballot>;

/// The part of the partition that contains all these places.
fn stretch_of(layer: Layer, places: &[Unreadable]) -> Stretch {
    let after: Option<Vec<Digest>> = places.iter().map(|place| place.after).collect();
    let before: Option<Vec<Digest>> = places.iter().map(|place| place.before).collect();
    Stretch {
        layer,
        after: after.and_then(|known| known.into_iter().min()),
        before: before.and_then(|known| known.into_iter().max()),
    }
}

const fn locator(id: KeyId, key: Key) -> Locator {
    Locator {
        namespace: id.namespace,
        digest: id.digest,
        key,
    }
}

impl Registers {
    /// Recovers the content of these places of a partition from the other replicas, and vouches for
    /// the places.
    pub(super) async fn supply(
        self: &Arc<Self>,
        partition: Partition,
        places: &[Unreadable],
    ) -> Result<(), Unsupplied> {
        let config = self.config(partition).ok_or(Unsupplied::Moving)?;
        let layer = self.partitions.layer(partition);
        let stretch = stretch_of(layer.ok_or(Unsupplied::Moving)?, places);
        let listed = self.ask_others(&config, places, stretch).await?;
        // The lost record may have replaced an older version that this replica still holds.
        let held = self.versions_held(partition, stretch).await?;
        let mut keys: Vec<_> = listed.keys().chain(held.keys()).cloned().collect();
        keys.extend(places.iter().filter_map(|place| {
            let key = place.key.as_ref()?;
            Some((key.id(), key.key.clone()))
        }));
        keys.sort_unstable();
        keys.dedup();
        let keys = keys.into_iter().map(|(id, key)| locator(id, key));
        let doubtful = self.in_doubt(partition, keys.collect()).await?;
        self.reconcile_all(partition, &doubtful).await;
        self.until_known(partition, stretch, doubtful, &listed)
            .await?;
        if self.config(partition).map(|now| now.epoch) != Some(config.epoch) {
            return Err(Unsupplied::Moving);
        }
        self.store.mark_repaired(places);
        Ok(())
    }

    /// The records that the others hold in a stretch; an error if too few of them answer.
    async fn ask_others(
        &self,
        config: &Arc<Config>,
        places: &[Unreadable],
        stretch: Stretch,
    ) -> Result<Versions, Unsupplied> {
        let partition = config.partition;
        let highest = places.iter().map(|place| place.highest).max();
        let highest = highest.unwrap_or_default();
        let recent = unix_ms().saturating_sub(to_millis(UNDER_WAY));
        let recent = HybridTime::from_unix_ms(recent);
        let (tag, mut pages) = self.listings.wait();
        let _forgotten = Forgotten(&self.listings, tag);
        let lost = LostStretch::new(
            Arc::clone(config),
            self.me.node,
            (highest, recent),
            tag,
            stretch,
            broken_rules(),
        );
        let mut lost = lost.ok_or(Unsupplied::Moving)?;
        let mut raised = self.floors.wait(partition, lost.upto());
        let mut heard = Instant::now();
        let mut asks = lost.asks();
        while !lost.is_complete() && heard.elapsed() < ANSWER_TIMEOUT {
            self.send_all(partition, asks);
            asks = tokio::select! {
                Some((from, ScanAnswer::Page(page))) = pages.recv() => {
                    heard = Instant::now();
                    lost.on_page(from, page)
                }
                Some(from) = raised.recv() => {
                    heard = Instant::now();
                    lost.on_floor(from, lost.upto())
                }
                () = tokio::time::sleep(ASK_AGAIN) => lost.asks(),
            };
        }
        self.floors.forget(partition);
        if !lost.is_complete() {
            let (listing, raising): (Vec<_>, Vec<_>) =
                lost.missing().partition(|(_, has_raised)| *has_raised);
            let nodes = |missing: Vec<(NodeId, bool)>| missing.into_iter().map(|it| it.0).collect();
            return Err(Unsupplied::TooFew {
                raising: nodes(raising),
                listing: nodes(listing),
            });
        }
        let listed = lost.into_listed().into_iter();
        let listed = listed.map(|(at, highest)| ((at.id(), at.key), highest));
        Ok(listed.collect())
    }

    fn send_all(&self, partition: Partition, sends: Sends) {
        if sends.is_empty() {
            return;
        }
        let mut turn = self.turn(partition);
        for (to, envelope) in sends {
            turn.send(to, envelope);
        }
        turn.end();
    }

    /// The records that this replica can read in a stretch.
    async fn versions_held(
        self: &Arc<Self>,
        partition: Partition,
        stretch: Stretch,
    ) -> Result<Versions, Unsupplied> {
        let store = self.store.clone();
        let read = tokio::task::spawn_blocking(move || -> Result<Versions, Unsupplied> {
            let mut held = Versions::new();
            let mut after: Option<Locator> =
                stretch.start().and_then(|id| disk::cursor_after(id).ok());
            loop {
                let limits = ScanLimits::default();
                let read = store.scan_readable(partition, after.as_ref(), limits);
                let page = read?.page;
                for record in page.records {
                    if stretch.ends_before(record.digest) {
                        return Ok(held);
                    }
                    // A key may share the buffer of its value, which is not kept.
                    let key = record.key.detached();
                    held.insert((KeyId::of(&record), key), record.ballot);
                }
                after = page.next;
                if after.is_none() {
                    return Ok(held);
                }
            }
        });
        read.await.map_err(|_| Unsupplied::Stopped)?
    }

    /// The keys whose content here is unknown. Leaves out records stored under the digest of
    /// another key: they belong to no key.
    async fn in_doubt(
        self: &Arc<Self>,
        partition: Partition,
        keys: Vec<Locator>,
    ) -> Result<Vec<Locator>, Unsupplied> {
        let known = self.keys.load_full();
        if known.digest_key.is_none() {
            return Err(Unsupplied::Moving);
        }
        let registers = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let (mut doubtful, mut foreign) = (Vec::new(), 0);
            for at in keys {
                if known.is_foreign(at.borrowed()) {
                    foreign += 1;
                    continue;
                }
                match registers.store.get(at.borrowed()) {
                    Ok(_) => {}
                    Err(StoreError::Damaged { .. }) => doubtful.push(at),
                    Err(error) => return Err(error.into()),
                }
            }
            registers.note_foreign(partition, foreign);
            Ok(doubtful)
        });
        read.await.map_err(|_| Unsupplied::Stopped)?
    }

    /// Rewrites keys, or copies them here, depending on the mode of their namespaces.
    pub(super) async fn reconcile_all(self: &Arc<Self>, partition: Partition, keys: &[Locator]) {
        for keys in keys.chunks(RECONCILES_AT_ONCE) {
            let deadline = Instant::now() + RECONCILE_TIME;
            let wanted = keys.iter().filter_map(|at| {
                Some(Wanted {
                    partition,
                    at: at.clone(),
                    rules: self.rules(at.namespace)?,
                    request: Request::Reconcile { rewrite: true },
                    deadline,
                    trace: None,
                })
            });
            // The caller checks the store for the result.
            self.operate_many(wanted.collect()).await;
        }
    }

    /// Returns once this replica holds what the others hold for the doubtful keys. Waits up to
    /// `STORE_TIME` for writes that are not yet on disk.
    async fn until_known(
        self: &Arc<Self>,
        partition: Partition,
        stretch: Stretch,
        mut doubtful: Vec<Locator>,
        listed: &Versions,
    ) -> Result<(), Unsupplied> {
        let until = Instant::now() + STORE_TIME;
        loop {
            doubtful = self.in_doubt(partition, doubtful).await?;
            let held = self.versions_held(partition, stretch).await?;
            // A copied record keeps its ballot, so the store alone cannot tell that it is current.
            let is_brought = |at: &Locator| {
                let name = (at.id(), at.key.clone());
                let (held, listed) = (held.get(&name), listed.get(&name));
                let is_eventual = matches!(self.rules(at.namespace), Some(Rules::Eventual(_)));
                is_eventual && held >= listed && (listed.is_some() || held.is_none())
            };
            doubtful.retain(|at| !is_brought(at));
            if doubtful.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                let keys = doubtful.len();
                return Err(Unsupplied::InDoubt { keys });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
