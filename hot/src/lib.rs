//! Hot keys: how often each key is accessed, here and in the cluster, over any window
//! of the last days.
//!
//! ```text
//! get, put, delete ─ tracker of the worker thread ─ cut, every few seconds ─▶ interval
//!                                                         history: memory, sled │
//!                     answer ◀─ all members' windows added up ◀─ window ◀───────┘
//! ```
//!
//! * `trackers`: counting; each gRPC worker has its own tracker, without a lock.
//! * `keeper`: the task that cuts the trackers' intervals and keeps them.
//! * `history`: past intervals, coarser with age; `series`: a key's accesses over time.
//! * `gather`: the cluster's answer; `json`: the same for HTTP.
//! * `heat`: the load of each part of the token circle.
//! * `hints`: the keys that are hot now, for hints in answers to gets.
//!
//! An access is a get (single, in a batch or in a session), a put or a delete. The node
//! that answers it counts it once: the lead of the key's partition or, for a stale get,
//! the node that had the record. Scans and transfers are not accesses.
//!
//! Invariants:
//! * Everything here is best effort: a loss affects counts, never records.
//! * All nodes of a cluster use the same seed and shape for sketches, so sketches can be added.
//! * A key is hot by its share of its own namespace; hints and most metrics cover all namespaces
//!   together.
//! * With redaction, a node does not record key bytes at all, so no answer, file or memory
//!   contains them; its answers also leave out keys that other nodes send.
//!
//! Absent on purpose: the sketches themselves (`torc-sketch`); sockets, because the caller asks the
//! other members ([`Members`]); and acting on hot keys: clients do that, after a hint in the answer.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "tests count small numbers"
    )
)]

mod gather;
mod heat;
mod hints;
mod history;
mod json;
mod keeper;
mod series;
mod trackers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};
use torc_proto::{Fault, Reason};
use torc_record::{Digest, DigestKey, NamespaceId};
use torc_sketch::Shape;
use torc_sketch::hot_keys::HotKeysOptions;
use torc_store::Scratch;

pub use gather::{Asked, Members};
pub use json::to_json;
pub use trackers::count;

use gather::ASK_TIMEOUT;
use heat::Heat;
use hints::Hints;
use history::History;
use trackers::{Cut, Delivery};

/// The longest window.
const MAX_WINDOW_MS: u64 = 24 * 3600 * 1000;
/// Queries that build windows at a time: each takes memory and CPU time.
const QUERIES: usize = 2;

/// Settings for hot keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotSettings {
    /// Whether accesses are counted.
    pub enabled: bool,
    /// Time between cuts.
    pub interval: Duration,
    /// Limit on the history in bytes, both in memory and on disk.
    pub history_bytes: u64,
    /// Keys with 1/k of the accesses to their namespace are hot.
    pub k: u32,
    /// Shape of the sketches; the same on all nodes.
    pub shape: Shape,
    /// Record digests instead of keys.
    pub redact: bool,
}

/// A node's hot keys.
#[derive(Debug)]
pub struct Hot {
    settings: HotSettings,
    /// The number of threads that count.
    workers: usize,
    /// Keeps the history.
    scratch: Scratch,
    /// Cuts for the trackers: the first makes them begin, each later one ends an interval.
    cuts: watch::Sender<Option<Cut>>,
    deliveries: mpsc::UnboundedSender<Delivery>,
    /// Taken once, by the keeper.
    inbox: Mutex<Option<mpsc::UnboundedReceiver<Delivery>>>,
    history: History,
    hints: Hints,
    heat: Heat,
    queries: Semaphore,
    stats: Counted,
}

#[derive(Debug, Default)]
struct Counted {
    accesses: AtomicU64,
    interval_bytes: AtomicU64,
    majority: AtomicU64,
}

/// Figures for the metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct HotStats {
    /// Accesses counted.
    pub accesses: u64,
    /// Bytes of the last interval.
    pub interval_bytes: u64,
    /// Bytes of the history.
    pub history_bytes: u64,
    /// Intervals in the history.
    pub history_intervals: u64,
    /// Whether one key certainly had most accesses of the last interval.
    pub majority: bool,
    /// Answers that carried the hint that their key is hot.
    pub hints: u64,
    /// Keys whose answers carry the hint now.
    pub hinted_keys: u64,
}

impl Hot {
    /// Counts nothing yet. `workers` threads run [`Hot::track`]; `scratch` keeps the history.
    #[must_use]
    pub fn new(settings: HotSettings, workers: usize, scratch: Scratch) -> Arc<Self> {
        let (deliveries, inbox) = mpsc::unbounded_channel();
        Arc::new(Self {
            settings,
            workers,
            scratch,
            cuts: watch::Sender::new(None),
            deliveries,
            inbox: Mutex::new(Some(inbox)),
            history: History::new(settings.history_bytes),
            hints: Hints::default(),
            heat: Heat::default(),
            queries: Semaphore::new(QUERIES),
            stats: Counted::default(),
        })
    }

    /// The figures at this moment.
    #[must_use]
    pub fn stats(&self) -> HotStats {
        let (history_bytes, history_intervals) = self.history.size();
        HotStats {
            accesses: self.stats.accesses.load(Ordering::Relaxed),
            interval_bytes: self.stats.interval_bytes.load(Ordering::Relaxed),
            history_bytes,
            history_intervals,
            majority: self.stats.majority.load(Ordering::Relaxed) == 1,
            hints: self.hints.given(),
            hinted_keys: self.hints.count(),
        }
    }

    /// Whether the answer to a get should carry the hint that its key is hot. Counts the hints
    /// given.
    #[inline]
    #[must_use]
    pub fn hint(&self, digest: &Digest) -> bool {
        self.hints.give(digest)
    }

    /// Thousandths of an access per second by parts of the token circle: one part per partition,
    /// but at most 4,096. Empty while nothing is counted.
    #[must_use]
    pub fn heat(&self, partitions: usize) -> Vec<u32> {
        self.heat.by_part(partitions)
    }

    /// A permit for a query, awaited for as long as another node waits for the answer.
    async fn query(&self) -> Result<SemaphorePermit<'_>, Fault> {
        let permit = tokio::time::timeout(ASK_TIMEOUT, self.queries.acquire()).await;
        // The semaphore is never closed.
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            let message = "the node is at its limit of concurrent queries of access counts, and \
                           nothing was done: retry later";
            Fault::new(Reason::Overloaded, message).retry_after(ASK_TIMEOUT)
        })
    }

    /// The counting options, once this node counts.
    fn options(&self) -> Result<HotKeysOptions, Fault> {
        if !self.settings.enabled {
            let message = "this node does not count accesses (--hot-keys false)";
            return Err(Fault::new(Reason::Refused, message));
        }
        let begun = self.cuts.borrow().as_ref().map(|cut| cut.options);
        let begun = begun.filter(|_| self.history.has_begun());
        begun.ok_or_else(|| {
            let message = "the node has not started to count accesses yet: retry";
            Fault::new(Reason::NotServing, message).retry_after(Duration::from_millis(100))
        })
    }
}

/// This node's counting options; all nodes of a cluster share seed and shape.
fn options_of(settings: &HotSettings, digest_key: &DigestKey) -> HotKeysOptions {
    // No key is in namespace 0, so no key has this digest.
    let seed = Digest::of(digest_key, NamespaceId(0), b"torc hot keys").high();
    HotKeysOptions {
        k: settings.k,
        shape: settings.shape,
        seed,
        candidate_bytes: HotKeysOptions::candidate_bytes_of(settings.k),
    }
}
