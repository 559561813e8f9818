//! Drives the replicas and coordinators of a node: the state machines of `torc-replication`, for both modes and any number
//! of replicas, with the store, the links to other nodes, and callers.
//!
//! ```text
//! caller ─▶ shard: Coordinator ─▶ slot: Replica (this node's) ─▶ store
//!   ▲ mailbox ◀──┘  ▲      └───────▶ links ─▶ other nodes' shards
//!                   └── answers ◀─── links ◀───────┘
//! ```
//!
//! * `operate`: starts operations, one or many at a time; `mailbox`: delivers outcomes.
//! * `shard`: some partitions: their coordinator, their replicas, waiting callers.
//! * `turn`: inputs of a shard and all of their effects, handed over together.
//! * `replica_slot`: one partition's replica, and messages that wait for its batches to be durable.
//! * `alone`: gets of a partition whose only reader is this node; `confirm`: gets that
//!   need only a confirmation of other readers.
//! * `metrics`: counters. `spans`: traces.
//! * `slices`: sealed slices that replicas ask for and serve.
//! * `listing`: pages of a partition for scans.
//! * `disk`: the store as a replica sees it.
//! * `fetches`, `readings`: messages and requests that wait for the disk.
//! * `upkeep`: periodic work: deadlines, retries, comparison, collection, repair.
//! * `scrub`: finds damage. `lost`: recovers lost records from the other replicas.
//! * `hints`: writes of `eventual` namespaces that nodes have missed.
//! * [`mutants`]: rules that a test build breaks.
//!
//! Invariants:
//! * Messages, writes and answers leave in the order in which they were decided: see
//!   `turn`.
//! * A thread locks at most one shard at a time, and never waits under a shard's lock.
//! * All operations of a key at this node go through one coordinator, so no ballot is
//!   issued twice.
//!
//! Absent on purpose: every rule of replication; the topology group; what clients send.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "tests count small numbers"
    )
)]

mod alone;
mod confirm;
mod disk;
mod fetches;
mod generation;
mod hints;
mod listing;
mod lost;
mod mailbox;
mod metrics;
pub mod mutants;
mod operate;
mod readings;
mod replica_slot;
#[cfg(test)]
mod rig;
mod same;
mod scrub;
mod shard;
mod slices;
mod spans;
mod turn;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc};
use torc_links::{Links, Parcel};
use torc_record::{
    Digest, DigestKey, HybridTime, Locator, NamespaceId, NodeSlot, Record, State, to_millis,
};
use torc_replication::{
    Config, CoordinatorOptions, Input, Lookup, Now, Recovered, ReplicaOptions, Rules, Seq,
};
use torc_ring::topology::{Generation, GenerationShape, NamespaceMode, RoutingTable, is_new_name};
use torc_ring::{Layered, NodeId, Partition, Partitions, Token};
use torc_store::{Store, StoreError};

use crate::mutants::broken_rules;
use alone::Alone;
use fetches::Fetches;
use hints::HintKeeper;
use readings::Readings;
use replica_slot::ReplicaSlot;
use shard::Shard;
use torc_limits::budget::{Budget, LongValues};
use torc_telemetry::clock::unix_ms;
use torc_telemetry::spans::Tracer;
use turn::{Outbox, Turn};

pub use listing::NoQuorum;
pub use mailbox::{Mailbox, Told};
pub use metrics::RegisterMetrics;
pub use operate::{Begun, Wanted};
pub use replica_slot::Reached;
pub use slices::WantedSlices;
pub use upkeep::run;

/// Limit on operations under way, alone or of sessions, and again on those of batches. The others
/// wait here, where waiting is free: rounds slowed down by too many others would be retried and add
/// to the load.
const WINDOW: usize = 1_024;
/// Limit on the locks among which a node's partitions are divided.
const MOST_SHARDS: usize = 4;
/// Promises that a node keeps for all partitions of a layer together, about 100 bytes each; at least
/// 16 for each partition.
const PROMISES: usize = 65_536;
/// Versions that a node remembers for all partitions of a layer together, so that it can tell what became of overtaken
/// writes; at least 32 for each partition.
const RECENT: usize = 98_304;
/// Bytes of messages that a node keeps for all partitions of a layer together until it has adopted
/// their epochs.
const PARKED_BYTES: usize = 256 << 20;

