//! The `Cluster` service: topology, changes of membership, status, explain.

mod change;
mod explain;
pub(crate) mod status;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use torc_proto::topology_to_wire;
use torc_proto::v1::cluster_server::Cluster;
use torc_proto::v1::{
    ChangeResponse, ExplainRequest, ExplainResponse, GetTopologyRequest, GetTopologyResponse,
    JoinRequest, LeaveRequest, StatusRequest, StatusResponse,
};
use torc_record::Epoch;

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
}

#[tonic::async_trait]
impl Cluster for ClusterService {
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

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let local = request.into_inner().local;
        Ok(Response::new(status::gather(&self.shared, local).await?))
    }

    async fn explain(
        &self,
        request: Request<ExplainRequest>,
    ) -> Result<Response<ExplainResponse>, Status> {
        let deadline = deadline_of(&request);
        let answer = explain::explain(&self.shared, request.into_inner(), deadline).await;
        Ok(Response::new(answer?))
    }
}
