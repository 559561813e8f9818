//! The `Replica` service, which nodes call on one another.

use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tonic::{Request, Response, Status, Streaming};
use torc_access::audit::{Act, Audit};
use torc_access::tls_dir::OwnAuthority;
use torc_links::{LinkService, LinkStream};
use torc_member::fault::store_fault;
use torc_member::identity::{IdentityError, Membership};
use torc_proto::v1;
use torc_proto::v1::replica_server::Replica;
use torc_proto::v1::{
    CopySlicesRequest, EnlistRequest, EnlistResponse, GiveAuthorityRequest, GiveAuthorityResponse,
    IdentifyRequest, IdentifyResponse, LinkRequest, SummarizeRequest, SummarizeResponse,
};
use torc_proto::{Fault, Reason};
use torc_record::Layer;
use torc_ring::topology::{ClusterId, Incarnation};
use torc_ring::{NodeId, Partition};
use torc_store::Store;
use torc_transfers::Transfers;
use torc_transfers::send::{self, CopyStream};

use crate::founding;
use crate::own_node::OwnNode;
use crate::rotation;
use torc_limits::connections::caller_of;

/// The service.
pub(crate) struct ReplicaService {
    pub(crate) own: Arc<OwnNode>,
    /// The node's runtime, which outlives the threads that serve.
    pub(crate) runtime: Handle,
    pub(crate) transfers: Arc<Transfers>,
    /// Receives the messages between replicas, once this node has replicas.
    pub(crate) links: Arc<OnceLock<LinkService>>,
    pub(crate) audit: Arc<Audit>,
    /// `None` if certificates come from files or TLS is off.
    pub(crate) own_authority: Option<Arc<OwnAuthority>>,
}

#[tonic::async_trait]
impl Replica for ReplicaService {
    type CopySlicesStream = CopyStream;
    type LinkStream = LinkStream;

    async fn identify(
        &self,
        request: Request<IdentifyRequest>,
    ) -> Result<Response<IdentifyResponse>, Status> {
        let own = &self.own;
        if let (Some(start), Some(links)) = (&request.get_ref().start, self.links.get()) {
            links.check_start(start)?;
        }
        let membership = own.member.identity.membership();
        let cluster = membership.map(|m| m.cluster.0.to_vec()).unwrap_or_default();
        Ok(Response::new(IdentifyResponse {
            incarnation: own.member.identity.incarnation.0.to_vec().into(),
            cluster_id: cluster.into(),
            node: membership.map_or(0, |m| m.node.0),
            address: own.reached_at.grpc.clone(),
            peer_address: own.reached_at.peers.clone(),
            http_address: own.reached_at.http.clone(),
            zone: own.settings.zone.to_string(),
            weight: own.settings.weight.percent(),
            version: own.settings.release.version.clone(),
            oldest_level: own.settings.release.levels.oldest,
            newest_level: own.settings.release.levels.newest,
            empty: own.store.stats().records == 0,
            partitions: own.settings.store.partitions.count(),
            boot: Some(own.boot.into()),
            founding: founding::is_due(own),
        }))
    }

    async fn enlist(
        &self,
        request: Request<EnlistRequest>,
    ) -> Result<Response<EnlistResponse>, Status> {
        // The topology group starts on the runtime of this call.
        let enlisting = enlist(Arc::clone(&self.own), request.into_inner());
        let enlisted = self.runtime.spawn(enlisting).await;
        enlisted.map_err(|_| enlisting_failed())??;
        Ok(Response::new(EnlistResponse {}))
    }

    async fn copy_slices(
        &self,
        request: Request<CopySlicesRequest>,
    ) -> Result<Response<Self::CopySlicesStream>, Status> {
        let stream = send::start(&self.transfers, request.get_ref()).await?;
        Ok(Response::new(stream))
    }

