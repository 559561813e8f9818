//! This node as its cluster knows it.

use std::net::SocketAddr;
use std::sync::Arc;

use torc_group::TopologyGroup;
use torc_member::LocalMember;
use torc_record::HybridTime;
use torc_ring::topology::Boot;
use torc_store::Store;

use crate::config::Settings;

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

/// What founding and joining a cluster, and coming back to it, need of a node.
pub(crate) struct OwnNode {
    pub(crate) settings: Arc<Settings>,
    pub(crate) reached_at: Arc<ReachedAt>,
    /// The node in its cluster.
    pub(crate) member: Arc<LocalMember>,
    pub(crate) group: TopologyGroup,
    pub(crate) store: Store,
    /// This start of the data directory.
    pub(crate) boot: Boot,
    /// No earlier process of the data directory has used a clock reading above this one.
    pub(crate) ceiling: HybridTime,
}

impl std::fmt::Debug for OwnNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnNode")
            .field("address", &self.reached_at.grpc)
            .field("node", &self.member.identity.node())
            .finish_non_exhaustive()
    }
}
