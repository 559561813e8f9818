//! Creates and drops namespaces.

use std::time::{Duration, Instant};

use futures::future::join_all;
use torc_proto::v1::{
    CreateNamespaceRequest, CreateNamespaceResponse, DropNamespaceRequest, DropNamespaceResponse,
    RaiseEpochRequest, RaiseEpochResponse,
};
use torc_proto::{Fault, namespace_to_wire};
use torc_record::Epoch;
use torc_ring::NodeId;
use torc_ring::topology::{self, Command, RoutingTable};

use super::node::ClusterNode;
use super::{generation, new_namespace, status};

/// Time for members to learn of a new namespace; slower members learn of it later.
const HEAR_TIME: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(20);

pub(super) async fn create(
    this: &ClusterNode,
    request: CreateNamespaceRequest,
    deadline: Instant,
) -> Result<CreateNamespaceResponse, Fault> {
    let new = new_namespace::checked(request)?;
    let name = new.name.clone();
    let command = Command::CreateNamespace(new);
    this.group.propose(command, deadline).await?;
    let heard = all_heard(this, HEAR_TIME, deadline).await;
    let (table, _) = heard.map_err(Fault::after_change)?;
    let namespace = table.namespaces.get(&name);
    Ok(CreateNamespaceResponse {
        namespace: namespace.map(|namespace| namespace_to_wire(&name, *namespace)),
    })
}

/// Drops a namespace, and waits until no member answers from it or until shortly before the
/// deadline.
pub(super) async fn drop(
    this: &ClusterNode,
    request: DropNamespaceRequest,
    deadline: Instant,
) -> Result<DropNamespaceResponse, Fault> {
    let topology = this.group.read_current(deadline).await?;
    // The topology refuses an unknown namespace below.
    let id = topology.namespace(&request.name).map(|known| known.id);
    let command = Command::DropNamespace { name: request.name };
    let command = command.once(rand::random());
    this.group.propose(command, deadline).await?;
    let name = id.map(topology::dropped_name).unwrap_or_default();
    let heard = generation::heard(this, &name, false, deadline);
    let unconfirmed = heard.await.map_err(Fault::after_change)?;
    Ok(DropNamespaceResponse {
        unconfirmed: unconfirmed.into_iter().map(|node| node.0).collect(),
    })
}

/// Raises the epoch of a namespace's partitions, and waits until every member acts in it or until
/// shortly before the deadline.
pub(super) async fn raise_epoch(
    this: &ClusterNode,
    request: RaiseEpochRequest,
    deadline: Instant,
) -> Result<RaiseEpochResponse, Fault> {
    let RaiseEpochRequest { namespace, above } = request;
    let above = Epoch(above);
    loop {
        let command = Command::RaiseEpoch {
            namespace: namespace.clone(),
            above,
        };
        this.group.propose(command, deadline).await?;
        let heard = async {
            let unconfirmed = generation::heard(this, &namespace, false, deadline).await?;
            Ok((unconfirmed, this.group.read_current(deadline).await?))
        };
        let (unconfirmed, topology) = heard.await.map_err(Fault::after_change)?;
        // One command raises it by a limited number of epochs, and the next only once all members are there.
        if !unconfirmed.is_empty() || topology.is_above(&namespace, above) {
            let unconfirmed = unconfirmed.into_iter().map(|node| node.0).collect();
            return Ok(RaiseEpochResponse { unconfirmed });
        }
    }
}

/// Waits until every member has adopted the topology committed before the call, at most for `time`.
/// Does not wait for members that do not answer: they learn of it when they are back. Returns the
/// topology, and the members that may not have adopted it.
pub(super) async fn all_heard(
    this: &ClusterNode,
    time: Duration,
    deadline: Instant,
) -> Result<(RoutingTable, Vec<NodeId>), Fault> {
    let table = this.group.read_current(deadline).await?.routing();
    let until = deadline.min(Instant::now() + time);
    let hearing = table.members.keys().map(async |id| {
        let hearing = heard(this, *id, table.epoch);
        let heard = tokio::time::timeout_at(until.into(), hearing).await;
        (!heard.unwrap_or(false)).then_some(*id)
    });
    let unconfirmed = join_all(hearing).await.into_iter().flatten().collect();
    Ok((table, unconfirmed))
}

/// Waits until a member has adopted this epoch or a later one. Returns false if it does not answer.
async fn heard(this: &ClusterNode, node: NodeId, epoch: Epoch) -> bool {
    loop {
        let adopted = if this.member.identity.node() == Some(node) {
            this.member.routing().map(|table| table.epoch)
        } else {
            let status = status::ask(this, node).await;
            status.map(|status| Epoch(status.epoch))
        };
        match adopted {
            Ok(adopted) if adopted < epoch => tokio::time::sleep(ASK_AGAIN).await,
            adopted => return adopted.is_ok(),
        }
    }
}
