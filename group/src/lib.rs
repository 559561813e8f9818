//! The topology group: the nodes of a cluster agree on its topology.
//!
//! Raft (the `openraft` crate) over the nodes' own gRPC. Up to five members vote; all
//! others are learners, so every node has every topology and no data request ever waits
//! for the group. The state machine is [`Topology`]; commands are [`Command`]s.
//!
//! Invariants:
//! * A topology is published ([`TopologyGroup::watch`]) only after it is on this
//!   node's disk, so a topology that a node acts on survives its crash.
//! * As long as its store exists, a node has one number in one cluster, and accepts
//!   only messages addressed to it.
//! * Commands may be resent if an answer is missing; the topology makes them
//!   idempotent.
//!
//! The store (log, vote, state) and the rest of a node's data directory belong
//! together: a node whose store was lost must return under a new number, because its
//! votes are lost, too. The store records its data directory; the caller compares
//! ([`TopologyGroup::bound_to`]).
//!
//! Map: `storage` (log and state machine on disk), `peers` and `wire` (connections and messages),
//! `service` (the gRPC side), `identity` (of the store), `propose` (commands and reads through the
//! leader), `voters` and `membership` (choice of voters), `recover` (from one voter), `cuts` (for
//! tests).
//!
//! Absent on purpose: leadership transfer (openraft 0.9 lacks it), so removing the
//! leader costs an election; and the meaning of topologies (`torc-ring`).
//!
//! Source: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm",
//! 2014; joint consensus as in its section 6.

#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, reason = "tests count small numbers")
)]

mod cuts;
mod deadline;
mod error;
mod identity;
mod membership;
mod metrics;
mod peers;
mod propose;
mod raft;
mod recover;
mod running;
mod service;
mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod voters;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use openraft::error::{InitializeError, RaftError};
use openraft::{BasicNode, ServerState};
use tokio::sync::watch;
use torc_proto::v1::topology_group_server::TopologyGroupServer;
use torc_ring::NodeId;
use torc_ring::topology::{
    Boot, ClusterId, Command, Founding, Incarnation, Topology, TopologyError,
};
use torc_tls::Pool;

pub use cuts::Cuts;
pub use deadline::Deadline;
pub use error::GroupError;
pub use membership::{Enlister, keep_membership};
pub use metrics::{GroupMetrics, GroupRole};
pub use recover::{RecoverError, Recovery};
pub use service::GroupService;

use identity::{Claim, Identity};
use running::Running;
use storage::{Store, StoreError};

/// How long a founder waits for itself.
const FOUNDING_TIMEOUT: Duration = Duration::from_secs(30);

/// Settings of a node's part in the group.
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// Directory of the store; created if missing.
    pub dir: PathBuf,
    /// The data directory that the store is a part of.
    pub incarnation: Incarnation,
    /// This start of the data directory.
    pub boot: Boot,
    /// Where other nodes reach this one, `host:port`. Other members use it while the topology has
    /// another address. Empty: this node does not say.
    pub address: String,
    /// Heartbeat interval of a leader, milliseconds; also the time limit for a
    /// follower's answer. Use the same on all nodes.
    pub heartbeat_ms: u64,
    /// Bounds in milliseconds. A voter starts an election after a silence of the upper
    /// bound plus a random time within the bounds: followers trust a leader for the
    /// upper bound.
    pub election_timeout_ms: (u64, u64),
    /// Log entries between two snapshots.
    pub snapshot_every: u64,
    /// Log entries to keep before a snapshot, for followers that lag slightly.
    pub keep_entries: u64,
    /// Silence after which a reachable node may replace a voter, milliseconds.
    pub voter_lost_after_ms: u64,
    /// How long a node that left stays in the Raft membership if it does not answer, milliseconds, once
    /// it has the log entry that removed it; three times as long without that entry, because it may be
    /// restarting. If it answers a later message, it knows that the entry is committed, and goes at
    /// once.
    pub departure_grace_ms: u64,
    /// For tests: nodes to which calls are dropped.
    pub cuts: Option<Cuts>,
    /// The node's connections to the others.
    pub pool: Arc<Pool>,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("group"),
            incarnation: Incarnation([0; 16]),
            boot: Boot::default(),
            address: String::new(),
            // Also the time limit for an entry to reach a node: on a busy machine, an entry about
            // many partitions takes longer than a heartbeat.
            heartbeat_ms: 500,
            election_timeout_ms: (1500, 3000),
            snapshot_every: 500,
            keep_entries: 200,
            voter_lost_after_ms: 30_000,
            departure_grace_ms: 5_000,
            cuts: None,
            pool: Arc::default(),
        }
    }
}

/// A node's part in the topology group. Clones share it.
#[derive(Clone)]
pub struct TopologyGroup {
    inner: Arc<Inner>,
}

