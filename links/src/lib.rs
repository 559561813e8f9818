//! Messages between replicas, over one long-lived stream per peer and direction.
//!
//! * [`Links`]: [`Links::send_all`] never waits. Each peer has a bounded queue and a
//!   task that opens the stream, and opens it again when it breaks. All waiting messages
//!   go as one batch, without a timer: the busier the link, the larger the batches.
//!   [`Links::leave`] ends all streams before this node stops, without losing a message.
//! * [`LinkService`]: the receiving end, behind `Replica.Link`. It authenticates the
//!   sender and passes batches to the [`Inbox`]; while that is busy, the stream waits
//!   (HTTP/2 flow control), so a slow node fills its peers' queues, not its own memory.
//! * [`Directory`]: this node and the other members; links ask it periodically, so
//!   they follow a peer that moves.
//!
//! Invariants: the messages of a stream arrive in order and at most once. A message may
//! be lost if its queue is full, its peer is unreachable, or the stream breaks.
//! `torc_link_dropped` counts every loss except those of a breaking stream, which are
//! unknown.
//!
//! Absent on purpose: answers and retries, which are up to the state machines, and messages to
//! oneself.
//!
//! Tests cut links with a file, see [`Faults`].

mod connect;
mod directory;
mod faults;
mod metrics;
mod parcel;
mod queue;
mod sender;
mod service;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use torc_replication::OutOfReach;
use torc_ring::{NodeId, Partitions};
use torc_tls::Connector;

pub use directory::{Contact, Directory, Whoami};
pub use faults::Faults;
pub use metrics::{DropReason, LinkMetrics};
pub use parcel::Parcel;
pub use service::{Inbox, LinkService, LinkStream};

use queue::Queue;

/// A peer whose answer is overdue by this time is silent. Longer than an fdatasync under load,
/// shorter than people notice.
const SILENCE: Duration = Duration::from_millis(250);

/// A peer that is unreachable, or whose answer is overdue, for this time is lost. Longer than
/// two nodes that start together take to connect.
const LOSS: Duration = Duration::from_secs(1);

/// A peer that is lost for this time is gone for now. Longer than a process, a disk or a
/// restart usually stalls; scans and advice depend on it. A peer that does not answer and has not been asked for this
/// time is no longer lost: it is asked again.
const GONE: Duration = Duration::from_secs(5);

/// Time for peers to end their streams when this node stops, and again for this node to end its own.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A stream of this age ends once the peer has taken what was sent, and another begins: the node's
/// certificate counts on its connection for an hour at most.
const STREAM_AGE: Duration = Duration::from_secs(3_000);

/// Limits and settings of a node's links.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Partitions of the cluster: messages about others are dropped.
    pub partitions: Partitions,
    /// Most messages that wait for one peer.
    pub queue_envelopes: usize,
    /// Approximate limit of waiting messages per peer, bytes; one message always fits.
    pub queue_bytes: usize,
    /// Age at which a stream is replaced by another one on a new connection.
    pub stream_age: Duration,
    /// The file of [`Faults`], for tests.
    pub faults_file: Option<PathBuf>,
    /// How to connect to peers; `None`: without TLS.
    pub tls: Option<Connector>,
    /// Runtimes for the streams to peers, assigned in turn; if empty, the runtime of
    /// [`Links::new`]. Best are the runtimes that send messages, because then a message needs no
    /// wake-up.
    pub runtimes: Vec<Handle>,
}

impl LinkOptions {
    /// Defaults for a cluster with this number of partitions: 32,768 messages or 32 MiB per peer.
    #[must_use]
    pub const fn new(partitions: Partitions) -> Self {
        Self {
            partitions,
            queue_envelopes: 32_768,
            queue_bytes: 32 << 20,
            stream_age: STREAM_AGE,
            faults_file: None,
            tls: None,
            runtimes: Vec::new(),
        }
    }
}

/// The links of one node. Cloning shares them; they end with their cancellation.
#[derive(Clone)]
pub struct Links {
    inner: Arc<Inner>,
}

/// State that senders and the service share.
struct Inner {
    directory: Arc<dyn Directory>,
    options: LinkOptions,
    metrics: LinkMetrics,
    faults: Faults,
    cancel: CancellationToken,
    /// This node stops: peers are to end their streams.
    leaving: CancellationToken,
    /// This node's streams end once their queues are empty.
    flushing: CancellationToken,
    /// Tasks of the streams of peers, and of those to peers.
    inbound: TaskTracker,
    outbound: TaskTracker,
    runtimes: Vec<Handle>,
    queues: RwLock<HashMap<NodeId, Arc<Queue>>>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Links(..)")
    }
}

