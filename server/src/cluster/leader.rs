//! Forwards requests that only the leader of the topology group carries out. A request is
//! forwarded at most once.

use std::time::{Duration, Instant};

use tonic::Request;
use torc_member::peers::{Recipient, within};
use torc_proto::{Fault, Reason};

use super::node::ClusterNode;

/// Metadata of a request that was already forwarded once.
const PASSED_ON: &str = "torc-passed-on";

/// The leader, unless this node leads.
pub(super) fn leader_elsewhere<T>(
    this: &ClusterNode,
    request: &Request<T>,
) -> Result<Option<Recipient>, Fault> {
    if this.group.is_leader() {
        return Ok(None);
    }
    let no_leader = || {
        Fault::new(
            Reason::NoTopologyLeader,
            "the topology group has no leader now: retry; if most of its nodes are lost for good, see `kvd recover --help`",
        )
        .retry_after(Duration::from_millis(300))
    };
    if request.metadata().contains_key(PASSED_ON) {
        return Err(no_leader());
    }
    let leader = this.group.leader().ok_or_else(no_leader)?;
    let recipient = this.member.recipient(leader);
    recipient.map(Some).map_err(|_| no_leader())
}

pub(super) fn pass_on<T>(deadline: Instant, message: T) -> Request<T> {
    let mut request = within(deadline.saturating_duration_since(Instant::now()), message);
    request
        .metadata_mut()
        .insert(PASSED_ON, tonic::metadata::MetadataValue::from_static("1"));
    request
}