/// Time for the disk to let this node answer others before it stops.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_FOR_ANSWERS: Duration = Duration::from_millis(2);

/// The identity of this node in its cluster.
#[derive(Debug, Clone, Copy)]
pub struct Me {
    /// Its id.
    pub node: NodeId,
    /// Its number in ballots.
    pub slot: NodeSlot,
}

/// A write that has become durable, or has failed.
enum Durable {
    /// Batches, each with the life of its replica, and the indices of those that failed.
    Batches(Vec<(Partition, u64, Seq)>, Vec<(usize, StoreError)>),
    /// `None` if there was no space for it.
    Ceiling(Option<HybridTime>),
}

/// A key that waits in `reconciles`, and whether to rewrite its record.
type Reconcile = (Partition, Locator, bool);

/// Interval between reports of records under the digest of another key.
const REPORT_FOREIGN_MS: u64 = 60_000;

/// What the topology says about keys.
#[derive(Default)]
struct Keys {
    /// The mode of each namespace.
    modes: HashMap<NamespaceId, NamespaceMode>,
    /// The namespaces that wait for their first records.
    coming: BTreeSet<NamespaceId>,
    /// Unknown namespaces with lower numbers were dropped.
    next_namespace: u32,
    /// `None` until the topology is known.
    partitions: Option<Partitions>,
    /// Generations that members hold.
    generations: BTreeMap<NamespaceId, Arc<Generation>>,
    /// `None` until the topology is known.
    digest_key: Option<DigestKey>,
}

impl Keys {
    /// Whether a digest belongs to another key. Such a record belongs to no key, so it must neither be
    /// spread nor told to clients.
    fn is_foreign(&self, at: Locator<&[u8]>) -> bool {
        let key = self.digest_key;
        key.is_some_and(|key| Digest::of(&key, at.namespace, at.key) != at.digest)
    }

    /// Whether a generation that members hold has no keys in a partition. Then no slice of it
    /// exists there, and every key is absent.
    fn is_without(&self, partition: Partition, id: NamespaceId) -> bool {
        let known = self.partitions.zip(self.generations.get(&id));
        known.is_some_and(|(partitions, it)| !it.has_keys_in(partitions, partition))
    }

    /// A record of the store as clients read it: if its generation numbers keys, the value is the id.
    /// `None` if this node does not know the generation.
    fn as_read(&self, record: Record) -> Option<Record> {
        if !record.namespace.is_generation() {
            return Some(record);
        }
        let shape = self.generations.get(&record.namespace)?.shape();
        let Some(GenerationShape::Ids(counts)) = shape else {
            return Some(record);
        };
        let State::Value { value, .. } = &record.state else {
            return None;
        };
        let slot = u32::from_le_bytes(value[..].try_into().ok()?);
        let partitions = self.partitions?;
        let partition = partitions.holding(record.namespace, Token::of(&record.digest));
        let id = counts.id(partitions, partition, slot)?;
        let state = State::Value {
            value: id.to_string().into(),
            expires_at_ms: None,
        };
        Some(Record { state, ..record })
    }

    /// Converts the result of a read of the store.
    fn lookup(&self, found: Result<Option<Record>, StoreError>) -> Lookup {
        match found {
            Ok(Some(record)) => self
                .as_read(record)
                .map_or(Lookup::Unreadable, Lookup::Found),
            Ok(None) => Lookup::Absent,
            Err(StoreError::NotHeld {
                partition,
                generation,
            }) if self.is_without(partition, generation) => Lookup::Absent,
            // A store that has failed can no longer prove that a key is absent.
            Err(_) => Lookup::Unreadable,
        }
    }
}

