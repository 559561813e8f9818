//! State that all parts of a node share.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use torc_access::attempts::Attempts;
use torc_access::audit::{Act, Audit};
use torc_access::caller::Caller;
use torc_access::tls_dir::OwnAuthority;
use torc_console::Console;
use torc_group::TopologyGroup;
use torc_hot::Hot;
use torc_limits::connections::Entrance;
use torc_links::LinkService;
use torc_member::LocalMember;
use torc_member::addresses::Addresses;
use torc_proto::{Access, Fault, TraceContext, timeout_of};
use torc_ring::NodeId;
use torc_ring::topology::{Boot, PartitionState, Role, RoutingTable};
use torc_store::{Scratch, Store};
use torc_telemetry::slow::SlowLog;
use torc_telemetry::spans::Tracer;
use torc_transfers::Transfers;

use crate::bearers::Bearers;
use crate::config::Settings;
use crate::limits::Limits;
use crate::metrics::Metrics;

/// Default time limit of an operation.
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Upper bound on the time limit of an operation.
pub(crate) const LONGEST_DEADLINE: Duration = Duration::from_secs(60);

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
    /// The node in its cluster.
    pub(crate) member: Arc<LocalMember>,
    /// This start of the data directory.
    pub(crate) boot: Boot,
    pub(crate) group: TopologyGroup,
    /// What clients and other nodes may take at a time.
    pub(crate) limits: Limits,
    /// The addresses of the other members.
    pub(crate) addresses: Arc<Addresses>,
    /// What all ports need to accept connections.
    pub(crate) entrance: Entrance,
    /// `None` if certificates come from files or TLS is off.
    pub(crate) own_authority: Option<Arc<OwnAuthority>>,
    /// Limits the join attempts of strangers.
    pub(crate) attempts: Attempts,
    pub(crate) bearers: Arc<Bearers>,
    pub(crate) audit: Arc<Audit>,
    /// The receiving end of messages between replicas, once the registers exist.
    pub(crate) link_service: OnceLock<LinkService>,
    pub(crate) metrics: Metrics,
    pub(crate) slow: SlowLog,
    /// `None` if tracing is off.
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) hot: Arc<Hot>,
    pub(crate) console: Arc<Console>,
    pub(crate) started: Instant,
    /// The runtimes of the threads that serve gRPC, set once these run.
    pub(crate) workers: OnceLock<Vec<Handle>>,
    /// Cancelled when the node is about to stop: it still serves everything, and asks callers to
    /// move.
    pub(crate) leaving: CancellationToken,
    /// Cancelled when the node accepts no more operations; those under way end.
    pub(crate) closing: CancellationToken,
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

/// Authorisation.
impl Shared {
    /// Refuses a caller that may not do this to a key. An empty key stands for all keys of the
    /// namespace.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` or `PERMISSION_DENIED`, before any lookup.
    pub(crate) fn may(
        &self,
        caller: &Caller,
        role: Role,
        namespace: &str,
        key: &[u8],
    ) -> Result<(), Fault> {
        if caller.is_anyone() {
            return Ok(());
        }
        let needed = match role {
            Role::Read => Access::Read,
            Role::Write => Access::Write,
            Role::Observe => Access::Observe,
            Role::Admin => Access::Admin,
        };
        let cluster = self.member.identity.membership().map(|it| it.cluster);
        let allowed = caller.check(needed, cluster);
        let allowed = allowed.and_then(|()| caller.check_reach(role, namespace, key));
        allowed.inspect_err(|fault| {
            // Without the key: logs never contain keys.
            self.denied(caller, &format!("{role} of a key in `{namespace}`"), fault);
        })
    }

    /// Records a refused caller in the audit log.
    pub(crate) fn denied(&self, caller: &Caller, call: &str, fault: &Fault) {
        self.audit
            .denied(self.member.identity.node(), caller, call, fault);
    }

    /// Records an administrator's request in the audit log.
    pub(crate) fn act(&self, caller: &Caller, call: &str, request: &impl std::fmt::Debug) -> Act {
        Act::begin(
            &self.audit,
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
        if self.leaving.is_cancelled() {
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

/// The deadline of a request, from its `grpc-timeout` or the default.
pub(crate) fn deadline_of<T>(request: &tonic::Request<T>) -> Instant {
    let stated = request
        .metadata()
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(timeout_of);
    let timeout = stated.map_or(DEFAULT_DEADLINE, |stated| stated.min(LONGEST_DEADLINE));
    Instant::now() + timeout
}

/// The deadline of an operation, and the span that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallContext {
    pub(crate) deadline: Instant,
    /// `None` if it is not traced.
    pub(crate) trace: Option<TraceContext>,
}

impl CallContext {
    /// The time left until the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_deadline_is_kept_and_bounded() {
        let stated = |timeout: &'static str| {
            let mut request = tonic::Request::new(());
            let value = tonic::metadata::MetadataValue::from_static(timeout);
            request.metadata_mut().insert("grpc-timeout", value);
            let before = Instant::now();
            let left = deadline_of(&request) - before;
            left.as_secs()
        };
        assert_eq!(stated("3S"), 3);
        assert_eq!(stated("99999999H"), LONGEST_DEADLINE.as_secs());
        assert_eq!(stated("+3S"), DEFAULT_DEADLINE.as_secs());
    }
}
