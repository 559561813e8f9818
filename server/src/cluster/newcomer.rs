//! Checks a node that is about to become a member, and tells it its id.

use std::time::Duration;

use torc_member::peers::within;
use torc_proto::v1::{EnlistRequest, IdentifyRequest, IdentifyResponse};
use torc_proto::{Fault, Reason, deepest};
use torc_ring::topology::{Incarnation, Levels, NewMember, Outcome, Release, Topology};
use torc_ring::{NodeId, Weight, Zone};

use super::node::ClusterNode;
use super::target::resolve;

const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn identify(this: &ClusterNode, address: &str) -> Result<IdentifyResponse, Fault> {
    let resolved = resolve(address).await?.to_string();
    let mut client = this.member.peers.stranger(&resolved)?;
    let answer = client
        .identify(within(IDENTIFY_TIMEOUT, IdentifyRequest::default()))
        .await;
    answer.map(tonic::Response::into_inner).map_err(|status| {
        let cause = std::error::Error::source(&status).map(deepest);
        let cause = cause.unwrap_or_else(|| status.message().to_owned());
        let message = format!(
            "cannot reach the node at {address}: {cause}. Nothing was changed: retry when it answers there"
        );
        Fault::new(Reason::Refused, message)
    })
}

pub(super) fn check_newcomer(
    this: &ClusterNode,
    topology: &Topology,
    address: &str,
    newcomer: &IdentifyResponse,
) -> Result<(), Fault> {
    let refuse = |message: String| Err(Fault::new(Reason::Refused, message));
    let (ours, theirs) = (this.settings.store.partitions.count(), newcomer.partitions);
    if theirs != ours {
        return refuse(format!(
            "the node at {address} was started with --partitions {theirs}, but this cluster has {ours}: \
             start it with an empty data directory and --partitions {ours}"
        ));
    }
    if newcomer.cluster_id.is_empty() {
        if newcomer.empty {
            return Ok(());
        }
        return refuse(format!(
            "the node at {address} holds records: start it with an empty data directory"
        ));
    }
    if newcomer.cluster_id[..] != topology.cluster().0 {
        return refuse(format!(
            "the node at {address} belongs to another cluster: start it with an empty data directory"
        ));
    }
    if topology.members().contains_key(&NodeId(newcomer.node)) {
        return Ok(());
    }
    refuse(format!(
        "the node at {address} has left this cluster: start it with an empty data directory"
    ))
}

pub(super) fn new_member(address: &str, newcomer: &IdentifyResponse) -> Result<NewMember, Fault> {
    let malformed = |what: &str| {
        Fault::new(
            Reason::Invalid,
            format!("the node at {address} sent a malformed {what}"),
        )
    };
    let incarnation = <[u8; 16]>::try_from(&newcomer.incarnation[..]);
    Ok(NewMember {
        release: release_of(newcomer),
        incarnation: Incarnation(incarnation.map_err(|_| malformed("incarnation"))?),
        address: newcomer.address.clone(),
        peer_address: newcomer.peer_address.clone(),
        http_address: newcomer.http_address.clone(),
        zone: Zone::new(newcomer.zone.clone()).map_err(|_| malformed("zone"))?,
        weight: Weight::new(newcomer.weight).map_err(|_| malformed("weight"))?,
    })
}

/// The release that a node reports.
pub(crate) fn release_of(node: &IdentifyResponse) -> Release {
    Release {
        version: node.version.clone(),
        levels: Levels {
            oldest: node.oldest_level,
            newest: node.newest_level,
        },
    }
}

pub(super) async fn enlist(
    this: &ClusterNode,
    topology: &Topology,
    node: NodeId,
    newcomer: &IdentifyResponse,
) -> Result<(), Fault> {
    let request = EnlistRequest {
        cluster_id: topology.cluster().0.to_vec().into(),
        node: node.0,
        incarnation: newcomer.incarnation.clone(),
    };
    let resolved = resolve(&newcomer.peer_address).await?.to_string();
    let mut client = this.member.peers.stranger(&resolved)?;
    let answer = client.enlist(within(IDENTIFY_TIMEOUT, request)).await;
    // A retry repairs the member table if the call failed, so its outcome is never in doubt.
    answer.map(drop).map_err(|status| Fault {
        maybe_applied: false,
        ..Fault::from_status(&status)
    })
}

pub(super) fn enrolled(outcome: &Outcome) -> Result<NodeId, Fault> {
    match outcome {
        Outcome::Enrolled { node, .. } => Ok(*node),
        Outcome::Done | Outcome::Begun { .. } | Outcome::Reserved { .. } => Err(Fault::new(
            Reason::Internal,
            "an unexpected outcome: report this",
        )),
    }
}
