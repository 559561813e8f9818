//! State that all parts of a node share.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use torc_access::attempts::Attempts;
use torc_access::audit::{Act, Audit};
use torc_access::caller::Caller;
use torc_access::tls_dir::OwnAuthority;
use torc_console::Console;
use torc_driver::Registers;
use torc_group::TopologyGroup;
use torc_hot::Hot;
use torc_limits::connections::Entrance;
use torc_links::LinkService;
use torc_proto::{Access, Fault, Reason, TraceContext};
use torc_record::{Epoch, NodeSlot};
use torc_ring::topology::{Boot, PartitionState, Role, RoutingTable};
use torc_ring::{NodeId, Partition};
use torc_store::{Scratch, Store, StoreError};
use torc_telemetry::spans::Tracer;

use crate::addresses::Addresses;
use crate::bearers::Bearers;
use crate::config::Settings;
use crate::identity::Identity;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::moves::Throttle;
use crate::peers::Peers;
use crate::peers::Recipient;
use crate::slow::SlowLog;

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

/// The parts of one node. Any task may use them.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) reached_at: ReachedAt,
    pub(crate) store: Store,
    pub(crate) scratch: Scratch,
    pub(crate) identity: Arc<Identity>,
    /// This start of the data directory.
    pub(crate) boot: Boot,
    /// Whether the topology group has confirmed it; until then, the node is not a replica.
    pub(crate) confirmed: watch::Sender<bool>,
    pub(crate) group: TopologyGroup,
    /// What clients and other nodes may take at a time.
    pub(crate) limits: Limits,
    /// The newest adopted topology.
    pub(crate) routing: ArcSwapOption<RoutingTable>,
    /// The epoch of that topology, for tasks that wait for a newer one.
    pub(crate) adopted: watch::Sender<Epoch>,
    pub(crate) peers: Peers,
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
    /// The replicas and coordinators, once the node has a place in the topology.
    pub(crate) registers: OnceLock<Arc<Registers>>,
    pub(crate) metrics: Metrics,
    pub(crate) slow: SlowLog,
    /// `None` if tracing is off.
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) throttle: Throttle,
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
        let node = self.identity.node();
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
        let cluster = self.identity.membership().map(|it| it.cluster);
        let allowed = caller.check(needed, cluster);
        let allowed = allowed.and_then(|()| caller.check_reach(role, namespace, key));
        allowed.inspect_err(|fault| {
            // Without the key: logs never contain keys.
            self.denied(caller, &format!("{role} of a key in `{namespace}`"), fault);
        })
    }

    /// Records a refused caller in the audit log.
    pub(crate) fn denied(&self, caller: &Caller, call: &str, fault: &Fault) {
        self.audit.denied(self.identity.node(), caller, call, fault);
    }

    /// Records an administrator's request in the audit log.
    pub(crate) fn act(&self, caller: &Caller, call: &str, request: &impl std::fmt::Debug) -> Act {
        Act::begin(&self.audit, self.identity.node(), caller, call, request)
    }
}

impl Shared {
    /// The routing table, once the node is a member of a founded cluster.
    pub(crate) fn routing(&self) -> Result<Arc<RoutingTable>, Fault> {
        self.routing.load_full().ok_or_else(|| {
            let advice = match self.identity.node() {
                Some(_) => "the node does not know its cluster's topology yet: retry",
                None => "this node belongs to no cluster: bootstrap it, or join it to one",
            };
            Fault::new(Reason::NotServing, advice).retry_after(Duration::from_millis(100))
        })
    }

    /// The replicas and coordinators, once the node has a place in the topology.
    pub(crate) fn registers(&self) -> Result<&Arc<Registers>, Fault> {
        self.registers.get().ok_or_else(|| {
            let message = if *self.confirmed.borrow() {
                "the node has no place in its cluster's topology yet: use another node"
            } else {
                "the topology group has not confirmed this start of the node yet, which needs a \
                 majority of its voters: use another node"
            };
            Fault::new(Reason::NotServing, message).retry_after(Duration::from_millis(100))
        })
    }