/// The replicas and coordinators of one node.
pub struct Registers {
    me: Me,
    partitions: Partitions,
    keys: ArcSwap<Keys>,
    store: Store,
    budget: Arc<Budget>,
    links: Links,
    started: Instant,
    shards: Vec<Mutex<Shard>>,
    alone: Layered<Alone>,
    durable: mpsc::UnboundedSender<Durable>,
    inbox: Mutex<Option<mpsc::UnboundedReceiver<Durable>>>,
    listings: listing::Listings,
    floors: lost::Floors,
    hints: HintKeeper,
    reconciles: mpsc::Sender<Reconcile>,
    unreconciled: Mutex<Option<mpsc::Receiver<Reconcile>>>,
    readings: Readings,
    fetches: Fetches,
    slices: mpsc::Sender<WantedSlices>,
    reports: mpsc::UnboundedSender<replica_slot::Reached>,
    window: Arc<Semaphore>,
    /// A batch may take all permits, and others must not wait for it.
    batches: Semaphore,
    long_values: LongValues,
    /// Notified when an operation starts while none is under way.
    busy: Notify,
    metrics: RegisterMetrics,
    /// When the next report of foreign digests is due.
    report_foreign_ms: AtomicU64,
    /// `None` if tracing is off.
    tracer: Option<Arc<Tracer>>,
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registers")
            .field("me", &self.me)
            .finish_non_exhaustive()
    }
}

impl Registers {
    /// Recovers this node's registers from its store. Sends milestones to `reports`, and requests
    /// for slices to `slices`.
    pub fn recover(
        me: Me,
        partitions: Partitions,
        (store, budget): (Store, Arc<Budget>),
        links: Links,
        started: Instant,
        (reports, slices): (
            mpsc::UnboundedSender<replica_slot::Reached>,
            mpsc::Sender<WantedSlices>,
        ),
        (metrics, tracer): (RegisterMetrics, Option<Arc<Tracer>>),
    ) -> Self {
        let shards = new_shards(me, &store, shard_count());
        let (durable, inbox) = mpsc::unbounded_channel();
        let (reconciles, unreconciled) = mpsc::channel(upkeep::RECONCILES_WAITING);
        Self {
            me,
            partitions,
            keys: ArcSwap::default(),
            store,
            budget,
            links,
            started,
            shards,
            alone: Layered::new(partitions),
            durable,
            inbox: Mutex::new(Some(inbox)),
            listings: listing::Listings::new(HybridTime::from_unix_ms(unix_ms())),
            floors: lost::Floors::default(),
            hints: HintKeeper::new(metrics.hints.clone()),
            reconciles,
            unreconciled: Mutex::new(Some(unreconciled)),
            readings: Readings::default(),
            fetches: Fetches::default(),
            slices,
            reports,
            window: Arc::new(Semaphore::new(WINDOW)),
            batches: Semaphore::new(WINDOW),
            long_values: LongValues::default(),
            busy: Notify::new(),
            metrics,
            report_foreign_ms: AtomicU64::new(0),
            tracer,
        }
    }

    /// The same registers, divided among this many shards instead of [`shard_count`].
    #[cfg(test)]
    fn with_shards(mut self, count: usize) -> Self {
        self.shards = new_shards(self.me, &self.store, count.clamp(1, MOST_SHARDS));
        self
    }

    /// A replica as the store describes it.
    fn new_slot(&self, partition: Partition, life: u64) -> ReplicaSlot {
        let facts = self.store.partition_meta(partition);
        let recovered = Recovered {
            facts,
            highest: self.store.highest_in(partition, facts.epoch),
            stored: &self.store.take_stored_versions(partition),
        };
        let count = self.partitions.count() as usize;
        let options = ReplicaOptions {
            promises: (PROMISES / count).clamp(16, 4_096),
            recent: (RECENT / count).clamp(32, 2_048),
            parked_bytes: PARKED_BYTES / count,
            ..ReplicaOptions::default()
        };
        ReplicaSlot::recover(self.me.node, partition, recovered, options, life)
    }

