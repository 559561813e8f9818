//! Asks one peer for the topology.

use std::time::Duration;

use tokio::time::Instant;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::{Fault, MAX_MESSAGE_LEN, Reason, v1};

use super::Peer;
use super::attempt::{attempt, request};
use crate::naming::Connection;

/// The fault of an unanswered request for a topology; such a request changes nothing.
fn asked_in_vain(fault: Fault) -> Fault {
    // Its own time limit is that of a round, not of the caller, who may have more time.
    if fault.maybe_applied || fault.reason == Reason::Deadline {
        Fault::new(Reason::OwnerUnreachable, fault.message)
    } else {
        fault
    }
}

pub(crate) async fn fetch_topology(
    peer: &Peer,
    known_epoch: u64,
    deadline: Instant,
) -> Result<v1::Topology, Fault> {
    let answer = attempt(peer, deadline, |channel: Connection, budget| async move {
        let mut client = ClusterClient::new(channel).max_decoding_message_size(MAX_MESSAGE_LEN);
        let request = request(v1::GetTopologyRequest { known_epoch }, budget);
        client.get_topology(request).await
    });
    let answer = answer
        .await
        .map_err(|failure| asked_in_vain(failure.fault))?;
    let nothing = || Fault::new(Reason::Internal, "a node answered without a topology");
    answer.topology.ok_or_else(nothing)
}

/// Whether a peer answers at all within this time.
pub(super) async fn answers_within(peer: &Peer, time: Duration) -> bool {
    let asked = std::time::Instant::now();
    let newest = u64::MAX;
    fetch_topology(peer, newest, Instant::now() + time)
        .await
        .is_ok()
        || peer.was_heard_since(asked)
}