    /// Whether this node runs the operations of a partition that `lead` leads: as the lead, or
    /// while the lead is out of reach.
    pub(crate) fn goes_here(&self, lead: NodeId) -> bool {
        let is_lead = self.identity.node() == Some(lead);
        let registers = self.registers.get();
        is_lead || registers.is_some_and(|registers| registers.is_out_of_reach(lead))
    }

    /// Another member, to send requests to.
    pub(crate) fn recipient(&self, node: NodeId) -> Result<Recipient, Fault> {
        Recipient::of(&*self.routing()?, node)
    }

    /// This node's id.
    pub(crate) fn node(&self) -> Result<NodeId, Fault> {
        self.identity.node().ok_or_else(|| {
            Fault::new(
                Reason::NotServing,
                "this node belongs to no cluster: bootstrap it, or join it to one",
            )
        })
    }

    /// This node's number in ballots.
    pub(crate) fn slot(&self, table: &RoutingTable) -> Result<NodeSlot, Fault> {
        let member = table.members.get(&self.node()?);
        member.map(|member| member.slot).ok_or_else(|| {
            Fault::new(
                Reason::NotServing,
                "the node is no longer a member of its cluster",
            )
        })
    }

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
        let table = self.routing().map_err(|fault| fault.message)?;
        self.slot(&table).map_err(|fault| fault.message)?;
        let registers = self.registers().map_err(|fault| fault.message)?;
        self.has_quorums(&table, &registers.lost())
    }

    /// Fails if no operation on this node's partitions can succeed.
    fn has_quorums(&self, table: &RoutingTable, lost: &BTreeSet<NodeId>) -> Result<(), String> {
        let me = self.identity.node();
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

/// The partition has moved in epoch `adopted`.
pub(crate) fn stale(partition: Partition, adopted: Epoch) -> Fault {
    let message =
        format!("partition {partition} moved in epoch {adopted}: refresh the topology and retry");
    Fault::new(Reason::StaleEpoch, message).at(adopted)
}

/// The fault that clients get for a store's error.
pub(crate) fn store_fault(error: &StoreError) -> Fault {
    let reason = match error {
        StoreError::OutOfSpace => Reason::OutOfSpace,
        StoreError::Refused(_) | StoreError::Keyless { .. } => Reason::Invalid,
        StoreError::Corrupt { .. }
        | StoreError::LostBatch { .. }
        | StoreError::Damaged { .. }
        | StoreError::BadIngest { .. } => Reason::Corrupt,
        StoreError::Failed { .. } | StoreError::Closed | StoreError::NotHeld { .. } => {
            Reason::NotServing
        }
        _ => Reason::Internal,
    };
    Fault {
        maybe_applied: error.outcome_unknown(),
        ..Fault::new(reason, error.to_string())
    }
}

/// The fault for an error of an object location. An object there is complete or absent.
#[cfg(feature = "objects")]
pub(crate) fn object_fault(error: &torc_objects::ObjectError) -> Fault {
    use torc_objects::ObjectError;
    let reason = match error {
        ObjectError::Url { .. } => Reason::Invalid,
        ObjectError::Damaged { .. } => Reason::Corrupt,
        _ => Reason::NotServing,
    };
    Fault::new(reason, error.to_string())
}

/// The deadline of a request, from its `grpc-timeout` or the default.
pub(crate) fn deadline_of<T>(request: &tonic::Request<T>) -> Instant {
    let stated = request
        .metadata()
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(parse_grpc_timeout);
    Instant::now() + stated.unwrap_or(DEFAULT_DEADLINE)
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

/// At most eight digits and a unit, as the gRPC protocol specifies.
fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    let duration = match unit {
        "H" => Duration::from_secs(count.saturating_mul(3600)),
        "M" => Duration::from_secs(count.saturating_mul(60)),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    };
    Some(duration.min(LONGEST_DEADLINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_timeout_is_read_in_every_unit_and_bounded() {
        assert_eq!(parse_grpc_timeout("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse_grpc_timeout("3S"), Some(Duration::from_secs(3)));
        assert_eq!(parse_grpc_timeout("99999999H"), Some(LONGEST_DEADLINE));
        for text in ["", "m", "5", "5x", "123456789m", "-1S", "é"] {
            assert_eq!(parse_grpc_timeout(text), None, "{text:?}");
        }
    }
}