    /// Handles parcels from another node.
    pub fn receive(&self, from: NodeId, parcels: Vec<Parcel>) {
        let outbox = self.receive_with(from, parcels, Outbox::of_thread());
        outbox.send(&self.links);
    }

    fn receive_with(&self, from: NodeId, mut parcels: Vec<Parcel>, mut outbox: Outbox) -> Outbox {
        let mut spread = self.take_spread(&mut parcels);
        let shards = self.by_shard(parcels, |parcel| parcel.envelope.partition);
        for (shard, parcels) in shards.into_iter().enumerate() {
            if parcels.is_empty() && !spread.iter().any(|it| it.concerns(shard)) {
                continue;
            }
            let mut turn = Turn::with(self, shard, outbox);
            turn.deliver_all(from, parcels);
            for it in &mut spread {
                turn.confirm_part(from, shard, it);
            }
            outbox = turn.close();
        }
        outbox
    }

    /// Passes one input to a partition's replica.
    fn tell(&self, partition: Partition, input: Input) {
        let mut turn = self.turn(partition);
        turn.step(partition, input);
        turn.end();
    }

    /// Learns the namespaces of a topology, which must happen before the topology takes effect.
    /// Those that it has forgotten have numbers below `next_namespace`.
    pub fn learn(&self, table: &RoutingTable, next_namespace: u32) {
        let namespaces = table.namespaces.iter();
        let (coming, known): (Vec<_>, Vec<_>) = namespaces.partition(|(name, _)| is_new_name(name));
        let keys = Keys {
            modes: known.iter().map(|(_, it)| (it.id, it.mode)).collect(),
            coming: coming.iter().map(|(_, it)| it.id).collect(),
            next_namespace,
            partitions: Some(table.partitions),
            generations: table.generations.clone(),
            digest_key: Some(table.digest_key),
        };
        self.keys.store(keys.into());
    }

    /// The key with which key digests are computed.
    fn digest_key(&self) -> Option<DigestKey> {
        self.keys.load().digest_key
    }

    /// Counts records found under the digest of another key, and reports some once per minute.
    fn note_foreign(&self, partition: Partition, records: u64) {
        if records == 0 {
            return;
        }
        self.metrics.foreign_digests.inc_by(records);
        let now_ms = self.now().elapsed_ms;
        let next = |due| (due <= now_ms).then_some(now_ms + REPORT_FOREIGN_MS);
        let due = &self.report_foreign_ms;
        if due
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok()
        {
            tracing::error!(
                %partition,
                records,
                "found records under the digest of another key: they belong to no key, and scans leave them out"
            );
        }
    }

    /// The mode of a namespace; `None` if this node does not know the namespace.
    fn mode(&self, namespace: NamespaceId) -> Option<NamespaceMode> {
        self.keys.load().modes.get(&namespace).copied()
    }

    /// The rules for an internal operation; `None` if this node does not know the namespace yet, or if the
    /// namespace waits for its first records. These are below what has been collected in their partitions. As long as
    /// some replicas lack one, an operation on its key would find that it was deleted.
    ///
    /// A dropped namespace that the topology has forgotten has no mode, and clients can no longer
    /// read it. Any rules do for what is left of it: its tombstones only have to become equal on
    /// all replicas, because until then no tombstone of the partition is collected.
    pub fn rules(&self, namespace: NamespaceId) -> Option<Rules> {
        let keys = self.keys.load();
        if keys.coming.contains(&namespace) {
            return None;
        }
        Some(match keys.modes.get(&namespace) {
            Some(NamespaceMode::Linearizable) => Rules::Linearizable,
            Some(NamespaceMode::Eventual) => Rules::Eventual(torc_replication::Quorum::Majority),
            Some(NamespaceMode::Static) => Rules::Static,
            None if !namespace.is_generation() && namespace.number() < keys.next_namespace => {
                Rules::Linearizable
            }
            None => return None,
        })
    }

