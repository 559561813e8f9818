//! Operations on one key: a common form of get, put and delete.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a batch has at most MAX_BATCH_ITEMS"
)]

use std::time::{Duration, Instant};

use futures::future::join_all;
use tonic::Status;
use torc_limits::budget::SMALL;
use torc_member::fault::store_fault;
use torc_member::peers::{self, Recipient};
use torc_proto::v1::{
    BatchGetRequest, BatchPutRequest, Consistency, DeleteRequest, DeleteResponse, GetRequest,
    GetResponse, GetResult, PutRequest, PutResponse, PutResult, Route, get_result, put_result,
};
use torc_proto::{Fault, Reason, TraceContext, condition_from_wire, version_to_wire};
use torc_record::{Ballot, Condition, Digest, NamespaceId, Record};
use torc_replication::{Outcome, Request, Rules};
use torc_ring::Partition;
use torc_ring::topology::{GenerationShape, Role, RoutingTable};
use torc_session::SessionPermit;
use torc_telemetry::clock::unix_ms;
use torc_telemetry::operation::Operation;
use torc_telemetry::spans::add_context;

use super::fault;
use super::node::KvNode;
use super::request::{Target, check_value};
use crate::call::CallContext;

/// Time for the lead to answer a get before this node runs it instead; each further get of a batch
/// adds as much.
const LEAD_TIME: Duration = Duration::from_millis(250);
const TIME_FOR_ITEM: Duration = Duration::from_millis(1);

/// What this node can answer about an item on its own.
pub(super) enum AtOnce<A> {
    /// The answer.
    Answer(A),
    /// Other replicas have to be asked.
    No,
    /// The answer is on disk.
    Cold,
}

/// What the answer of an item depends on, besides its outcome.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) namespace: NamespaceId,
    pub(super) digest: Digest,
    pub(super) partition: Partition,
    /// For the fault if it does not hold.
    pub(super) condition: Option<Condition>,
}

/// A request for one key.
pub(super) trait Item: Clone + Send + Sync + Sized + 'static {
    type Answer: Send;
    /// Whether running it twice changes nothing.
    const HARMLESS: bool;
    /// The role that a caller needs for it.
    const ROLE: Role;
    /// Its kind if a Redis client asked for it.
    const OF_REDIS: Operation;

    /// The name of its namespace, and its key.
    fn place(&self) -> (&str, &[u8]);

    fn target(&self, table: &RoutingTable) -> Result<Target, Fault>;
    fn route(&self) -> Option<&Route>;
    /// The item with this route, for the lead of its partition.
    fn routed(&self, route: Route, target: &Target) -> Self;
    /// The answer, if this node may give it without asking other nodes. Never waits for the disk.
    fn at_once(&self, _node: &KvNode, _target: &Target) -> Result<AtOnce<Self::Answer>, Fault> {
        Ok(AtOnce::No)
    }
    /// The answer of an item that needs the disk. Blocks on the disk.
    fn read_cold(&self, _node: &KvNode, _target: &Target) -> Result<Option<Self::Answer>, Fault> {
        Ok(None)
    }
    /// The request to the key's replicas.
    fn request(&self, target: &Target) -> Result<Request, Fault>;
    fn answer(node: &KvNode, asked: &Asked, outcome: Outcome) -> Result<Self::Answer, Fault>;
    /// Whether the request is short.
    fn is_short(&self) -> bool {
        true
    }
    /// Sends an item to its lead, on the session with it.
    fn send_one(
        self,
        node: &KvNode,
        to: &Recipient,
        call: CallContext,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;
    /// Sends items to their lead, in a call.
    fn send_many(
        node: &KvNode,
        to: &Recipient,
        items: Vec<Self>,
        call: CallContext,
    ) -> impl Future<Output = Result<Vec<Result<Self::Answer, Fault>>, Fault>> + Send;
}

/// The route of a request, which all of them carry in the same fields.
macro_rules! routed {
    () => {
        fn route(&self) -> Option<&Route> {
            self.route.as_ref()
        }

        fn routed(&self, route: Route, target: &Target) -> Self {
            Self {
                route: Some(route),
                digest: target.at.digest.0.to_vec().into(),
                ..self.clone()
            }
        }
    };
}

impl Item for GetRequest {
    type Answer = GetResponse;
    const HARMLESS: bool = true;
    const ROLE: Role = Role::Read;
    const OF_REDIS: Operation = Operation::RedisGet;

    fn place(&self) -> (&str, &[u8]) {
        (&self.namespace, &self.key)
    }

    fn target(&self, table: &RoutingTable) -> Result<Target, Fault> {
        let key = self.key.clone();
        let target = Target::check(
            table,
            &self.namespace,
            key,
            &self.digest,
            self.route,
            self.quorum,
        )?;
        target.check_consistency(self.consistency())?;
        Ok(target)
    }

    routed!();