    async fn summarize(
        &self,
        request: Request<SummarizeRequest>,
    ) -> Result<Response<SummarizeResponse>, Status> {
        let asked = request.into_inner().partitions;
        let all = asked.is_empty();
        let partitions = self.own.settings.store.partitions;
        let exists = |partition: &u32| partitions.contains(Partition(*partition));
        let most = partitions.count() as usize * Layer::COUNT;
        if asked.len() > most || !asked.iter().all(exists) {
            return Err(Fault::new(Reason::Invalid, "there is no such partition").into());
        }
        let partitions = if all {
            let held = self.own.store.partitions().into_iter();
            held.map(|partition| partition.0).collect()
        } else {
            asked
        };
        let store = self.own.store.clone();
        let summarizing = tokio::task::spawn_blocking(move || {
            let partitions = partitions.into_iter();
            let summaries = partitions.map(|p| summary(&store, Partition(p)));
            let summaries = summaries.filter(|summary| !all || summary.records > 0);
            summaries.collect()
        });
        let summaries = summarizing.await.map_err(|_| {
            let message = "summarizing partitions failed: report this";
            Fault::new(Reason::Internal, message)
        })?;
        Ok(Response::new(SummarizeResponse { summaries }))
    }

    async fn link(
        &self,
        request: Request<Streaming<LinkRequest>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let service = self.links.get().ok_or_else(|| {
            Fault::new(
                Reason::NotServing,
                "this node does not take part in replication yet: use another node",
            )
        })?;
        let caller = caller_of(request.extensions()).clone();
        let accepted = service.accept(request.into_inner(), caller.ends(), |node| {
            caller.may_be(node)
        });
        Ok(Response::new(accepted.await?))
    }

    async fn give_authority(
        &self,
        request: Request<GiveAuthorityRequest>,
    ) -> Result<Response<GiveAuthorityResponse>, Status> {
        let caller = caller_of(request.extensions());
        let (call, request) = ("Replica/GiveAuthority", request.get_ref());
        let act = Act::of_a_node(
            &self.audit,
            self.own.member.identity.node(),
            caller,
            call,
            request,
        );
        let answer = rotation::give(self.own_authority.as_deref(), request);
        act.ends(answer.as_ref().err());
        let answer = answer?;
        tracing::info!(to = ?caller.from, "sent the key of an authority to another node");
        Ok(Response::new(answer))
    }
}

/// Blocks on the disk: after a purge, the store reads whole slices for it.
pub(crate) fn summary(store: &Store, partition: Partition) -> v1::PartitionSummary {
    let summary = store.summary(partition);
    v1::PartitionSummary {
        partition: partition.0,
        records: summary.records,
        tombstones: summary.tombstones,
        payload_bytes: summary.payload_bytes,
        fingerprint: summary.fingerprint.to_be_bytes().to_vec().into(),
    }
}

async fn enlist(own: Arc<OwnNode>, request: EnlistRequest) -> Result<(), Fault> {
    let misfit = |field| Fault::from(torc_proto::WireError::Field { field });
    let cluster =
        <[u8; 16]>::try_from(&request.cluster_id[..]).map_err(|_| misfit("cluster_id"))?;
    let incarnation =
        <[u8; 16]>::try_from(&request.incarnation[..]).map_err(|_| misfit("incarnation"))?;
    if Incarnation(incarnation) != own.member.identity.incarnation {
        let message = "this node's data directory was replaced, and nothing was changed: \
                       join it as a new member";
        return Err(Fault::new(Reason::Refused, message));
    }
    let membership = Membership {
        cluster: ClusterId(cluster),
        node: NodeId(request.node),
    };
    let this = Arc::clone(&own);
    let enlisting = move || this.member.identity.enlist(&this.store, membership);
    tokio::task::spawn_blocking(enlisting)
        .await
        .map_err(|_| enlisting_failed())?
        .map_err(|error| match error {
            IdentityError::Taken { .. } => Fault::new(Reason::Refused, error.to_string()),
            IdentityError::Store(error) => store_fault(&error),
            IdentityError::Malformed { .. } => Fault::new(Reason::Internal, error.to_string()),
        })?;
    own.group.start(membership.node, membership.cluster).await?;
    Ok(())
}

fn enlisting_failed() -> Fault {
    Fault::new(Reason::Internal, "enlisting this node failed: report this")
}
