//! The registers of a cluster with several replicas: what drives the state machines of
//! `torc-replication` on this node.
//!
//! ```text
//! Kv service ─▶ shard: Coordinator ─▶ host: Replica (this node's) ─▶ store
//!                  ▲        └───────▶ links ─▶ other nodes' hosts
//!                  └──── answers ◀──── links ◀──────┘
//! ```
//!
//! * `shard`: some partitions' coordinator, and who waits for its operations.
//! * `host`: one partition's replica, and what waits for its batches to be durable.
//! * `work`: carries intentions out until none is left.
//! * `metrics`: what is counted.
//! * `slices`: sealed slices on their way to a newcomer.
//! * `listing`: pages of a partition for scans.
//! * `disk`: the store as a replica sees it.
//! * `upkeep`: time passing: deadlines, retries, comparison, collection, repair.
//! * `eventual`: operations of `eventual` namespaces; `hints`: what nodes have missed of them.
//!
//! Invariants:
//! * Batches go to the store in the order in which the replica issued them: the host's
//!   lock is held from the step to the submission.
//! * No two locks are held at a time: a step's intentions are carried out after it.
//! * All operations of a key at this node go through one coordinator, so that no ballot is
//!   issued twice.
//!
//! Absent on purpose: every rule of replication, and partitions of clusters with one replica,
//! whose lead writes directly (`kv/operate`).

mod begin;
mod disk;
mod eventual;
mod hints;
mod host;
mod listing;
mod metrics;
mod shard;
mod slices;
mod upkeep;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use torc_record::{HybridTime, NamespaceId, NodeSlot};
use torc_replication::{
    Config, CoordinatorOptions, Envelope, Input, Locator, Now, OpId, Outcome, ReplicaOptions,
    Request, Seq,
};
use torc_ring::topology::NamespaceMode;
use torc_ring::{Layered, NodeId, Partition, Partitions};
use torc_store::{Store, StoreError};

use crate::clock::unix_ms;
use crate::links::Links;
use crate::mutants::broken_rules;
use hints::HintKeeper;
use host::Host;
use shard::Shard;
use work::Work;

pub(crate) use begin::begin;
pub(crate) use listing::NoQuorum;
pub(crate) use metrics::RegisterMetrics;

/// Most operations that are being carried out at a time. The others wait here, where waiting
/// costs nothing: a round that is slow because of many others would be tried again, and add
/// to them.
const WINDOW: usize = 256;
/// Coordinators of a node. Partitions are dealt out to them.
const SHARDS: usize = 4;

/// Who this node is in its cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Me {
    pub(crate) node: NodeId,
    pub(crate) slot: NodeSlot,
}

/// What became durable, or did not.
enum Durable {
    /// With the life of the replica that wanted it.
    Batch(Partition, u64, Seq),
    Failed(Partition, u64, StoreError),
    Ceiling(HybridTime),
}

/// What waits in `settles` to be brought together.
type Settle = (Partition, Locator, bool);

/// How the replicas of each namespace agree.
type Modes = HashMap<NamespaceId, NamespaceMode>;

/// The replicas and coordinators of one node.
pub(crate) struct Registers {
    me: Me,
    partitions: Partitions,
    modes: ArcSwap<Modes>,
    store: Store,
    links: Links,
    started: Instant,
    hosts: Layered<Mutex<Host>>,
    shards: Vec<Mutex<Shard>>,
    durable: mpsc::UnboundedSender<Durable>,
    inbox: Mutex<Option<mpsc::UnboundedReceiver<Durable>>>,
    listings: listing::Listings,
    hints: HintKeeper,
    settles: mpsc::Sender<Settle>,
    unsettled: Mutex<Option<mpsc::Receiver<Settle>>>,
    slices: mpsc::Sender<slices::Wanted>,
    reports: mpsc::UnboundedSender<host::Reached>,
    window: Semaphore,
    /// An operation began while none was under way.
    busy: Notify,
    metrics: RegisterMetrics,
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registers")
            .field("me", &self.me)
            .finish_non_exhaustive()
    }
}