impl Links {
    /// Links that connect when first used or [opened](Self::open). Their tasks run until `cancel`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new(
        directory: Arc<dyn Directory>,
        options: LinkOptions,
        metrics: LinkMetrics,
        cancel: CancellationToken,
    ) -> Self {
        let mut runtimes = options.runtimes.clone();
        if runtimes.is_empty() {
            runtimes.push(Handle::current());
        }
        let faults = Faults::default();
        if let Some(file) = options.faults_file.clone() {
            let cancel = cancel.clone();
            let watching = faults.clone().watch(file);
            tokio::spawn(async move { cancel.run_until_cancelled_owned(watching).await });
        }
        Self {
            inner: Arc::new(Inner {
                directory,
                options,
                metrics,
                faults,
                cancel,
                leaving: CancellationToken::new(),
                flushing: CancellationToken::new(),
                inbound: TaskTracker::new(),
                outbound: TaskTracker::new(),
                runtimes,
                queues: RwLock::default(),
            }),
        }
    }

    /// Sends messages in order, or drops and counts them. Never waits; callable from anywhere.
    /// One call costs one lock and one wake-up.
    pub fn send_all(
        &self,
        to: NodeId,
        parcels: impl IntoIterator<Item = Parcel, IntoIter: ExactSizeIterator>,
    ) {
        let parcels = parcels.into_iter();
        let metrics = &self.inner.metrics;
        if let Some(queue) = self.open_queue(to) {
            queue.push(parcels, self.inner.faults.delay_to(to), metrics);
        } else {
            metrics.dropped(DropReason::NoAddress, parcels.len());
        }
    }

    /// Starts a link to a peer if there is none yet.
    pub fn open(&self, to: NodeId) {
        self.open_queue(to);
    }

    /// Whether the last attempt to reach a peer failed. Starts a link to a new peer.
    #[must_use]
    pub fn is_unreachable(&self, to: NodeId) -> bool {
        self.open_queue(to)
            .is_none_or(|queue| queue.is_unreachable())
    }

    /// Whether a peer's answer is overdue by a quarter of a second and nothing else has
    /// come from it: it stalls, or messages to it get lost.
    #[must_use]
    pub fn is_silent(&self, to: NodeId) -> bool {
        let known = self.inner.queues.read().get(&to).cloned();
        known.is_some_and(|queue| queue.is_silent_for(SILENCE))
    }

    /// The peers that are unreachable or whose answers are overdue, by duration. A peer that has
    /// announced its stop counts as lost at once, so coordinators send it nothing whose answer they need.
    /// O(peers).
    #[must_use]
    pub fn out_of_reach(&self) -> OutOfReach {
        OutOfReach {
            silent: self.peers(|queue| queue.is_unreachable() || queue.is_silent_for(SILENCE)),
            lost: self.peers(|queue| queue.is_leaving() || queue.is_out_for(LOSS)),
        }
    }

    /// The peers that have been lost for longer than a restart usually takes. O(peers).
    #[must_use]
    pub fn gone(&self) -> BTreeSet<NodeId> {
        self.peers(|queue| queue.is_out_for(GONE))
    }

    fn peers(&self, is_it: impl Fn(&Queue) -> bool) -> BTreeSet<NodeId> {
        let queues = self.inner.queues.read();
        let them = queues.iter().filter(|(_, queue)| is_it(queue));
        them.map(|(node, _)| *node).collect()
    }

    /// The coordinators know that these peers are out of reach.
    pub fn noticed(&self, out: &OutOfReach) {
        let queues = self.inner.queues.read();
        for queue in out.lost.iter().filter_map(|node| queues.get(node)) {
            queue.notice();
        }
    }

    /// Leaves the peers before this node stops, so that no message is lost. The peers learn of the stop,
    /// send what they have queued, and end their streams. When `answered` resolves, this node has answered
    /// all of it; then it sends what it has queued and ends its own streams. Takes a few seconds at most
    /// if peers do not answer.
    pub async fn leave(&self, answered: impl Future<Output = ()>) {
        let inner = &self.inner;
        inner.leaving.cancel();
        inner.inbound.close();
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, inner.inbound.wait()).await;
        answered.await;
        inner.flushing.cancel();
        inner.outbound.close();
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, inner.outbound.wait()).await;
    }

    /// The receiving end, which passes messages to `inbox`.
    #[must_use]
    pub fn service(&self, inbox: Arc<dyn Inbox>) -> LinkService {
        LinkService::new(Arc::clone(&self.inner), inbox)
    }

    /// The queue of a peer; for a new peer another one, with a task that empties it.
    fn open_queue(&self, to: NodeId) -> Option<Arc<Queue>> {
        let known = self.inner.queues.read().get(&to).cloned();
        known.or_else(|| self.add_queue(to))
    }

    fn add_queue(&self, to: NodeId) -> Option<Arc<Queue>> {
        let is_over = self.inner.cancel.is_cancelled() || self.inner.flushing.is_cancelled();
        if is_over || self.inner.directory.member(to).is_none() {
            return None;
        }
        let mut queues = self.inner.queues.write();
        if let Some(known) = queues.get(&to) {
            return Some(Arc::clone(known));
        }
        let queue = Arc::new(Queue::new(&self.inner.options));
        queues.insert(to, Arc::clone(&queue));
        let sending = sender::run(Arc::clone(&self.inner), to, Arc::clone(&queue));
        let runtimes = &self.inner.runtimes;
        // There is at least one runtime.
        let runtime = &runtimes[queues.len() % runtimes.len()];
        self.inner.outbound.spawn_on(sending, runtime);
        Some(queue)
    }
}
