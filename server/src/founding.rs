//! Founds a cluster, and brings a member back after a restart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_group::Enlister;
use torc_member::identity::Membership;
use torc_member::peers::within;
use torc_proto::v1::{EnlistRequest, IdentifyRequest, IdentifyResponse};
use torc_proto::{Fault, Reason};
use torc_record::DigestKey;
use torc_ring::topology::{ClusterId, Command, Founding, Incarnation, Member, NewMember};
use torc_ring::{NodeId, Weight, Zone};

use crate::cluster::release_of;
use crate::own_node::OwnNode;

const RETRY: Duration = Duration::from_millis(200);
/// Nodes that start together may need this long until all of them listen, so no warning before.
const START_TOGETHER: Duration = Duration::from_secs(3);
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The founder is the first member.
const FOUNDER: NodeId = NodeId(1);

/// Whether this node must found a cluster and has not finished doing so.
pub(crate) fn is_due(own: &OwnNode) -> bool {
    let node = own.member.identity.node();
    let may = node.is_none_or(|node| node == FOUNDER);
    own.settings.bootstrap && may && own.group.topology().is_none()
}

/// Founds the cluster if this node must and has not. Repeats the steps that a crash left undone.
pub(crate) async fn found(own: Arc<OwnNode>) {
    if !is_due(&own) {
        return;
    }
    let began = Instant::now();
    loop {
        match try_found(&own).await {
            Ok(()) => return,
            Err(fault) if began.elapsed() < START_TOGETHER => {
                tracing::info!(%fault, "the cluster is not founded yet; retrying");
            }
            Err(fault) => tracing::warn!(%fault, "the cluster is not founded yet; retrying"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn try_found(own: &OwnNode) -> Result<(), Fault> {
    let membership = own.member.identity.membership();
    let known = membership.map(|membership| membership.cluster);
    let cluster = known.unwrap_or_else(|| ClusterId(rand::random()));
    let mut members = vec![self_as_member(own)];
    for address in &own.settings.found_with {
        let member = founding_member(own, address).await?;
        // A list that every node was started with has this node too, and may name one twice.
        if members
            .iter()
            .all(|it| it.incarnation != member.incarnation)
        {
            members.push(member);
        }
    }
    let membership = Membership {
        cluster,
        node: FOUNDER,
    };
    own.member
        .identity
        .enlist(&own.store, membership)
        .map_err(|error| Fault::new(Reason::Internal, error.to_string()))?;
    let founding = Founding {
        cluster,
        digest_key: DigestKey(rand::random()),
        partitions: own.settings.store.partitions,
        replicas: own.settings.replicas,
        positions: own.settings.positions,
        members,
    };
    let count = founding.members.len();
    own.group.found(FOUNDER, founding).await?;
    tracing::info!(%cluster, members = count, "founded a cluster");
    Ok(())
}

fn self_as_member(own: &OwnNode) -> NewMember {
    NewMember {
        incarnation: own.member.identity.incarnation,
        address: own.reached_at.grpc.clone(),
        peer_address: own.reached_at.peers.clone(),
        http_address: own.reached_at.http.clone(),
        zone: own.settings.zone.clone(),
        weight: own.settings.weight,
        release: own.settings.release.clone(),
    }
}

async fn founding_member(own: &OwnNode, address: &str) -> Result<NewMember, Fault> {
    let mut client = own.member.peers.stranger(address)?;
    let answer = client
        .identify(within(ASK_TIMEOUT, IdentifyRequest::default()))
        .await;
    let peer: IdentifyResponse = answer.map_err(|s| Fault::from_status(&s))?.into_inner();
    let refuse = |why: &str| Fault::new(Reason::Refused, format!("the node at {address} {why}"));
    if peer.incarnation[..] == own.member.identity.incarnation.0 {
        return Ok(self_as_member(own));
    }
    if peer.founding {
        return Err(refuse(
            "was started with --bootstrap too: start a single node with it, and the others without",
        ));
    }
    // A node learns of its cluster only once that is founded, so a peer that belongs to one shows
    // that another founding came first.
    if !peer.cluster_id.is_empty() {
        return Err(refuse(
            "already belongs to a cluster: join this node to it instead",
        ));
    }
    if !peer.empty {
        return Err(refuse(
            "already holds records: start it with an empty data directory",
        ));
    }
    if peer.partitions != own.settings.store.partitions.count() {
        return Err(refuse(
            "was started with another number of partitions: use the same on every node",
        ));
    }
    let incarnation = <[u8; 16]>::try_from(&peer.incarnation[..]);
    Ok(NewMember {
        release: release_of(&peer),
        incarnation: Incarnation(incarnation.map_err(|_| refuse("has no name"))?),
        address: peer.address,
        peer_address: peer.peer_address,
        http_address: peer.http_address,
        zone: Zone::new(peer.zone).map_err(|_| refuse("has a malformed zone"))?,
        weight: Weight::new(peer.weight).map_err(|_| refuse("has a malformed weight"))?,
    })
}

/// Announces this node's current address to the cluster, if it has changed.
pub(crate) async fn announce_address(own: Arc<OwnNode>) {
    let mut changes = own.member.adopted.subscribe();
    loop {
        if let (Ok(table), Ok(node)) = (own.member.routing(), own.member.node()) {
            let known = table.members.get(&node).map(|member| &member.identity);
            let moved = known.is_some_and(|known| {
                known.address != own.reached_at.grpc
                    || known.peer_address != own.reached_at.peers
                    || known.http_address != own.reached_at.http
            });
            if !moved {
                return;
            }
            let address = own.reached_at.grpc.clone();
            let peer_address = own.reached_at.peers.clone();
            let http_address = own.reached_at.http.clone();
            let command = Command::Relocate {
                node,
                address,
                peer_address,
                http_address,
            };
            let deadline = Instant::now() + PROPOSE_TIMEOUT;
            if let Err(error) = own.group.propose(command, deadline).await {
                tracing::warn!(%error, "could not report this node's new address to the cluster; retrying");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Enlists new members by RPC, for the leader of the topology group.
pub(crate) struct EnlistByRpc(pub(crate) Arc<OwnNode>);

impl Enlister for EnlistByRpc {
    fn enlist<'a>(
        &'a self,
        node: NodeId,
        member: &'a Member,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Fault>> + Send + 'a>> {
        Box::pin(async move {
            let cluster = self.0.group.topology().map(|topology| topology.cluster());
            let cluster = cluster
                .ok_or_else(|| Fault::new(Reason::NotServing, "the cluster is not founded yet"))?;
            let request = EnlistRequest {
                cluster_id: cluster.0.to_vec().into(),
                node: node.0,
                incarnation: member.identity.incarnation.0.to_vec().into(),
            };
            let mut client = self
                .0
                .member
                .peers
                .stranger(&member.identity.peer_address)?;
            let answer = client.enlist(within(ASK_TIMEOUT, request)).await;
            answer
                .map(drop)
                .map_err(|status| Fault::from_status(&status))
        })
    }
}
