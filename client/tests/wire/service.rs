//! A [`Node`] behind the generated services.

use std::sync::Arc;

use futures::future::{FutureExt as _, ready};
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status, Streaming};
use torc_proto::v1::cluster_server::Cluster;
use torc_proto::v1::farewell::Stage;
use torc_proto::v1::kv_server::Kv;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::session_response::Outcome;
use torc_proto::{Fault, Reason, TRACEPARENT, TraceContext, topology_to_wire, v1};
use torc_record::Epoch;

use crate::node::Node;

#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<Node>);

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Kv for Service {
    type ScanStream = BoxStream<'static, Result<v1::ScanResponse, Status>>;
    type SessionStream = BoxStream<'static, Result<v1::SessionResponse, Status>>;

    async fn get(&self, request: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        self.get(request.get_ref()).await
    }

    async fn put(&self, request: Request<v1::PutRequest>) -> Answer<v1::PutResponse> {
        self.put(request.get_ref()).await
    }

    async fn delete(&self, request: Request<v1::DeleteRequest>) -> Answer<v1::DeleteResponse> {
        self.delete(request.get_ref()).await
    }

    async fn batch_get(
        &self,
        request: Request<v1::BatchGetRequest>,
    ) -> Answer<v1::BatchGetResponse> {
        let traceparent = request.metadata().get(TRACEPARENT);
        let trace = traceparent.map(|it| TraceContext::parse(it.to_str().unwrap()).unwrap());
        self.0.traces.lock().unwrap().push(trace);
        let items = request.into_inner().items;
        assert!(items.len() <= torc_proto::MAX_BATCH_ITEMS);
        let outcome = |item| match self.0.get(item) {
            Ok(answer) => v1::get_result::Outcome::Ok(answer),
            Err(fault) => v1::get_result::Outcome::Fault(fault.into()),
        };
        let result = |item| v1::GetResult {
            outcome: Some(outcome(item)),
        };
        let work = || {
            let results = items.iter().map(result).collect();
            Ok(v1::BatchGetResponse { results })
        };
        self.0.serve("batch_get", work).await
    }

    async fn batch_put(
        &self,
        request: Request<v1::BatchPutRequest>,
    ) -> Answer<v1::BatchPutResponse> {
        let items = request.into_inner().items;
        assert!(items.len() <= torc_proto::MAX_BATCH_ITEMS);
        let outcome = |item| match self.0.put(item) {
            Ok(answer) => v1::put_result::Outcome::Ok(answer),
            Err(fault) => v1::put_result::Outcome::Fault(fault.into()),
        };
        let result = |item| v1::PutResult {
            outcome: Some(outcome(item)),
        };
        let work = || {
            let results = items.iter().map(result).collect();
            Ok(v1::BatchPutResponse { results })
        };
        self.0.serve("batch_put", work).await
    }

    async fn scan(&self, request: Request<v1::ScanRequest>) -> Answer<Self::ScanStream> {
        self.0.scan(request.get_ref()).map(Response::new)
    }

    async fn get_key(&self, _: Request<v1::GetKeyRequest>) -> Answer<v1::GetKeyResponse> {
        Err(Status::unimplemented("no static namespaces"))
    }

    async fn session(
        &self,
        requests: Request<Streaming<v1::SessionRequest>>,
    ) -> Answer<Self::SessionStream> {
        self.0.count("session");
        let service = self.clone();
        let closing = Arc::clone(&self.0);
        let (closed, is_closed) = oneshot::channel::<()>();
        let closing = async move {
            closing.closing.notified().await;
            let _ = closed.send(());
        };
        let requests = requests.into_inner().take_until(Box::pin(closing));
        let answers = requests.map(move |request| {
            let service = service.clone();
            async move { Ok(service.operation(request?).await) }
        });
        let (ended, end) = oneshot::channel::<()>();
        let ending = stream::once(async move {
            drop(ended);
            is_closed.now_or_never()?.ok()?;
            Some(Ok(farewell(Stage::Ended)))
        });
        let ending = ending.filter_map(ready);
        let answers = answers.buffer_unordered(1_024).chain(ending);
        let node = Arc::clone(&self.0);
        let farewell = stream::once(async move {
            tokio::select! {
                () = node.farewell.notified() => Some(Ok(farewell(Stage::Renew))),
                _ = end => None::<Result<_, Status>>,
            }
        });
        let all = stream::select(answers, farewell.filter_map(ready));
        Ok(Response::new(all.boxed()))
    }
}

fn farewell(stage: Stage) -> v1::SessionResponse {
    let stage = stage.into();
    v1::SessionResponse {
        id: 0,
        outcome: Some(Outcome::Farewell(v1::Farewell { stage })),
    }
}