    fn at_once(&self, node: &KvNode, target: &Target) -> Result<AtOnce<GetResponse>, Fault> {
        if self.consistency() != Consistency::Stale || target.rules == Rules::Static {
            return Ok(AtOnce::No);
        }
        let cached = node.store.get_cached(target.at.borrowed());
        let Some(found) = cached else {
            return Ok(AtOnce::Cold);
        };
        let found = found.map_err(|error| store_fault(&error))?;
        let held = found.map(|record| held(node, target, &record));
        Ok(held.transpose()?.map_or(AtOnce::No, AtOnce::Answer))
    }

    fn read_cold(&self, node: &KvNode, target: &Target) -> Result<Option<GetResponse>, Fault> {
        let found = node.store.get(target.at.borrowed());
        let found = found.map_err(|error| store_fault(&error))?;
        let held = found.map(|record| held(node, target, &record));
        held.transpose()
    }

    fn request(&self, _target: &Target) -> Result<Request, Fault> {
        Ok(Request::Get)
    }

    fn answer(node: &KvNode, asked: &Asked, outcome: Outcome) -> Result<GetResponse, Fault> {
        let hot = node.hot.hint(&asked.digest);
        match outcome {
            Outcome::Found {
                value,
                version,
                expires_at_ms,
                ..
            } => Ok(GetResponse {
                found: true,
                value,
                version: Some(version_to_wire(version)),
                expires_at_ms: expires_at_ms.unwrap_or(0),
                hot,
                fingerprint_bits: fingerprint_bits(node, asked.namespace),
            }),
            Outcome::Absent { .. } => Ok(GetResponse {
                hot,
                ..GetResponse::default()
            }),
            other => Err(fault::of(node, other, (asked.condition, asked.partition))),
        }
    }

    async fn send_one(
        self,
        node: &KvNode,
        to: &Recipient,
        call: CallContext,
    ) -> Result<GetResponse, Fault> {
        let deadline = call.deadline.min(Instant::now() + LEAD_TIME);
        let send = async |permit: SessionPermit, left| {
            permit.on_behalf_of(call.trace).get(self, left).await
        };
        let peers = &node.member.peers;
        let answer = peers.on_session(to, deadline, send).await?;
        charged(node, answer)
    }

    async fn send_many(
        node: &KvNode,
        to: &Recipient,
        items: Vec<Self>,
        call: CallContext,
    ) -> Result<Vec<Result<GetResponse, Fault>>, Fault> {
        let left = call.left();
        let lead_time = LEAD_TIME + TIME_FOR_ITEM * items.len() as u32;
        let request = within(left.min(lead_time), BatchGetRequest { items }, call.trace);
        let answer = node.member.peers.kv(to)?.batch_get(request).await;
        let open = |result: GetResult| match result.outcome {
            Some(get_result::Outcome::Ok(ok)) => charged(node, ok),
            Some(get_result::Outcome::Fault(wire)) => Err(wire.into()),
            None => Err(Fault::unknown(
                "the answer lacks an item, so the outcome of that get is unknown: get the key again",
            )),
        };
        let results = received(answer)?.results;
        Ok(results.into_iter().map(open).collect())
    }
}

/// The answer of another node, with its value charged to the budget.
fn charged(node: &KvNode, answer: GetResponse) -> Result<GetResponse, Fault> {
    Ok(GetResponse {
        value: node.limits.budget.hold(answer.value)?,
        ..answer
    })
}

/// What this node holds for a key, with expiry judged by its own clock.
fn held(node: &KvNode, target: &Target, record: &Record) -> Result<GetResponse, Fault> {
    Ok(match record.visible(unix_ms()) {
        Some(value) => GetResponse {
            found: true,
            value: node.limits.budget.hold(value.clone())?,
            version: Some(version_to_wire(record.version())),
            expires_at_ms: record.expires_at_ms().unwrap_or(0),
            hot: node.hot.hint(&target.at.digest),
            // No stale read reaches a generation.
            fingerprint_bits: 0,
        },
        None => GetResponse::default(),
    })
}

/// Fingerprint bits of a keyless generation; zero for any other namespace.
pub(crate) fn fingerprint_bits(node: &KvNode, namespace: NamespaceId) -> u32 {
    if !namespace.is_generation() {
        return 0;
    }
    let table = node.member.routing().ok();
    let generation = table.as_ref().and_then(|it| it.generations.get(&namespace));
    match generation.and_then(|generation| generation.shape()) {
        Some(GenerationShape::Keyless {
            fingerprint_bits, ..
        }) => u32::from(*fingerprint_bits),
        _ => 0,
    }
}

impl Item for PutRequest {
    type Answer = PutResponse;
    const HARMLESS: bool = false;
    const ROLE: Role = Role::Write;
    const OF_REDIS: Operation = Operation::RedisPut;

    fn place(&self) -> (&str, &[u8]) {
        (&self.namespace, &self.key)
    }

    fn target(&self, table: &RoutingTable) -> Result<Target, Fault> {
        check_value(&self.value)?;
        let key = self.key.clone();
        Target::check(
            table,
            &self.namespace,
            key,
            &self.digest,
            self.route,
            self.quorum,
        )
    }