    /// Applies a partition's configuration; configurations may arrive in any order.
    pub fn configure(&self, config: &Arc<Config>) {
        let mut turn = self.turn(config.partition);
        turn.configure(config);
        turn.end();
    }

    /// Discards the records of displaced replicas where that is allowed.
    pub fn discard_where(&self, may_discard: impl Fn(Partition) -> bool) {
        for partition in self.known_partitions() {
            if may_discard(partition) {
                let mut turn = self.turn(partition);
                if turn.slot(partition).is_left_over(self.me.node) {
                    turn.step(partition, Input::Discard);
                }
                turn.end();
            }
        }
    }

    /// Whether this node cannot reach another node or gets no answers from it.
    pub fn is_out_of_reach(&self, node: NodeId) -> bool {
        let links = &self.links;
        node != self.me.node && (links.is_unreachable(node) || links.is_silent(node))
    }

    /// The nodes that this node cannot reach or gets no answers from.
    pub fn out_of_reach(&self) -> BTreeSet<NodeId> {
        self.links.out_of_reach().silent
    }

    /// The nodes that have been unreachable, or have owed an answer, for long.
    pub fn lost(&self) -> BTreeSet<NodeId> {
        self.links.out_of_reach().lost
    }

    /// The nodes that have been unreachable, or have owed an answer, for longer than a restart takes.
    pub fn gone(&self) -> BTreeSet<NodeId> {
        self.links.gone()
    }

    /// Opens links to members, so that a member that stops can announce it.
    pub fn meet(&self, members: impl Iterator<Item = NodeId>) {
        for member in members.filter(|member| *member != self.me.node) {
            self.links.open(member);
        }
    }

    /// Leaves the other nodes before this one stops: tells them, so that they send no more, and answers all
    /// that they have sent. Takes a few seconds at most.
    pub async fn leave(&self) {
        let answered = async {
            while self.owes_answers() {
                tokio::time::sleep(LOOK_FOR_ANSWERS).await;
            }
        };
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, answered);
        // What is not answered by then ends as after a crash.
        self.links.leave(answered.map(drop)).await;
    }

    /// Whether an answer to another node waits for this node's disk.
    fn owes_answers(&self) -> bool {
        let owes = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.slots.values().any(|slot| slot.owes_answers())
        };
        !self.fetches.is_empty() || self.shards.iter().any(owes)
    }

    /// The configuration that this node's replica of a partition acts in.
    pub fn config(&self, partition: Partition) -> Option<Arc<Config>> {
        let shard = self.shards[self.shard_of(partition)].lock();
        shard.slots.get(&partition)?.replica.config().cloned()
    }

    /// Whether the replica here is one of those that read a partition.
    pub fn reads(&self, partition: Partition) -> bool {
        let config = self.config(partition);
        config.is_some_and(|config| {
            let me = config.index(self.me.node);
            let readers = config.readers().without(config.excluded);
            me.is_some_and(|me| readers.contains(me))
        })
    }

    /// The partitions that this node has ever heard of, in the order of their numbers.
    fn known_partitions(&self) -> Vec<Partition> {
        let mut known = Vec::new();
        for shard in &self.shards {
            known.extend(shard.lock().slots.keys().copied());
        }
        known.sort_unstable();
        known
    }

    fn shard_of(&self, partition: Partition) -> usize {
        partition.index() % self.shards.len()
    }

    /// Divides a list among the shards; each part keeps the order.
    fn by_shard<T>(
        &self,
        all: Vec<T>,
        partition_of: impl Fn(&T) -> Partition,
    ) -> [Vec<T>; MOST_SHARDS] {
        let mut shards: [Vec<T>; MOST_SHARDS] = Default::default();
        if self.shards.len() == 1 {
            shards[0] = all;
            return shards;
        }
        for one in all {
            shards[self.shard_of(partition_of(&one))].push(one);
        }
        shards
    }

    fn turn(&self, partition: Partition) -> Turn<'_> {
        Turn::of(self, self.shard_of(partition))
    }

    fn now(&self) -> Now {
        Now {
            elapsed_ms: to_millis(self.started.elapsed()),
            unix_ms: unix_ms(),
        }
    }

    fn elapsed_ms(&self, at: Instant) -> u64 {
        to_millis(at.saturating_duration_since(self.started))
    }

    /// Makes a clock reading durable, then informs the coordinators, even if there was no space.
    fn reserve(&self, ceiling: HybridTime) {
        let durable = self.durable.clone();
        let done = move |result| {
            let ceiling = match result {
                Ok(()) => Some(ceiling),
                Err(StoreError::OutOfSpace) => None,
                // A store that accepts no writes completes no operations, so nothing needs the
                // reading.
                Err(_) => return,
            };
            // Fails only while the node stops.
            let _ = durable.send(Durable::Ceiling(ceiling));
        };
        let _ = self.store.reserve_ceiling(ceiling, done);
    }

    fn reconcile_later(&self, partition: Partition, at: &Locator, rewrite: bool) {
        // The key may be a small part of a message or of a stretch of a slice.
        let at = at.detached();
        if self.reconciles.try_send((partition, at, rewrite)).is_err() {
            // Comparison or the next read finds it again.
            self.metrics.reconciles_dropped.inc();
        }
    }
}

