//! The `Kv` service, which clients call.
//!
//! * `request`: checks limits, namespace, digest and partition; no other module reads raw requests.
//! * `item`: a common form of get, put and delete. `run`: their single path, alone or in a batch.
//! * `started`: counts, traces and logs an operation.
//! * `fault`: the faults of operations that did not succeed.
//! * `batch`, `session`: many operations at once. `places`: permits of a session. `scan`, with `search` to filter by value.
//! * `get_key`: from the id of a key to the key.
//! * `node`: what all of these need of the node.

mod batch;
mod fault;
mod get_key;
mod item;
mod node;
mod places;
mod request;
mod run;
mod scan;
mod search;
mod session;
mod started;

pub(crate) use fault::no_quorum;
pub(crate) use item::fingerprint_bits;
pub(crate) use node::KvNode;
pub(crate) use scan::start as scan;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};
use torc_access::caller::Caller;
use torc_proto::Fault;
use torc_proto::v1::kv_server::Kv;
use torc_proto::v1::{
    BatchGetRequest, BatchGetResponse, BatchPutRequest, BatchPutResponse, DeleteRequest,
    DeleteResponse, GetKeyRequest, GetKeyResponse, GetRequest, GetResponse, PutRequest,
    PutResponse, ScanRequest, SessionRequest,
};
use torc_ring::topology::{ReadGenerations, Role};
use torc_telemetry::spans::{Serving, context_of};

use crate::call::{CallContext, deadline_of};
use item::Item;
use started::Started;
use torc_limits::connections::caller_of;
use torc_telemetry::operation::Operation;
use torc_telemetry::slow::Ended;

/// The service. Cloning shares the node.
#[derive(Debug, Clone)]
pub(crate) struct KvService {
    node: Arc<KvNode>,
}

impl KvService {
    pub(crate) fn new(node: Arc<KvNode>) -> Self {
        Self { node }
    }

    async fn one<I: Item>(
        &self,
        operation: Operation,
        request: Request<I>,
    ) -> Result<Response<I::Answer>, Status> {
        let node = &self.node;
        let started = Started::now(node, operation, || context_of(request.metadata()));
        let call = started.call(deadline_of(&request));
        let (namespace, key) = request.get_ref().place();
        let caller = caller_of(request.extensions());
        let allowed = node.may(caller, I::ROLE, namespace, key);
        let asked = node.slow.is_on().then(|| request.get_ref().clone());
        let answer = match allowed.and_then(|()| node.limits.admission.admit(1)) {
            Ok(_admitted) => run::one(node, request.into_inner(), call).await,
            Err(refused) => Err(refused),
        };
        started.end(node, answer.as_ref().err(), || {
            run::partition_of(node, asked.as_ref())
        });
        Ok(Response::new(answer?))
    }
}

/// A stream that ends with an error once the token that opened it is no longer valid.
pub(crate) fn while_counted<T: 'static>(
    caller: Caller,
    stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>> {
    Box::pin(stream.map(move |message| {
        caller.check_counts()?;
        message
    }))
}

/// Runs gets like those of a batch; returns the answers in the same order.
pub(crate) async fn get_all(
    node: &Arc<KvNode>,
    gets: &[GetRequest],
    deadline: Instant,
    generations: &mut ReadGenerations,
) -> Vec<Result<GetResponse, Fault>> {
    all(node, gets, deadline, Some(generations)).await
}

/// Runs items of a Redis client, which arrived together and have no trace context. Counts each.
async fn all<I: Item>(
    node: &Arc<KvNode>,
    items: &[I],
    deadline: Instant,
    generations: Option<&mut ReadGenerations>,
) -> Vec<Result<I::Answer, Fault>> {
    if items.is_empty() {
        return Vec::new();
    }
    let began = Instant::now();
    let serving = Serving::begin(node.tracer.as_ref(), None, I::OF_REDIS.span());
    let trace = serving.as_ref().map(|it| it.context());
    let call = CallContext { deadline, trace };
    let answers = run::many(node, items, call, generations).await;
    let took = began.elapsed();
    for (item, answer) in items.iter().zip(&answers) {
        let fault = answer.as_ref().err();
        node.metrics.operations.ended(I::OF_REDIS, took, fault);
        let ended = Ended {
            operation: I::OF_REDIS,
            took,
            fault,
            trace,
        };
        node.slow
            .note(ended, || run::partition_of(node, Some(item)));
    }
    if let Some(serving) = serving {
        serving.end(answers.iter().find_map(|answer| answer.as_ref().err()));
    }
    answers
}