    routed!();

    fn request(&self, target: &Target) -> Result<Request, Fault> {
        let condition = condition_from_wire(self.condition.as_ref())?;
        target.check_write(condition)?;
        let expires_at_ms = match (self.ttl_ms, self.expires_at_ms) {
            (0, 0) => None,
            (ttl_ms, 0) => Some(unix_ms().saturating_add(ttl_ms)),
            (0, at_ms) => Some(at_ms),
            _ => {
                let message = "both ttl_ms and expires_at_ms are set: set one";
                return Err(Fault::new(Reason::Invalid, message));
            }
        };
        Ok(Request::Put {
            value: self.value.clone(),
            expires_at_ms,
            condition,
        })
    }

    fn answer(node: &KvNode, asked: &Asked, outcome: Outcome) -> Result<PutResponse, Fault> {
        match outcome {
            Outcome::Written { version, .. } => Ok(PutResponse {
                version: Some(version_to_wire(version)),
            }),
            other => Err(fault::of(node, other, (asked.condition, asked.partition))),
        }
    }

    fn is_short(&self) -> bool {
        self.value.len() <= SMALL
    }

    async fn send_one(
        self,
        node: &KvNode,
        to: &Recipient,
        call: CallContext,
    ) -> Result<PutResponse, Fault> {
        let send = async |permit: SessionPermit, left| {
            permit.on_behalf_of(call.trace).put(self, left).await
        };
        let peers = &node.member.peers;
        peers.on_session(to, call.deadline, send).await
    }

    async fn send_many(
        node: &KvNode,
        to: &Recipient,
        items: Vec<Self>,
        call: CallContext,
    ) -> Result<Vec<Result<PutResponse, Fault>>, Fault> {
        let left = call.left();
        let request = within(left, BatchPutRequest { items }, call.trace);
        let answer = node.member.peers.kv(to)?.batch_put(request).await;
        let open = |result: PutResult| match result.outcome {
            Some(put_result::Outcome::Ok(ok)) => Ok(ok),
            Some(put_result::Outcome::Fault(wire)) => Err(wire.into()),
            None => Err(Fault::unknown(
                "the answer lacks an item, so the outcome of that write is unknown: get the key before you retry",
            )),
        };
        let results = received(answer)?.results;
        Ok(results.into_iter().map(open).collect())
    }
}

impl Item for DeleteRequest {
    type Answer = DeleteResponse;
    const HARMLESS: bool = false;
    const ROLE: Role = Role::Write;
    const OF_REDIS: Operation = Operation::RedisDelete;

    fn place(&self) -> (&str, &[u8]) {
        (&self.namespace, &self.key)
    }

    fn target(&self, table: &RoutingTable) -> Result<Target, Fault> {
        let key = self.key.clone();
        Target::check(
            table,
            &self.namespace,
            key,
            &self.digest,
            self.route,
            self.quorum,
        )
    }

    routed!();

    fn request(&self, target: &Target) -> Result<Request, Fault> {
        let condition = condition_from_wire(self.condition.as_ref())?;
        target.check_write(condition)?;
        Ok(Request::Delete {
            condition,
            tells_existed: self.want_existed,
        })
    }

    fn answer(node: &KvNode, asked: &Asked, outcome: Outcome) -> Result<DeleteResponse, Fault> {
        let (existed, version) = match outcome {
            Outcome::Written {
                version, existed, ..
            } => (existed, version),
            Outcome::Absent { .. } => (false, Ballot::default()),
            other => return Err(fault::of(node, other, (asked.condition, asked.partition))),
        };
        Ok(DeleteResponse {
            existed,
            version: Some(version_to_wire(version)),
        })
    }

    async fn send_one(
        self,
        node: &KvNode,
        to: &Recipient,
        call: CallContext,
    ) -> Result<DeleteResponse, Fault> {
        let send = async |permit: SessionPermit, left| {
            permit.on_behalf_of(call.trace).delete(self, left).await
        };
        let peers = &node.member.peers;
        peers.on_session(to, call.deadline, send).await
    }

    async fn send_many(
        node: &KvNode,
        to: &Recipient,
        items: Vec<Self>,
        call: CallContext,
    ) -> Result<Vec<Result<DeleteResponse, Fault>>, Fault> {
        let sent = items.into_iter();
        let sent = sent.map(|item| item.send_one(node, to, call));
        // Bounded by the size of a connection's burst.
        Ok(join_all(sent).await)
    }
}

/// A request to another node, with a timeout and the trace of its operation.
fn within<T>(limit: Duration, message: T, trace: Option<TraceContext>) -> tonic::Request<T> {
    let mut request = peers::within(limit, message);
    add_context(request.metadata_mut(), trace);
    request
}

fn received<T>(sent: Result<tonic::Response<T>, Status>) -> Result<T, Fault> {
    sent.map(tonic::Response::into_inner)
        .map_err(|status| Fault::from_status(&status))
}