/// Requests on sessions, which could also be separate calls.
impl Service {
    async fn operation(&self, request: v1::SessionRequest) -> v1::SessionResponse {
        let is_cancel = matches!(request.operation, Some(Operation::Cancel(_)));
        assert_eq!(
            request.timeout_ms == 0,
            is_cancel,
            "the node is told how much time it has"
        );
        let trace = TraceContext::from_wire(&request.trace);
        assert_eq!(trace.is_none(), request.trace.is_empty());
        self.0.traces.lock().unwrap().push(trace);
        let done = match request.operation.unwrap() {
            Operation::Get(get) => self.get(&get).await.map(|it| Outcome::Get(it.into_inner())),
            Operation::Put(put) => self.put(&put).await.map(|it| Outcome::Put(it.into_inner())),
            Operation::Delete(delete) => {
                let done = self.delete(&delete).await;
                done.map(|it| Outcome::Delete(it.into_inner()))
            }
            Operation::Cancel(_) => {
                self.0.count("cancel");
                std::future::pending().await
            }
        };
        let fault = |status| Outcome::Fault(Fault::from_status(&status).into());
        v1::SessionResponse {
            id: request.id,
            outcome: Some(done.unwrap_or_else(fault)),
        }
    }

    async fn get(&self, request: &v1::GetRequest) -> Answer<v1::GetResponse> {
        self.0.serve("get", || self.0.get(request)).await
    }

    async fn put(&self, request: &v1::PutRequest) -> Answer<v1::PutResponse> {
        self.0.serve("put", || self.0.put(request)).await
    }

    async fn delete(&self, request: &v1::DeleteRequest) -> Answer<v1::DeleteResponse> {
        self.0.serve("delete", || self.0.delete(request)).await
    }
}

#[tonic::async_trait]
impl Cluster for Service {
    type SketchKeysStream = BoxStream<'static, Result<v1::SketchKeysResponse, Status>>;
    type WriteBackupStream = BoxStream<'static, Result<v1::WriteBackupResponse, Status>>;

    async fn get_topology(
        &self,
        request: Request<v1::GetTopologyRequest>,
    ) -> Answer<v1::GetTopologyResponse> {
        let known = Epoch(request.get_ref().known_epoch);
        let work = || {
            let topology = Some(topology_to_wire(&self.0.table()?, known));
            Ok(v1::GetTopologyResponse { topology })
        };
        self.0.serve("topology", work).await
    }

    async fn join(&self, request: Request<v1::JoinRequest>) -> Answer<v1::ChangeResponse> {
        let asked = request.into_inner();
        let change = v1::ChangeResponse {
            plan: Some(v1::Plan {
                based_on_epoch: 1,
                kind: v1::ChangeKind::Join.into(),
                address: asked.address,
                partitions_moved: 3,
                ..Default::default()
            }),
            transition: if asked.plan_only { 0 } else { 7 },
            ..Default::default()
        };
        self.0.serve("join", || Ok(change)).await
    }

    async fn leave(&self, request: Request<v1::LeaveRequest>) -> Answer<v1::ChangeResponse> {
        let asked = *request.get_ref();
        let work = || {
            if !self
                .0
                .table()?
                .members
                .contains_key(&torc_client::NodeId(asked.node))
            {
                return Err(Fault::new(Reason::NoSuchNode, "no such node"));
            }
            let plan = v1::Plan {
                based_on_epoch: 1,
                kind: v1::ChangeKind::Leave.into(),
                node: asked.node,
                ..Default::default()
            };
            Ok(v1::ChangeResponse {
                plan: Some(plan),
                transition: if asked.plan_only { 0 } else { 8 },
                ..Default::default()
            })
        };
        self.0.serve("leave", work).await
    }

    async fn replace(&self, request: Request<v1::ReplaceRequest>) -> Answer<v1::ChangeResponse> {
        let asked = request.into_inner();
        let work = || {
            let plan = v1::Plan {
                based_on_epoch: 1,
                kind: v1::ChangeKind::Replace.into(),
                address: asked.address.clone(),
                replaced: asked.old,
                ..Default::default()
            };
            Ok(v1::ChangeResponse {
                plan: Some(plan),
                transition: if asked.plan_only { 0 } else { 9 },
                ..Default::default()
            })
        };
        self.0.serve("replace", work).await
    }

    async fn alter_namespace(
        &self,
        request: Request<v1::AlterNamespaceRequest>,
    ) -> Answer<v1::ChangeResponse> {
        let asked = request.into_inner();
        let work = || {
            let plan = v1::Plan {
                based_on_epoch: 1,
                kind: v1::ChangeKind::Alter.into(),
                namespaces: vec![asked.namespace.clone()],
                replicas_before: 1,
                replicas_after: asked.replicas,
                ..Default::default()
            };
            Ok(v1::ChangeResponse {
                plan: Some(plan),
                transition: if asked.plan_only { 0 } else { 11 },
                ..Default::default()
            })
        };
        self.0.serve("alter_namespace", work).await
    }

    async fn reweight(&self, request: Request<v1::ReweightRequest>) -> Answer<v1::ChangeResponse> {
        let asked = request.into_inner();
        let work = || {
            let plan = v1::Plan {
                based_on_epoch: 1,
                kind: v1::ChangeKind::Reweight.into(),
                node: asked.node,
                ..Default::default()
            };
            Ok(v1::ChangeResponse {
                plan: Some(plan),
                transition: if asked.plan_only { 0 } else { 10 },
                ..Default::default()
            })
        };
        self.0.serve("reweight", work).await
    }