impl Registers {
    /// Those of a node, from what its store has. Facts to be reported go to `reports`, slices
    /// that are wanted to `slices`.
    fn recover(
        me: Me,
        partitions: Partitions,
        store: Store,
        links: Links,
        started: Instant,
        (reports, slices): (
            mpsc::UnboundedSender<host::Reached>,
            mpsc::Sender<slices::Wanted>,
        ),
        metrics: RegisterMetrics,
    ) -> Self {
        let ceiling = store.node_ceiling();
        let options = CoordinatorOptions {
            near: Some(me.node),
            ..CoordinatorOptions::default()
        };
        let shard = |_| {
            let metrics = metrics.clone();
            Mutex::new(Shard::new(
                me.slot,
                ceiling,
                options,
                broken_rules(),
                metrics,
            ))
        };
        let (durable, inbox) = mpsc::unbounded_channel();
        let (settles, unsettled) = mpsc::channel(upkeep::SETTLES_WAITING);
        Self {
            me,
            partitions,
            modes: ArcSwap::default(),
            store,
            links,
            started,
            hosts: Layered::new(partitions),
            shards: (0..SHARDS).map(shard).collect(),
            durable,
            inbox: Mutex::new(Some(inbox)),
            listings: listing::Listings::new(HybridTime::from_unix_ms(unix_ms())),
            hints: HintKeeper::new(metrics.hints.clone()),
            settles,
            unsettled: Mutex::new(Some(unsettled)),
            slices,
            reports,
            window: Semaphore::new(WINDOW),
            busy: Notify::new(),
            metrics,
        }
    }

    fn host(&self, partition: Partition, life: u64) -> Host {
        host(self.me, &self.store, partition, life)
    }

    /// Carries out an operation on a key. Its outcome is [`Outcome::Unknown`] or
    /// [`Outcome::Unavailable`] at the latest when `deadline` is over.
    pub(crate) async fn operate(
        &self,
        partition: Partition,
        at: Locator,
        request: Request,
        deadline: Instant,
    ) -> Outcome {
        let is_write = request.is_write();
        // What brings replicas together makes room for the others, and is bounded by itself.
        let place = if matches!(request, Request::Settle { .. }) {
            None
        } else {
            let place = tokio::time::timeout_at(deadline.into(), self.window.acquire()).await;
            let Ok(Ok(place)) = place else {
                let outcome = Outcome::Unavailable;
                self.metrics.count(is_write, &outcome);
                return outcome;
            };
            Some(place)
        };
        let (sender, outcome) = oneshot::channel();
        let deadline_ms = self.elapsed_ms(deadline);
        let mut work = Work::new(self);
        work.start(partition, at, request, deadline_ms, sender);
        work.finish();
        // The sender is dropped only with the node.
        let gone = if is_write {
            Outcome::Unknown
        } else {
            Outcome::Unavailable
        };
        let outcome = outcome.await.unwrap_or(gone);
        drop(place);
        outcome
    }

    /// Takes what another node sent.
    pub(crate) fn receive(&self, from: NodeId, envelopes: Vec<Envelope>) {
        let mut work = Work::new(self);
        for envelope in envelopes {
            work.deliver(from, envelope);
            work.finish();
        }
    }

    /// Takes a partition's configuration, in any order.
    pub(crate) fn configure(&self, config: &Arc<Config>) {
        let mut work = Work::new(self);
        work.configure(config);
        work.finish();
    }

    /// Displaced replicas forget their records where that is allowed.
    pub(crate) fn discard_where(&self, may_discard: impl Fn(Partition) -> bool) {
        let mut work = Work::new(self);
        for (partition, host) in self.hosts.iter() {
            if may_discard(partition) && host.lock().is_left_over(self.me.node) {
                work.step(partition, Input::Discard);
                work.finish();
            }
        }
    }

    /// Whether another node cannot be reached or does not answer, as far as this one knows.
    pub(crate) fn is_out_of_reach(&self, node: NodeId) -> bool {
        let links = &self.links;
        node != self.me.node && (links.is_unreachable(node) || links.is_silent(node))
    }

    /// The configuration that this node's replica of a partition acts in.
    pub(crate) fn config(&self, partition: Partition) -> Option<Arc<Config>> {
        let host = self.host_of(partition)?.lock();
        host.replica.config().cloned()
    }

    fn host_of(&self, partition: Partition) -> Option<&Mutex<Host>> {
        let recovered = |partition| Mutex::new(self.host(partition, 0));
        self.hosts.get_or(partition, recovered)
    }

    /// The partitions that this node was ever told of.
    fn known_partitions(&self) -> Vec<Partition> {
        self.hosts.iter().map(|(partition, _)| partition).collect()
    }

    fn now(&self) -> Now {
        Now {
            elapsed_ms: self.started.elapsed().as_millis() as u64,
            unix_ms: unix_ms(),
        }
    }

    fn elapsed_ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }

    fn shard_of(&self, partition: Partition) -> &Mutex<Shard> {
        &self.shards[partition.index() % SHARDS]
    }
}

/// A replica as the store knows it.
fn host(me: Me, store: &Store, partition: Partition, life: u64) -> Host {
    let meta = disk::meta_of(&store.partition_meta(partition));
    Host::recover(me.node, partition, meta, ReplicaOptions::default(), life)
}

/// The number of an operation within its shard.
#[derive(Debug, Default)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> OpId {
        self.0 += 1;
        OpId(self.0)
    }
}