struct Inner {
    options: GroupOptions,
    store: Arc<Store>,
    running: OnceLock<Running>,
    /// Held while starting, so Raft starts only once.
    starting: tokio::sync::Mutex<()>,
    stopping: AtomicBool,
    disowned: Disowned,
}

/// Why this node must stop, once it knows that it must.
type Disowned = Arc<OnceLock<String>>;

/// Life cycle: opening, starting, founding, stopping.
impl TopologyGroup {
    /// Opens the store and reads its topology. Does not start Raft. Blocks on the disk:
    /// it reads the whole store, a few megabytes, to check it.
    ///
    /// # Errors
    /// [`GroupError`] if the store cannot be opened, is locked, damaged or has a newer format.
    pub fn open(options: GroupOptions) -> Result<Self, GroupError> {
        running::config(&options)?;
        let store = Store::open(&options.dir)?;
        Ok(Self::over(store, options))
    }

    /// The store's file in its directory.
    #[must_use]
    pub fn file(dir: &Path) -> PathBuf {
        dir.join(storage::FILE_NAME)
    }

    /// The data directory of the store's first use; `None` if it was never used. Blocks
    /// on the disk.
    ///
    /// # Errors
    /// [`GroupError::Corrupt`].
    pub fn bound_to(&self) -> Result<Option<Incarnation>, GroupError> {
        let identity = self.inner.store.identity().map_err(broken)?;
        Ok(identity.map(|identity| identity.directory))
    }

    /// The number of the last start of the data directory that used the store; `None` if there was
    /// none. An older copy of the store has an older number than the directory. Blocks on the disk.
    ///
    /// # Errors
    /// [`GroupError::Corrupt`].
    pub fn last_start(&self) -> Result<Option<u64>, GroupError> {
        self.inner.store.start().map_err(broken)
    }

