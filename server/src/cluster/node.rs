//! What the requests about the cluster need of the node that answers them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use torc_access::attempts::Attempts;
use torc_access::audit::Act;
use torc_access::caller::Caller;
use torc_access::tls_dir::OwnAuthority;
use torc_console::Console;
use torc_group::TopologyGroup;
use torc_limits::connections::Entrance;
use torc_member::LocalMember;
use torc_ring::NodeId;
use torc_ring::topology::{PartitionState, RoutingTable};
use torc_store::StoreHealth;
use torc_transfers::Transfers;

use crate::config::Settings;
use crate::kv::KvNode;
use crate::own_node::ReachedAt;

/// A node, as far as requests about the cluster use it.
pub(crate) struct ClusterNode {
    pub(crate) settings: Arc<Settings>,
    pub(crate) reached_at: Arc<ReachedAt>,
    /// The node in its cluster.
    pub(crate) member: Arc<LocalMember>,
    pub(crate) group: TopologyGroup,
    pub(crate) kv: Arc<KvNode>,
    /// What all ports need to accept connections.
    pub(crate) entrance: Arc<Entrance>,
    /// `None` if certificates come from files or TLS is off.
    pub(crate) own_authority: Option<Arc<OwnAuthority>>,
    /// Limits the join attempts of strangers.
    pub(crate) attempts: Attempts,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) console: Arc<Console>,
    pub(crate) started: Instant,
}

impl std::fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterNode")
            .field("node", &self.member.identity.node())
            .finish_non_exhaustive()
    }
}

impl ClusterNode {
    /// Records an administrator's request in the audit log.
    pub(crate) fn act(&self, caller: &Caller, call: &str, request: &impl std::fmt::Debug) -> Act {
        let me = self.member.identity.node();
        Act::begin(&self.kv.audit, me, caller, call, request)
    }

    /// Whether the node is a member, has adopted a topology, and can serve a partition of it.
    pub(crate) fn ready(&self) -> Result<(), String> {
        if self.kv.leaving.is_cancelled() {
            return Err("the node is stopping".to_owned());
        }
        if let Some(reason) = self.failed() {
            return Err(reason);
        }
        let table = self.member.routing().map_err(|fault| fault.message)?;
        self.member.slot(&table).map_err(|fault| fault.message)?;
        let registers = self.member.registers().map_err(|fault| fault.message)?;
        self.has_quorums(&table, &registers.lost())
    }

    /// Why the node has failed for good, if it has.
    pub(crate) fn failed(&self) -> Option<String> {
        match self.kv.store.health() {
            StoreHealth::Failed(reason) => Some(reason),
            _ => self.group.failed(),
        }
    }

    /// Fails if no operation on this node's partitions can succeed.
    fn has_quorums(&self, table: &RoutingTable, lost: &BTreeSet<NodeId>) -> Result<(), String> {
        let me = self.member.identity.node();
        let is_mine =
            |state: &&PartitionState| me.is_some_and(|me| state.config.index(me).is_some());
        let mut mine = table.states.iter().filter(is_mine).peekable();
        let has_quorum =
            |state: &PartitionState| state.config.answering(|node| !lost.contains(&node)).1;
        if lost.is_empty() || mine.peek().is_none() || mine.any(has_quorum) {
            return Ok(());
        }
        let lost: Vec<_> = lost.iter().map(ToString::to_string).collect();
        Err(format!(
            "no partition of this node has a quorum, because these nodes do not answer: {}. Restart \
             them; if one is lost for good, see `kvctl replace-node --help`; if most are, `kvd recover --help`",
            lost.join(", ")
        ))
    }
}
