//! The `Cluster` service: topology, changes of it, namespaces, status, explain.
//!
//! * `change`: join, leave, replace, reweight, alter, abort; `plan`: what they would move;
//!   `newcomer`: the node that comes; `leader`: who plans.
//! * `namespace`: creating one.
//! * `status`, `explain`: what is so now; both ask the other members. `maintenance`: flush and
//!   compaction at once.
//! * `sketch_keys`: the keys of namespaces, so that they can be compared.

mod change;
pub(crate) mod explain;
mod field;
mod generation;
mod leader;
mod maintenance;
mod namespace;
mod newcomer;
mod plan;
mod sketch_keys;
pub(crate) mod status;
mod target;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use torc_proto::topology_to_wire;
use torc_proto::v1::cluster_server::Cluster;
use torc_proto::v1::{
    AbortRequest, AbortResponse, AlterNamespaceRequest, ChangeGenerationRequest,
    ChangeGenerationResponse, ChangeResponse, CreateNamespaceRequest, CreateNamespaceResponse,
    ExplainRequest, ExplainResponse, GetTopologyRequest, GetTopologyResponse, HotKeysRequest,
    HotKeysResponse, HotWindowRequest, HotWindowResponse, JoinRequest, LeaveRequest,
    ListGenerationsRequest, ListGenerationsResponse, MaintenanceRequest, MaintenanceResponse,
    ReplaceRequest, ReweightRequest, SketchKeysRequest, StatusRequest, StatusResponse,
};
use torc_record::Epoch;

use maintenance::Work;
pub(crate) use newcomer::release_of;

use crate::hot;
use crate::shared::{Shared, deadline_of};

/// The service. Cloning shares the node.
#[derive(Debug, Clone)]
pub(crate) struct ClusterService {
    shared: Arc<Shared>,
}

impl ClusterService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    async fn maintain(
        &self,
        work: Work,
        request: Request<MaintenanceRequest>,
    ) -> Result<Response<MaintenanceResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = maintenance::answer(&self.shared, work, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    type SketchKeysStream = sketch_keys::SketchStream;

    async fn get_topology(
        &self,
        request: Request<GetTopologyRequest>,
    ) -> Result<Response<GetTopologyResponse>, Status> {
        let table = self.shared.routing()?;
        let known = Epoch(request.into_inner().known_epoch);
        let topology = Some(topology_to_wire(&table, known));
        Ok(Response::new(GetTopologyResponse { topology }))
    }

    async fn join(
        &self,
        request: Request<JoinRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        change::join(&self.shared, request)
            .await
            .map(Response::new)
            .map_err(Into::into)
    }

    async fn leave(
        &self,
        request: Request<LeaveRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        change::leave(&self.shared, request)
            .await
            .map(Response::new)
            .map_err(Into::into)
    }

    async fn replace(
        &self,
        request: Request<ReplaceRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        let answer = change::replace(&self.shared, request).await;
        Ok(Response::new(answer?))
    }

    async fn reweight(
        &self,
        request: Request<ReweightRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        let answer = change::reweight(&self.shared, request).await;
        Ok(Response::new(answer?))
    }

    async fn alter_namespace(
        &self,
        request: Request<AlterNamespaceRequest>,
    ) -> Result<Response<ChangeResponse>, Status> {
        let answer = change::alter(&self.shared, request).await;
        Ok(Response::new(answer?))
    }

    async fn abort(
        &self,
        request: Request<AbortRequest>,
    ) -> Result<Response<AbortResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = change::abort(&self.shared, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn create_namespace(
        &self,
        request: Request<CreateNamespaceRequest>,
    ) -> Result<Response<CreateNamespaceResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = namespace::create(&self.shared, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn change_generation(
        &self,
        request: Request<ChangeGenerationRequest>,
    ) -> Result<Response<ChangeGenerationResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = generation::change(&self.shared, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn list_generations(
        &self,
        request: Request<ListGenerationsRequest>,
    ) -> Result<Response<ListGenerationsResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = generation::list(&self.shared, request.get_ref(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let answer = status::gather(&self.shared, request.get_ref()).await;
        Ok(Response::new(answer?))
    }

    async fn flush(
        &self,
        request: Request<MaintenanceRequest>,
    ) -> Result<Response<MaintenanceResponse>, Status> {
        self.maintain(Work::Flush, request).await
    }

    async fn compact(
        &self,
        request: Request<MaintenanceRequest>,
    ) -> Result<Response<MaintenanceResponse>, Status> {
        self.maintain(Work::Compact, request).await
    }

    async fn explain(
        &self,
        request: Request<ExplainRequest>,
    ) -> Result<Response<ExplainResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = explain::explain(&self.shared, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn hot_keys(
        &self,
        request: Request<HotKeysRequest>,
    ) -> Result<Response<HotKeysResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = hot::answer(&self.shared, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }

    async fn hot_window(
        &self,
        request: Request<HotWindowRequest>,
    ) -> Result<Response<HotWindowResponse>, Status> {
        let answer = hot::own(&self.shared, request.into_inner()).await;
        Ok(Response::new(answer?))
    }

    async fn sketch_keys(
        &self,
        request: Request<SketchKeysRequest>,
    ) -> Result<Response<Self::SketchKeysStream>, Status> {
        let answer = sketch_keys::start(&self.shared, request.into_inner()).await;
        Ok(Response::new(answer?))
    }
}
