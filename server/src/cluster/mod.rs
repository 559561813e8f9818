//! The `Cluster` service: topology, changes of it, namespaces, status, explain.
//!
//! * `change`: join, leave, replace, reweight, alter, abort; `plan`: their plans;
//!   `newcomer`: checks of the joining node; `leader`: forwarding to the leader.
//! * `namespace`: creating and dropping. `tokens`: bearer tokens. `enrol`: nodes with a join
//!   token. `authority`: its rotation.
//! * `status`, `explain`: the present state; both ask the other members. `maintenance`:
//!   flush and compaction on request.
//! * `sketch_keys`: sketches of namespaces' keys, to compare them.

mod authority;
mod change;
mod enrol;
pub(crate) mod explain;
mod field;
mod generation;
mod leader;
mod maintenance;
mod namespace;
mod new_namespace;
mod newcomer;
mod node;
mod plan;
mod sketch_keys;
pub(crate) mod status;
mod target;
pub(crate) mod tokens;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use torc_access::audit::Act;
#[cfg(not(feature = "backup"))]
use torc_proto::Reason;
use torc_proto::v1::cluster_server::Cluster;
use torc_proto::v1::{
    AbortRequest, AbortResponse, AlterNamespaceRequest, Authorities, ChangeGenerationRequest,
    ChangeGenerationResponse, ChangeResponse, CreateNamespaceRequest, CreateNamespaceResponse,
    CreateTokenRequest, CreateTokenResponse, DropNamespaceRequest, DropNamespaceResponse,
    EnrolNodeRequest, EnrolNodeResponse, ExplainRequest, ExplainResponse, GetAuthoritiesRequest,
    GetTopologyRequest, GetTopologyResponse, HotKeysRequest, HotKeysResponse, HotWindowRequest,
    HotWindowResponse, JoinRequest, LeaveRequest, ListGenerationsRequest, ListGenerationsResponse,
    ListTokensRequest, ListTokensResponse, MaintenanceRequest, MaintenanceResponse,
    RaiseEpochRequest, RaiseEpochResponse, ReplaceRequest, RevokeTokenRequest, RevokeTokenResponse,
    ReweightRequest, RotateAuthorityRequest, SketchKeysRequest, StatusRequest, StatusResponse,
    WriteBackupRequest,
};
use torc_proto::{Fault, topology_to_wire};
use torc_record::Epoch;
use torc_ring::topology::Role;

pub(crate) use enrol::issuer_of;
use maintenance::Maintenance;
pub(crate) use newcomer::release_of;
pub(crate) use node::ClusterNode;

#[cfg(feature = "backup")]
use torc_transfers::backup::{self, BackupStream};

use crate::call::deadline_of;
use crate::hot;
use crate::kv::while_counted;
use torc_limits::connections::caller_of;

#[cfg(not(feature = "backup"))]
type BackupStream = futures::stream::Empty<Result<torc_proto::v1::WriteBackupResponse, Status>>;

/// The service. Cloning shares the node.
#[derive(Debug, Clone)]
pub(crate) struct ClusterService {
    node: Arc<ClusterNode>,
}

impl ClusterService {
    pub(crate) fn new(node: Arc<ClusterNode>) -> Self {
        Self { node }
    }

    /// An action for the audit log, which records it with its outcome.
    fn act<T: std::fmt::Debug>(&self, call: &str, request: &Request<T>) -> Act {
        let caller = caller_of(request.extensions());
        self.node.act(caller, call, request.get_ref())
    }

    async fn maintain(
        &self,
        task: Maintenance,
        request: Request<MaintenanceRequest>,
    ) -> Result<Response<MaintenanceResponse>, Status> {
        let deadline = deadline_of(&request);
        let call = match task {
            Maintenance::Flush => "Cluster/Flush",
            Maintenance::Compact => "Cluster/Compact",
        };
        let act = self.act(call, &request);
        let answer = maintenance::answer(&self.node, task, request.into_inner(), deadline).await;
        ended(act, answer)
    }
}