/// Runs puts like those of a batch.
pub(crate) async fn put_all(
    node: &Arc<KvNode>,
    puts: &[PutRequest],
    deadline: Instant,
) -> Vec<Result<PutResponse, Fault>> {
    all(node, puts, deadline, None).await
}

/// Runs deletes like those of a batch.
pub(crate) async fn delete_all(
    node: &Arc<KvNode>,
    deletes: &[DeleteRequest],
    deadline: Instant,
) -> Vec<Result<DeleteResponse, Fault>> {
    all(node, deletes, deadline, None).await
}

#[tonic::async_trait]
impl Kv for KvService {
    type ScanStream = scan::ScanStream;
    type SessionStream = session::SessionStream;

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        self.one(Operation::Get, request).await
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        self.one(Operation::Put, request).await
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        self.one(Operation::Delete, request).await
    }

    async fn batch_get(
        &self,
        request: Request<BatchGetRequest>,
    ) -> Result<Response<BatchGetResponse>, Status> {
        let trace = || context_of(request.metadata());
        let started = Started::now(&self.node, Operation::BatchGet, trace);
        let call = started.call(deadline_of(&request));
        let caller = caller_of(request.extensions()).clone();
        let answer = match self
            .node
            .limits
            .admission
            .admit(request.get_ref().items.len())
        {
            Ok(_admitted) => batch::get(&self.node, &caller, request.into_inner(), call).await,
            Err(refused) => Err(refused),
        };
        started.end(&self.node, answer.as_ref().err(), || None);
        Ok(Response::new(answer?))
    }

    async fn batch_put(
        &self,
        request: Request<BatchPutRequest>,
    ) -> Result<Response<BatchPutResponse>, Status> {
        let trace = || context_of(request.metadata());
        let started = Started::now(&self.node, Operation::BatchPut, trace);
        let call = started.call(deadline_of(&request));
        let caller = caller_of(request.extensions()).clone();
        let answer = match self
            .node
            .limits
            .admission
            .admit(request.get_ref().items.len())
        {
            Ok(_admitted) => batch::put(&self.node, &caller, request.into_inner(), call).await,
            Err(refused) => Err(refused),
        };
        started.end(&self.node, answer.as_ref().err(), || None);
        Ok(Response::new(answer?))
    }

    async fn scan(
        &self,
        request: Request<ScanRequest>,
    ) -> Result<Response<Self::ScanStream>, Status> {
        let caller = caller_of(request.extensions()).clone();
        let request = request.into_inner();
        // A position is a key, so a scan reveals keys even where it omits records.
        let allowed = self.node.may(&caller, Role::Read, &request.namespace, b"");
        self.node
            .metrics
            .operations
            .start(Operation::Scan)
            .stop(&allowed);
        allowed?;
        let pages = scan::start(&self.node, request)?;
        Ok(Response::new(while_counted(caller, pages)))
    }

    async fn get_key(
        &self,
        request: Request<GetKeyRequest>,
    ) -> Result<Response<GetKeyResponse>, Status> {
        let node = &self.node;
        let trace = || context_of(request.metadata());
        // Counted as a get: it reads one record.
        let started = Started::now(node, Operation::Get, trace);
        let deadline = deadline_of(&request);
        let caller = caller_of(request.extensions()).clone();
        let request = request.into_inner();
        // The answer reveals a key, which may be any.
        let allowed = node.may(&caller, Role::Read, &request.namespace, b"");
        let answer = match allowed.and_then(|()| node.limits.admission.admit(1)) {
            Ok(_admitted) => get_key::get(node, request, deadline).await,
            Err(refused) => Err(refused),
        };
        started.end(node, answer.as_ref().err(), || None);
        Ok(Response::new(answer?))
    }

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let caller = caller_of(request.extensions()).clone();
        let requests = request.into_inner();
        Ok(Response::new(session::start(&self.node, caller, requests)))
    }
}
