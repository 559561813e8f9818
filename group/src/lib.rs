//! The topology group: how the nodes of a cluster agree on its topology.
//!
//! Raft (the `openraft` crate) over the nodes' own gRPC. Up to five members vote, all the
//! others follow as learners, so that every node has every topology by itself and no
//! request for data ever waits for the group. The state machine is
//! [`Topology`]; commands are [`Command`]s.
//!
//! Invariants:
//! * A topology is published ([`TopologyGroup::watch`]) only after it is on this node's
//!   disk: what a node acts on survives its crash.
//! * A node works under one number in one cluster for as long as its store lives, and
//!   takes only messages that are meant for it.
//! * Commands may be sent again when an answer is missing; the topology makes repetition
//!   harmless.
//!
//! The store (log, vote, state) and the rest of a node's data directory live and die
//! together: a node whose store was lost must come back under a new number, because the
//! votes it gave are lost too. The store names the data directory it was first used in;
//! the caller compares ([`TopologyGroup::bound_to`]).
//!
//! Map: `storage` (log and state machine on disk), `peers` and `wire` (connections and
//! messages), `service` (the gRPC side), `identity` (whose
//! store it is), `propose` (commands and reads through the
//! leader), `voters` and `membership` (who votes), `recover` (from one voter), `cuts` (for tests).
//!
//! Left out: moving leadership on purpose (openraft 0.9 cannot), so removing the leader
//! costs an election; and what topologies mean, which is `torc-ring`'s.
//!
//! Source: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm",
//! 2014; joint consensus as in its section 6.

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
use torc_tls::Connector;

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
    /// Directory of the store, made if it is missing.
    pub dir: PathBuf,
    /// The data directory that the store is a part of.
    pub incarnation: Incarnation,
    /// This start of it.
    pub boot: Boot,
    /// How often a leader shows that it is there, milliseconds; also how long a follower
    /// may take to answer. All nodes should have the same.
    pub heartbeat_ms: u64,
    /// Silence after which a voter asks for votes is the upper bound plus a random time
    /// within these bounds, milliseconds: followers trust a leader for the upper bound.
    pub election_timeout_ms: (u64, u64),
    /// Log entries between two snapshots.
    pub snapshot_every: u64,
    /// Log entries kept behind a snapshot, for followers that are a little late.
    pub keep_entries: u64,
    /// Silence after which a voter's place may be given to a reachable node, milliseconds.
    pub voter_lost_after_ms: u64,
    /// For tests: the nodes that calls do not leave for.
    pub cuts: Option<Cuts>,
    /// How to connect to the other nodes; none: in the clear.
    pub tls: Option<Connector>,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("group"),
            incarnation: Incarnation([0; 16]),
            boot: Boot::default(),
            // Also how long an entry may take to reach a node: on a busy machine one about many
            // partitions takes longer than a heartbeat would.
            heartbeat_ms: 500,
            election_timeout_ms: (1500, 3000),
            snapshot_every: 500,
            keep_entries: 200,
            voter_lost_after_ms: 30_000,
            cuts: None,
            tls: None,
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
    /// Held while starting, so that Raft is started once.
    starting: tokio::sync::Mutex<()>,
    stopping: AtomicBool,
    disowned: Disowned,
}

/// Why this node must not go on, once it was told so.
type Disowned = Arc<OnceLock<String>>;

/// Life: opening, starting, founding, stopping.
impl TopologyGroup {
    /// Opens the store and reads the topology in it. Raft does not run yet. Blocks for
    /// the disk; reads the whole store, some megabytes, to check it.
    ///
    /// # Errors
    /// [`GroupError`] when the store cannot be opened, is locked, damaged or of a newer format.
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

    /// The data directory that the store was first used in; none while it was never used.
    /// Blocks for the disk.
    ///
    /// # Errors
    /// [`GroupError::Corrupt`].
    pub fn bound_to(&self) -> Result<Option<Incarnation>, GroupError> {
        let identity = self.inner.store.identity().map_err(broken)?;
        Ok(identity.map(|identity| identity.directory))
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

    /// Starts Raft as member `node` of `cluster`, on this runtime. Doing it again is
    /// harmless. The first time, on an empty store, `node` must be a number that no
    /// node ever had before.
    ///
    /// # Errors
    /// [`GroupError::OtherIdentity`] or [`GroupError::HalfFounded`] when the store is
    /// another's; [`GroupError::Failed`] when Raft cannot start from what is stored.
    pub async fn start(&self, node: NodeId, cluster: ClusterId) -> Result<(), GroupError> {
        self.run_as(Claim::Member(node, cluster)).await
    }

    /// Founds a cluster with this node as its first voter. To be repeated after a crash at
    /// any point: a cluster that an earlier attempt of these members founded, with whatever
    /// id and settings, is the one; read them from [`TopologyGroup::topology`].
    ///
    /// # Errors
    /// [`GroupError::Refused`] when the settings are refused, when `node` is none of the
    /// numbers that the members get (1 for the first, and so on), or when a cluster of
    /// others exists; [`GroupError::OtherIdentity`] when this node belongs to a cluster.
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

    /// Stops Raft and lets the store go, waiting for what is under way. Other nodes see a
    /// node that went away; nothing has to be handed over.
    pub async fn shutdown(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        // Raft ends only behind the write that it is at.
        self.inner.store.give_up_waiting();
        let _not_starting = self.inner.starting.lock().await;
        if let Some(running) = self.inner.running.get() {
            // Its only error is that Raft's task panicked, which stopped it as well.
            let _ = running.raft.shutdown().await;
        }
        let closed = self.inner.store.run(|store| {
            store.close();
            Ok(())
        });
        if let Err(error) = closed.await {
            tracing::warn!(%error, "the topology group's store was not closed");
        }
    }

    /// Ends this node's part: another process was started with its data directory, or with an
    /// older or newer copy of it. Nothing is sent or accepted any more.
    pub fn disown(&self, why: &str) {
        if self.inner.disowned.set(why.to_owned()).is_ok() {
            tracing::error!(why, "this node must not go on");
        }
    }

    /// Whether the topology has the members that this founding would give, by incarnation.
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

    /// Makes sure that the store is this claimant's, and durably so.
    async fn bind(&self, claim: Claim) -> Result<Identity, GroupError> {
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

/// Getters. None of them waits; before the start they answer as if there were no group.
impl TopologyGroup {
    /// Every topology that this node applied, each after it became durable here. A slow
    /// reader sees the latest only.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Option<Arc<Topology>>> {
        self.inner.store.watch()
    }

    /// The topology that this node applied last; perhaps not the latest that was committed.
    #[must_use]
    pub fn topology(&self) -> Option<Arc<Topology>> {
        self.inner.store.topology()
    }

    /// The leader as far as this node knows.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.inner.running.get().and_then(Running::leader)
    }

    /// Whether this node leads, as far as it knows: a leader that was cut off learns late
    /// that another one was elected, but can commit nothing meanwhile.
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

    /// Why the group stopped by itself, if it did. It does not come back in this process:
    /// stop the node.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        if self.inner.stopping.load(Ordering::Acquire) {
            return None;
        }
        let disowned = self.inner.disowned.get().cloned();
        disowned.or_else(|| self.inner.running.get().and_then(Running::failed))
    }

    /// The gRPC service, to be served under the peer address that the topology has for this node.
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

/// A failed access outside of Raft.
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