    async fn abort(&self, request: Request<v1::AbortRequest>) -> Answer<v1::AbortResponse> {
        let number = request.into_inner().transition;
        let work = || {
            let transition = v1::Transition {
                id: number,
                kind: v1::ChangeKind::Join.into(),
                node: 2,
                aborted: true,
                ..Default::default()
            };
            Ok(v1::AbortResponse {
                transition: Some(transition),
            })
        };
        self.0.serve("abort", work).await
    }

    async fn create_namespace(
        &self,
        request: Request<v1::CreateNamespaceRequest>,
    ) -> Answer<v1::CreateNamespaceResponse> {
        let asked = request.into_inner();
        let work = || {
            let namespace = v1::Namespace {
                id: 2,
                name: asked.name.clone(),
                mode: asked.mode,
                replicas: 1,
                ..v1::Namespace::default()
            };
            Ok(v1::CreateNamespaceResponse {
                namespace: Some(namespace),
            })
        };
        self.0.serve("create_namespace", work).await
    }

    async fn drop_namespace(
        &self,
        _: Request<v1::DropNamespaceRequest>,
    ) -> Answer<v1::DropNamespaceResponse> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn raise_epoch(
        &self,
        _: Request<v1::RaiseEpochRequest>,
    ) -> Answer<v1::RaiseEpochResponse> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn change_generation(
        &self,
        _: Request<v1::ChangeGenerationRequest>,
    ) -> Answer<v1::ChangeGenerationResponse> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn list_generations(
        &self,
        _: Request<v1::ListGenerationsRequest>,
    ) -> Answer<v1::ListGenerationsResponse> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        assert!(!request.get_ref().local);
        let work = || {
            let table = self.0.table()?;
            Ok(v1::StatusResponse {
                cluster_id: table.cluster.0.to_vec().into(),
                epoch: table.epoch.0,
                answered_by: self.0.id.0,
                ..Default::default()
            })
        };
        self.0.serve("status", work).await
    }

    async fn explain(&self, request: Request<v1::ExplainRequest>) -> Answer<v1::ExplainResponse> {
        let v1::ExplainRequest { namespace, key, .. } = request.into_inner();
        let work = || {
            let table = self.0.table()?;
            let digest = crate::cluster::digest(&table, &namespace, &key);
            let namespace = table.namespace_id(&namespace).unwrap();
            let partition = table.partition_of(namespace, &digest);
            let state = table.state(partition).unwrap();
            Ok(v1::ExplainResponse {
                digest: digest.0.to_vec().into(),
                token: digest.high(),
                partition: Some(torc_proto::partition_state_to_wire(state)),
                successor: Some(v1::Position {
                    token: u64::MAX,
                    node: state.lead.0,
                }),
                answered_by: self.0.id.0,
                ..Default::default()
            })
        };
        self.0.serve("explain", work).await
    }

    async fn hot_keys(&self, _: Request<v1::HotKeysRequest>) -> Answer<v1::HotKeysResponse> {
        let work = || {
            Ok(v1::HotKeysResponse {
                answered_by: self.0.id.0,
                ..Default::default()
            })
        };
        self.0.serve("hot_keys", work).await
    }

    async fn sketch_keys(
        &self,
        _: Request<v1::SketchKeysRequest>,
    ) -> Answer<Self::SketchKeysStream> {
        Err(tonic::Status::unimplemented("real nodes are asked"))
    }

    async fn write_backup(
        &self,
        _: Request<v1::WriteBackupRequest>,
    ) -> Answer<Self::WriteBackupStream> {
        Err(tonic::Status::unimplemented("real nodes are asked"))
    }

    async fn flush(&self, _: Request<v1::MaintenanceRequest>) -> Answer<v1::MaintenanceResponse> {
        Err(tonic::Status::unimplemented("no store here"))
    }

    async fn compact(&self, _: Request<v1::MaintenanceRequest>) -> Answer<v1::MaintenanceResponse> {
        Err(tonic::Status::unimplemented("no store here"))
    }

    async fn enrol_node(&self, _: Request<v1::EnrolNodeRequest>) -> Answer<v1::EnrolNodeResponse> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn get_authorities(
        &self,
        _: Request<v1::GetAuthoritiesRequest>,
    ) -> Answer<v1::Authorities> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn rotate_authority(
        &self,
        _: Request<v1::RotateAuthorityRequest>,
    ) -> Answer<v1::Authorities> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn create_token(
        &self,
        _: Request<v1::CreateTokenRequest>,
    ) -> Answer<v1::CreateTokenResponse> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn list_tokens(
        &self,
        _: Request<v1::ListTokensRequest>,
    ) -> Answer<v1::ListTokensResponse> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn revoke_token(
        &self,
        _: Request<v1::RevokeTokenRequest>,
    ) -> Answer<v1::RevokeTokenResponse> {
        Err(Status::unimplemented("tried on real nodes"))
    }

    async fn hot_window(&self, _: Request<v1::HotWindowRequest>) -> Answer<v1::HotWindowResponse> {
        Err(tonic::Status::unimplemented("not for clients"))
    }
}
