//! State that all parts of a node share.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use torc_access::attempts::Attempts;
use torc_access::audit::Act;
use torc_access::caller::Caller;
use torc_access::tls_dir::OwnAuthority;
use torc_console::Console;
use torc_group::TopologyGroup;
use torc_limits::connections::Entrance;
use torc_links::LinkService;
use torc_member::LocalMember;
use torc_member::addresses::Addresses;
use torc_ring::NodeId;
use torc_ring::topology::{Boot, PartitionState, RoutingTable};
use torc_store::{Scratch, Store};
use torc_transfers::Transfers;

use crate::bearers::Bearers;
use crate::config::Settings;
use crate::kv::KvNode;
use crate::metrics::Metrics;

/// Where others reach this node, each HOST:PORT.
pub(crate) struct ReachedAt {
    pub(crate) grpc: String,
    pub(crate) peers: String,
    pub(crate) http: String,
    /// `None` if it serves no Redis clients.
    pub(crate) resp: Option<String>,
}

impl ReachedAt {
    /// The advertised addresses, or else those that are bound.
    pub(crate) fn of(
        settings: &Settings,
        [grpc, peer, http]: [SocketAddr; 3],
        resp: Option<SocketAddr>,
    ) -> Self {
        let or = |advertised: &Option<String>, bound: SocketAddr| {
            advertised.clone().unwrap_or_else(|| bound.to_string())
        };
        Self {
            grpc: or(&settings.advertise_addr, grpc),
            peers: settings.peer_address(peer),
            http: or(&settings.advertise_http_addr, http),
            resp: resp.map(|bound| or(&settings.advertise_resp_addr, bound)),
        }
    }
}

/// The parts of one node. Any task may use them.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) reached_at: ReachedAt,
    pub(crate) store: Store,
    pub(crate) scratch: Scratch,
    /// What the services of keys need.
    pub(crate) kv: Arc<KvNode>,
    /// The node in its cluster.
    pub(crate) member: Arc<LocalMember>,
    /// This start of the data directory.
    pub(crate) boot: Boot,
    pub(crate) group: TopologyGroup,
    /// The addresses of the other members.
    pub(crate) addresses: Arc<Addresses>,
    /// What all ports need to accept connections.
    pub(crate) entrance: Entrance,
    /// `None` if certificates come from files or TLS is off.
    pub(crate) own_authority: Option<Arc<OwnAuthority>>,
    /// Limits the join attempts of strangers.
    pub(crate) attempts: Attempts,
    pub(crate) bearers: Arc<Bearers>,
    /// The receiving end of messages between replicas, once the registers exist.
    pub(crate) link_service: OnceLock<LinkService>,
    pub(crate) metrics: Metrics,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) console: Arc<Console>,
    pub(crate) started: Instant,
    /// The runtimes of the threads that serve gRPC, set once these run.
    pub(crate) workers: OnceLock<Vec<Handle>>,
    /// Cancelled to end all tasks.
    pub(crate) cancel: CancellationToken,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let node = self.member.identity.node();
        f.debug_struct("Shared")
            .field("address", &self.reached_at.grpc)
            .field("node", &node)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Records an administrator's request in the audit log.
    pub(crate) fn act(&self, caller: &Caller, call: &str, request: &impl std::fmt::Debug) -> Act {
        Act::begin(
            &self.kv.audit,
            self.member.identity.node(),
            caller,
            call,
            request,
        )
    }
}

impl Shared {
    /// Whether the node is a member, has adopted a topology, and can serve a partition of it.
    pub(crate) fn ready(&self) -> Result<(), String> {
        if self.kv.leaving.is_cancelled() {
            return Err("the node is stopping".to_owned());
        }
        if let torc_store::StoreHealth::Failed(reason) = self.store.health() {
            return Err(reason);
        }
        if let Some(reason) = self.group.failed() {
            return Err(reason);
        }
        let table = self.member.routing().map_err(|fault| fault.message)?;
        self.member.slot(&table).map_err(|fault| fault.message)?;
        let registers = self.member.registers().map_err(|fault| fault.message)?;
        self.has_quorums(&table, &registers.lost())
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
             them; if one is lost for good, see `kvctl replace-node --help`",
            lost.join(", ")
        ))
    }
}