fn ended<T>(act: Act, answer: Result<T, Fault>) -> Result<Response<T>, Status> {
    act.ends(answer.as_ref().err());
    Ok(Response::new(answer?))
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    type SketchKeysStream = sketch_keys::SketchStream;
    type WriteBackupStream = BackupStream;

    async fn get_topology(
        &self,
        request: Request<GetTopologyRequest>,
    ) -> Result<Response<GetTopologyResponse>, Status> {
        let table = self.node.member.routing()?;
        let known = Epoch(request.get_ref().known_epoch);
        let mut topology = topology_to_wire(&table, known);
        let caller = caller_of(request.extensions());
        if !caller.is_anyone() && !caller.may_learn_digests() {
            topology.digest_key.clear();
            for namespace in &mut topology.namespaces {
                namespace.digest_key.clear();
            }
        }
        // Their ids stay, because partitions depend on them.
        for namespace in &mut topology.namespaces {
            if !caller.may_know_of(&namespace.name) {
                namespace.name = format!("#{}", namespace.id);
            }
        }
        let topology = Some(topology);
        Ok(Response::new(GetTopologyResponse { topology }))
    }

    async fn join(
        &self,
        request: Request<JoinRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        let act = self.act("Cluster/Join", &request);
        ended(act, change::join(&self.node, request).await)
    }

    async fn leave(
        &self,
        request: Request<LeaveRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        let act = self.act("Cluster/Leave", &request);
        ended(act, change::leave(&self.node, request).await)
    }

    async fn replace(
        &self,
        request: Request<ReplaceRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        let act = self.act("Cluster/Replace", &request);
        ended(act, change::replace(&self.node, request).await)
    }

    async fn reweight(
        &self,
        request: Request<ReweightRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        let act = self.act("Cluster/Reweight", &request);
        ended(act, change::reweight(&self.node, request).await)
    }

    async fn alter_namespace(
        &self,
        request: Request<AlterNamespaceRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        let act = self.act("Cluster/AlterNamespace", &request);
        ended(act, change::alter(&self.node, request).await)
    }

    async fn abort(
        &self,
        request: Request<AbortRequest>,
    ) -> Result<Response<AbortResponse>, Status> {
        let deadline = deadline_of(&request);
        let act = self.act("Cluster/Abort", &request);
        let answer = change::abort(&self.node, request.into_inner(), deadline).await;
        ended(act, answer)
    }

    async fn create_namespace(
        &self,
        request: Request<CreateNamespaceRequest>,
    ) -> Result<Response<CreateNamespaceResponse>, Status> {
        let deadline = deadline_of(&request);
        let act = self.act("Cluster/CreateNamespace", &request);
        let answer = namespace::create(&self.node, request.into_inner(), deadline).await;
        ended(act, answer)
    }

    async fn drop_namespace(
        &self,
        request: Request<DropNamespaceRequest>,
    ) -> Result<Response<DropNamespaceResponse>, Status> {
        let deadline = deadline_of(&request);
        let act = self.act("Cluster/DropNamespace", &request);
        let answer = namespace::drop(&self.node, request.into_inner(), deadline).await;
        ended(act, answer)
    }

    async fn raise_epoch(
        &self,
        request: Request<RaiseEpochRequest>,
    ) -> Result<Response<RaiseEpochResponse>, Status> {
        let deadline = deadline_of(&request);
        let act = self.act("Cluster/RaiseEpoch", &request);
        let answer = namespace::raise_epoch(&self.node, request.into_inner(), deadline).await;
        ended(act, answer)
    }

    async fn change_generation(
        &self,
        request: Request<ChangeGenerationRequest>,
    ) -> Result<Response<ChangeGenerationResponse>, Status> {
        let deadline = deadline_of(&request);
        let act = self.act("Cluster/ChangeGeneration", &request);
        let answer = generation::change(&self.node, request.into_inner(), deadline).await;
        ended(act, answer)
    }

    async fn list_generations(
        &self,
        request: Request<ListGenerationsRequest>,
    ) -> Result<Response<ListGenerationsResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = generation::list(&self.node, request.get_ref(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.get_ref();
        if request.current {
            status::catch_up(&self.node, deadline).await?;
        }
        let answer = status::gather(&self.node, request).await;
        Ok(Response::new(answer?))
    }

    async fn flush(
        &self,
        request: Request<MaintenanceRequest>,
    ) -> Result<Response<MaintenanceResponse>, Status> {
        self.maintain(Maintenance::Flush, request).await
    }

    async fn compact(
        &self,
        request: Request<MaintenanceRequest>,
    ) -> Result<Response<MaintenanceResponse>, Status> {
        self.maintain(Maintenance::Compact, request).await
    }

    async fn explain(
        &self,
        request: Request<ExplainRequest>,
    ) -> Result<Response<ExplainResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = explain::explain(&self.node, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn hot_keys(
        &self,
        request: Request<HotKeysRequest>,
    ) -> Result<Response<HotKeysResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = hot::answer(&self.node.kv, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn hot_window(
        &self,
        request: Request<HotWindowRequest>,
    ) -> Result<Response<HotWindowResponse>, Status> {
        let answer = self
            .node
            .kv
            .hot
            .own(self.node.member.node()?, request.into_inner())
            .await;
        Ok(Response::new(answer?))
    }

    async fn sketch_keys(
        &self,
        request: Request<SketchKeysRequest>,
    ) -> Result<Response<Self::SketchKeysStream>, Status> {
        let caller = caller_of(request.extensions()).clone();
        for namespace in &request.get_ref().namespaces {
            self.node
                .kv
                .may(&caller, Role::Read, &namespace.name, b"")?;
        }
        let sketches = sketch_keys::start(&self.node, request.into_inner()).await?;
        Ok(Response::new(while_counted(caller, sketches)))
    }

    async fn create_token(
        &self,
        request: Request<CreateTokenRequest>,
    ) -> Result<Response<CreateTokenResponse>, Status> {
        let deadline = deadline_of(&request);
        let act = self.act("Cluster/CreateToken", &request);
        let answer = tokens::create(&self.node, request.into_inner(), deadline).await;
        ended(act, answer)
    }

    async fn list_tokens(
        &self,
        request: Request<ListTokensRequest>,
    ) -> Result<Response<ListTokensResponse>, Status> {
        let deadline = deadline_of(&request);
        let act = self.act("Cluster/ListTokens", &request);
        ended(act, tokens::list(&self.node, deadline).await)
    }

    async fn revoke_token(
        &self,
        request: Request<RevokeTokenRequest>,
    ) -> Result<Response<RevokeTokenResponse>, Status> {
        let deadline = deadline_of(&request);
        let act = self.act("Cluster/RevokeToken", &request);
        let answer = tokens::revoke(&self.node, request.into_inner(), deadline).await;
        ended(act, answer)
    }

    async fn enrol_node(
        &self,
        request: Request<EnrolNodeRequest>,
    ) -> Result<Response<EnrolNodeResponse>, Status> {
        let deadline = deadline_of(&request);
        let caller = caller_of(request.extensions()).clone();
        let answer = enrol::enrol(&self.node, &caller, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn get_authorities(
        &self,
        request: Request<GetAuthoritiesRequest>,
    ) -> Result<Response<Authorities>, Status> {
        let answer = authority::show(&self.node, deadline_of(&request)).await;
        Ok(Response::new(answer?))
    }

    async fn rotate_authority(
        &self,
        request: Request<RotateAuthorityRequest>,
    ) -> Result<Response<Authorities>, Status> {
        let deadline = deadline_of(&request);
        let act = self.act("Cluster/RotateAuthority", &request);
        let action = request.get_ref().action();
        ended(act, authority::rotate(&self.node, action, deadline).await)
    }

    #[cfg(feature = "backup")]
    async fn write_backup(
        &self,
        request: Request<WriteBackupRequest>,
    ) -> Result<Response<Self::WriteBackupStream>, Status> {
        let caller = caller_of(request.extensions()).clone();
        // The audit log omits the partition numbers: there may be hundreds.
        let said = WriteBackupRequest {
            partitions: Vec::new(),
            ..request.get_ref().clone()
        };
        let act = self.node.act(&caller, "Cluster/WriteBackup", &said);
        let (class, closing) = (&self.node.kv.limits.classes.backups, &self.node.kv.closing);
        let writing = backup::start(&self.node.transfers, class, closing, request.into_inner());
        let writing = writing.await;
        let counted = |writing| -> BackupStream { while_counted(caller, writing) };
        ended(act, writing.map(counted))
    }

    #[cfg(not(feature = "backup"))]
    async fn write_backup(
        &self,
        _: Request<WriteBackupRequest>,
    ) -> Result<Response<Self::WriteBackupStream>, Status> {
        let message = "this node was built without the feature `backup`";
        Err(Fault::new(Reason::Refused, message).into())
    }
}
