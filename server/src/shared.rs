//! What all parts of a node hold.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use torc_proto::{Fault, Reason};
use torc_record::NodeSlot;
use torc_ring::NodeId;
use torc_ring::topology::RoutingTable;
use torc_store::{Advisory, Store, StoreError};

use crate::admission::Admission;
use crate::clock::Clock;
use crate::config::Settings;
use crate::gate::Gates;
use crate::group::TopologyGroup;
use crate::hot::Hot;
use crate::identity::Identity;
use crate::links::LinkService;
use crate::metrics::Metrics;
use crate::moves::Throttle;
use crate::order::KeyOrder;
use crate::peers::Peers;
use crate::registers::Registers;

/// How long an operation may take when its caller set no limit.
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// One node's parts. Everything here may be used from any task.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) address: String,
    pub(crate) http_address: String,
    pub(crate) store: Store,
    pub(crate) advisory: Advisory,
    pub(crate) identity: Identity,
    pub(crate) group: TopologyGroup,
    pub(crate) gates: Gates,
    pub(crate) order: KeyOrder,
    pub(crate) admission: Admission,
    /// The newest adopted topology.
    pub(crate) routing: ArcSwapOption<RoutingTable>,
    pub(crate) clock: Clock,
    pub(crate) peers: Peers,
    /// The receiving end of messages between replicas, once there is somebody to take them.
    pub(crate) link_service: OnceLock<LinkService>,
    /// The replicas and coordinators, where partitions have several replicas.
    pub(crate) registers: OnceLock<Arc<Registers>>,
    pub(crate) metrics: Metrics,
    pub(crate) throttle: Throttle,
    pub(crate) hot: Hot,
    /// Sketches of keys that are made at a time.
    pub(crate) sketchers: Semaphore,
    /// Arrivals that are written and verified at a time, as many as there are threads that
    /// serve. More would wait for one another's file, each on a thread with memory of its own.
    pub(crate) landers: Semaphore,
    pub(crate) started: Instant,
    /// The runtimes of the threads that serve gRPC, from when they do.
    pub(crate) workers: OnceLock<Vec<Handle>>,
    pub(crate) cancel: CancellationToken,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let node = self.identity.node();
        f.debug_struct("Shared")
            .field("address", &self.address)
            .field("node", &node)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// The routing table, once the node is a member of a founded cluster.
    pub(crate) fn routing(&self) -> Result<Arc<RoutingTable>, Fault> {
        self.routing.load_full().ok_or_else(|| {
            let advice = match self.identity.node() {
                Some(_) => "the node has not heard of its cluster's topology yet: try again",
                None => "the node belongs to no cluster: bootstrap it or join it to one",
            };
            Fault::new(Reason::NotServing, advice).retry_after(Duration::from_millis(100))
        })
    }

    /// Whether operations of a partition that `lead` leads are carried out here: by the lead,
    /// and where any node can, while the lead is out of reach.
    pub(crate) fn goes_here(&self, lead: NodeId) -> bool {
        let is_lead = self.identity.node() == Some(lead);
        let registers = self.registers.get();
        is_lead || registers.is_some_and(|registers| registers.is_out_of_reach(lead))
    }

    /// Whether any node can carry out any operation: partitions have several replicas.
    pub(crate) fn any_node_can(&self) -> bool {
        self.registers.get().is_some()
    }

    /// This node's id.
    pub(crate) fn node(&self) -> Result<NodeId, Fault> {
        self.identity.node().ok_or_else(|| {
            Fault::new(
                Reason::NotServing,
                "the node belongs to no cluster: bootstrap it or join it to one",
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

    /// Whether the node is a member and has adopted a topology.
    pub(crate) fn ready(&self) -> Result<(), String> {
        if let torc_store::StoreHealth::Failed(reason) = self.store.health() {
            return Err(reason);
        }
        if let Some(reason) = self.group.failed() {
            return Err(reason);
        }
        let table = self.routing().map_err(|fault| fault.message)?;
        self.slot(&table).map(drop).map_err(|fault| fault.message)
    }
}

/// A store's error as clients see it.
pub(crate) fn store_fault(error: &StoreError) -> Fault {
    let reason = match error {
        StoreError::OutOfSpace => Reason::OutOfSpace,
        StoreError::OverlayFull { .. } => Reason::Overloaded,
        StoreError::Refused(_) => Reason::Invalid,
        StoreError::Corrupt { .. } | StoreError::Damaged { .. } | StoreError::BadArrival { .. } => {
            Reason::Corrupt
        }
        StoreError::Failed { .. } | StoreError::Closed => Reason::NotServing,
        _ => Reason::Internal,
    };
    Fault {
        maybe_applied: error.outcome_unknown(),
        ..Fault::new(reason, error.to_string())
    }
}

/// When a request must be answered: by its `grpc-timeout`, or the default.
pub(crate) fn deadline_of<T>(request: &tonic::Request<T>) -> Instant {
    let stated = request
        .metadata()
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(parse_grpc_timeout);
    Instant::now() + stated.unwrap_or(DEFAULT_DEADLINE)
}

/// At most eight digits and a unit, as the gRPC protocol has it.
fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
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
    Some(duration.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_timeout_is_read_in_every_unit_and_bounded() {
        assert_eq!(parse_grpc_timeout("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse_grpc_timeout("3S"), Some(Duration::from_secs(3)));
        assert_eq!(
            parse_grpc_timeout("99999999H"),
            Some(Duration::from_secs(24 * 3600))
        );
        for text in ["", "m", "5", "5x", "123456789m", "-1S", "é"] {
            assert_eq!(parse_grpc_timeout(text), None, "{text:?}");
        }
    }
}
