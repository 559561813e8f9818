//! What the operations on keys need of the node that runs them.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use torc_access::audit::Audit;
use torc_access::caller::Caller;
use torc_hot::Hot;
use torc_member::LocalMember;
use torc_proto::{Access, Fault};
use torc_ring::topology::Role;
use torc_store::Store;
use torc_telemetry::slow::SlowLog;
use torc_telemetry::spans::Tracer;

use crate::limits::Limits;
use crate::metrics::KeyMetrics;

/// A node, as far as operations on keys use it.
pub(crate) struct KvNode {
    /// The node in its cluster.
    pub(crate) member: Arc<LocalMember>,
    pub(crate) store: Store,
    /// What clients and other nodes may take at a time.
    pub(crate) limits: Limits,
    pub(crate) hot: Arc<Hot>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) metrics: Arc<KeyMetrics>,
    pub(crate) slow: SlowLog,
    /// `None` if tracing is off.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// How long a reader may take for a page of a scan.
    pub(crate) idle_time: Duration,
    /// Cancelled when the node is about to stop: it still serves everything, and asks callers to
    /// move.
    pub(crate) leaving: CancellationToken,
    /// Cancelled when the node accepts no more operations; those under way end.
    pub(crate) closing: CancellationToken,
}

impl KvNode {
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
}

impl std::fmt::Debug for KvNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let node = self.member.identity.node();
        f.debug_struct("KvNode")
            .field("node", &node)
            .finish_non_exhaustive()
    }
}