    fn over(store: Store, options: GroupOptions) -> Self {
        let inner = Inner {
            options,
            store: Arc::new(store),
            running: OnceLock::new(),
            starting: tokio::sync::Mutex::default(),
            stopping: AtomicBool::new(false),
            disowned: Disowned::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Starts Raft as member `node` of `cluster`, on this runtime. Repeating it is
    /// harmless. On an empty store, `node` must be a number that no node has ever had.
    ///
    /// # Errors
    /// [`GroupError::OtherIdentity`] or [`GroupError::HalfFounded`] if the store
    /// belongs to another node; [`GroupError::Failed`] if Raft cannot start from the
    /// stored state.
    pub async fn start(&self, node: NodeId, cluster: ClusterId) -> Result<(), GroupError> {
        self.run_as(Claim::Member(node, cluster)).await
    }

    /// Founds a cluster with this node as its first voter. Repeat it after a crash at any
    /// point: if an earlier attempt of these members founded a cluster, with any id and
    /// settings, that cluster stays; read them from [`TopologyGroup::topology`].
    ///
    /// # Errors
    /// [`GroupError::Refused`] if the settings are refused, if `node` is not one of the
    /// numbers that the members get (1 for the first, and so on), or if a cluster of
    /// other members exists; [`GroupError::OtherIdentity`] if this node belongs to a
    /// cluster.
    pub async fn found(&self, node: NodeId, founding: Founding) -> Result<(), GroupError> {
        let preview = Topology::found(founding.clone())?;
        let unknown = TopologyError::UnknownNode { node };
        let myself = preview.members().get(&node).ok_or(unknown)?;
        let address = BasicNode::new(&myself.identity.peer_address);
        self.run_as(Claim::Founder(node, founding.cluster)).await?;
        if self.was_founded_by(&preview) {
            return Ok(());
        }
        let raft = &self.running()?.raft;
        match raft.initialize(BTreeMap::from([(node.0, address)])).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => {
                return Err(GroupError::Failed {
                    reason: error.to_string(),
                });
            }
        }
        match self
            .propose(Command::Found(founding), FOUNDING_TIMEOUT)
            .await
        {
            Err(GroupError::Refused(TopologyError::AlreadyFounded))
                if self.was_founded_by(&preview) =>
            {
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    /// Stops Raft and closes the store, after running work. Nothing needs to be handed
    /// over to other nodes.
    pub async fn shutdown(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        // Raft ends only after its current write.
        self.inner.store.give_up_waiting();
        let _not_starting = self.inner.starting.lock().await;
        if let Some(running) = self.inner.running.get() {
            // Its only error is that Raft's task panicked, which stopped Raft, too.
            let _ = running.raft.shutdown().await;
        }
        let closed = self.inner.store.run(|store| {
            store.close();
            Ok(())
        });
        if let Err(error) = closed.await {
            tracing::warn!(%error, "could not close the topology group's store");
        }
    }

    /// Ends this node's part, because another process runs with its data directory or a copy
    /// of it. The node sends and accepts nothing any more.
    pub fn disown(&self, why: &str) {
        if self.inner.disowned.set(why.to_owned()).is_ok() {
            tracing::error!(why, "this node must stop");
        }
    }

    /// Whether the topology has the members of this founding, by incarnation.
    fn was_founded_by(&self, preview: &Topology) -> bool {
        let Some(topology) = self.topology() else {
            return false;
        };
        preview.members().iter().all(|(node, member)| {
            let found = topology.member_by_incarnation(member.identity.incarnation);
            found.is_some_and(|(id, _)| id == *node)
        })
    }

    async fn run_as(&self, claim: Claim) -> Result<(), GroupError> {
        let _one_at_a_time = self.inner.starting.lock().await;
        if self.inner.stopping.load(Ordering::Acquire) {
            return Err(GroupError::Stopped);
        }
        let bound = self.bind(claim).await?;
        if self.inner.running.get().is_none() {
            let disowned = Arc::clone(&self.inner.disowned);
            let running =
                Running::start(&self.inner.options, bound, &self.inner.store, disowned).await?;
            let _ = self.inner.running.set(running);
        }
        Ok(())
    }

    /// Durably binds the store to this identity, or checks that it already is, and notes this start.
    async fn bind(&self, claim: Claim) -> Result<Identity, GroupError> {
        let bound = self.bind_identity(claim).await?;
        let number = self.inner.options.boot.number;
        let noted = self.inner.store.run(move |store| store.set_start(number));
        noted.await.map_err(broken)?;
        Ok(bound)
    }

    async fn bind_identity(&self, claim: Claim) -> Result<Identity, GroupError> {
        let store = &self.inner.store;
        let stored = store.run(Store::identity).await.map_err(broken)?;
        if let Some(stored) = stored {
            return claim.check(stored, self.topology().map(|topology| topology.cluster()));
        }
        let first = claim.first(self.inner.options.incarnation);
        store
            .run(move |store| store.set_identity(first))
            .await
            .map_err(broken)?;
        Ok(first)
    }
}

/// Getters. They never wait; before the start they answer as if there were no group.
impl TopologyGroup {
    /// Every topology that this node applied, after it became durable here. A slow
    /// reader sees only the latest.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Option<Arc<Topology>>> {
        self.inner.store.watch()
    }

    /// The topology that this node applied last; a newer one may be committed.
    #[must_use]
    pub fn topology(&self) -> Option<Arc<Topology>> {
        self.inner.store.topology()
    }

    /// The leader as far as this node knows.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.inner.running.get().and_then(Running::leader)
    }

    /// Whether this node leads, as far as it knows. A leader that was cut off learns late
    /// of another election, but can commit nothing meanwhile.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        let running = self.inner.running.get();
        running.is_some_and(|running| running.raft.metrics().borrow().state == ServerState::Leader)
    }

    /// The members that vote; while their set changes, those of both sets.
    #[must_use]
    pub fn voters(&self) -> BTreeSet<NodeId> {
        let Some(running) = self.inner.running.get() else {
            return BTreeSet::new();
        };
        running
            .raft
            .metrics()
            .borrow()
            .membership_config
            .voter_ids()
            .map(NodeId)
            .collect()
    }

    /// Figures for status and metrics.
    #[must_use]
    pub fn metrics(&self) -> GroupMetrics {
        self.inner
            .running
            .get()
            .map(Running::metrics)
            .unwrap_or_default()
    }

    /// Why the group stopped by itself, if it did. It does not restart in this process:
    /// stop the node.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        if self.inner.stopping.load(Ordering::Acquire) {
            return None;
        }
        let disowned = self.inner.disowned.get().cloned();
        disowned.or_else(|| self.inner.running.get().and_then(Running::failed))
    }

    /// The gRPC service, to serve at this node's peer address in the topology.
    #[must_use]
    pub fn service(&self) -> TopologyGroupServer<GroupService> {
        TopologyGroupServer::new(GroupService::new(self.clone()))
            .max_decoding_message_size(wire::MAX_MESSAGE_LEN)
            .max_encoding_message_size(wire::MAX_MESSAGE_LEN)
    }

    fn running(&self) -> Result<&Running, GroupError> {
        if self.inner.stopping.load(Ordering::Acquire) {
            return Err(GroupError::Stopped);
        }
        self.inner.running.get().ok_or(GroupError::NotStarted)
    }
}

/// A failed access outside Raft.
fn broken(error: StoreError) -> GroupError {
    match error {
        StoreError::Closed => GroupError::Stopped,
        StoreError::Corrupt { what, reason } => GroupError::Corrupt {
            what: format!("{what}: {reason}"),
        },
        other => GroupError::Failed {
            reason: other.to_string(),
        },
    }
}
