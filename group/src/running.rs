//! Raft while it runs.

use std::sync::Arc;

use openraft::error::Fatal;
use openraft::{Config, ServerState, SnapshotPolicy};
use torc_ring::NodeId;

use crate::identity::Identity;
use crate::peers::{Network, Peers};
use crate::raft::{Metrics, Raft, RaftFatal};
use crate::storage::{LogStore, Machine, Store};
use crate::wire::MAX_ENTRIES;
use crate::{Disowned, GroupError, GroupMetrics, GroupOptions};

/// Time limit to send and write one chunk of a snapshot, milliseconds.
const SNAPSHOT_TIMEOUT_MS: u64 = 10_000;

/// A chunk of a snapshot, bytes; its JSON form is up to four times as long.
const SNAPSHOT_CHUNK_LEN: u64 = 1 << 20;

/// A started Raft and its state.
pub(crate) struct Running {
    pub(crate) node: NodeId,
    pub(crate) raft: Raft,
    pub(crate) peers: Arc<Peers>,
}

/// openraft's settings.
pub(crate) fn config(options: &GroupOptions) -> Result<Config, GroupError> {
    let (election_timeout_min, election_timeout_max) = options.election_timeout_ms;
    let config = Config {
        cluster_name: "torc".into(),
        heartbeat_interval: options.heartbeat_ms.max(1),
        election_timeout_min,
        election_timeout_max,
        install_snapshot_timeout: SNAPSHOT_TIMEOUT_MS,
        snapshot_max_chunk_size: SNAPSHOT_CHUNK_LEN,
        max_payload_entries: MAX_ENTRIES as u64,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(options.snapshot_every.max(1)),
        max_in_snapshot_log_to_keep: options.keep_entries,
        ..Config::default()
    };
    config.validate().map_err(|error| GroupError::Options {
        reason: error.to_string(),
    })
}

impl Running {
    pub(crate) async fn start(
        options: &GroupOptions,
        identity: Identity,
        store: &Arc<Store>,
        disowned: Disowned,
    ) -> Result<Self, GroupError> {
        let me = (identity.node, options.boot, disowned);
        let pool = Arc::clone(&options.pool);
        let peers = Peers::new(identity.cluster, store.watch(), me, pool);
        let peers = Arc::new(
            peers
                .with_address(options.address.clone())
                .with_cuts(options.cuts.clone()),
        );
        let raft = Raft::new(
            identity.node.0,
            Arc::new(config(options)?),
            Network(Arc::clone(&peers)),
            LogStore::of_follower(Arc::clone(store), identity.node),
            Machine::new(Arc::clone(store)),
        );
        let raft = raft.await.map_err(|error| GroupError::Failed {
            reason: error.to_string(),
        })?;
        tokio::spawn(log_failure(raft.metrics()));
        tokio::spawn(elect_alone(raft.clone()));
        Ok(Self {
            node: identity.node,
            raft,
            peers,
        })
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.raft.metrics().borrow().current_leader.map(NodeId)
    }

    pub(crate) fn metrics(&self) -> GroupMetrics {
        GroupMetrics::from(&*self.raft.metrics().borrow())
    }

    /// The address of `node` in the Raft membership; empty if there is none.
    pub(crate) fn address_of(&self, node: NodeId) -> String {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let known = metrics.membership_config.membership().get_node(&node.0);
        known.map(|node| node.addr.clone()).unwrap_or_default()
    }

    /// Why Raft ended; `None` while it runs.
    pub(crate) fn failed(&self) -> Option<String> {
        let metrics = self.raft.metrics();
        let ended = metrics.has_changed().is_err();
        let metrics = metrics.borrow();
        match &metrics.running_state {
            Ok(()) if ended => Some(RaftFatal::Panicked.to_string()),
            Ok(()) => None,
            Err(fatal) => Some(fatal.to_string()),
        }
    }
}

/// Starts an election at once if this node is the only voter, because no other node can lead.
async fn elect_alone(raft: Raft) {
    let mut metrics = raft.metrics();
    let has_voters = |it: &Metrics| it.membership_config.voter_ids().next().is_some();
    let is_alone = match metrics.wait_for(has_voters).await {
        Ok(it) => it.current_leader.is_none() && it.membership_config.voter_ids().eq([it.id]),
        Err(_) => return,
    };
    if is_alone {
        // Fails only if Raft has ended.
        let _ = raft.trigger().elect().await;
    }
}

/// Logs when Raft ends without a shutdown.
async fn log_failure(mut metrics: tokio::sync::watch::Receiver<Metrics>) {
    let ended = |metrics: &Metrics| metrics.state == ServerState::Shutdown;
    let reason = match metrics.wait_for(ended).await {
        Err(_) => RaftFatal::Panicked,
        Ok(metrics) => match &metrics.running_state {
            Ok(()) | Err(Fatal::Stopped) => return,
            Err(fatal) => fatal.clone(),
        },
    };
    tracing::error!(%reason, "the topology group stopped; restart this node");
}