fn new_shards(me: Me, store: &Store, count: usize) -> Vec<Mutex<Shard>> {
    let ceiling = store.node_ceiling();
    let options = options_of(me, count);
    let shard = |_| Mutex::new(Shard::new(me.slot, ceiling, options, broken_rules()));
    (0..count).map(shard).collect()
}

/// Limits of each of this many shards.
fn options_of(me: Me, shards: usize) -> CoordinatorOptions {
    CoordinatorOptions {
        near: Some(me.node),
        // In all, a quarter of the places that a node has for clients.
        doubtful: WINDOW / 4 / shards,
        ..CoordinatorOptions::default()
    }
}

/// One lock for two threads. A batch is divided among all shards, and each part costs messages of its
/// own; with too few locks, threads would wait for each other.
fn shard_count() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    threads.div_ceil(2).min(MOST_SHARDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig::Rig;

    /// Each shard of a machine with seven processors let as many wait as all of them may.
    #[test]
    fn operations_in_doubt_take_a_quarter_of_the_places_however_many_shards_there_are() {
        let me = Me {
            node: rig::ME,
            slot: NodeSlot(1),
        };
        for shards in 1..=MOST_SHARDS {
            let all = options_of(me, shards).doubtful * shards;
            assert!(all <= WINDOW / 4 && all > WINDOW / 5, "{all} of {shards}");
        }
    }

    #[tokio::test]
    async fn a_forgotten_namespace_has_rules_and_one_that_is_not_known_or_used_yet_has_none() {
        let registers = Rig::start(|_| {}).registers;
        registers.keys.store(Arc::new(Keys {
            modes: [(NamespaceId(3), NamespaceMode::Eventual)].into(),
            coming: [NamespaceId(1)].into(),
            next_namespace: 4,
            ..Keys::default()
        }));
        let known = registers.rules(NamespaceId(3));
        assert!(matches!(known, Some(Rules::Eventual(_))), "{known:?}");
        let layer = torc_record::Layer::new(2).unwrap();
        for forgotten in [NamespaceId(2), NamespaceId::in_layer(layer, 2)] {
            assert_eq!(registers.rules(forgotten), Some(Rules::Linearizable));
        }
        for unknown in [
            NamespaceId(1),
            NamespaceId(4),
            NamespaceId::generation(layer, 2),
        ] {
            assert_eq!(registers.rules(unknown), None, "{unknown:?}");
        }
    }
}
