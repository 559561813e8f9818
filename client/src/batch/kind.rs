//! The differences between batches of reads and of writes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tonic::{Response, Status};
use torc_proto::{Fault, TraceContext, condition_to_wire, v1};
use torc_record::Digest;

use crate::core::Core;
use crate::naming::{Connection, kv};
use crate::options::Expiry;
use crate::peer::attempt::traced_request;
use crate::retry::Nature;
use crate::{Condition, Error, Value, Version, answers};

/// One item's outcome: the node's fault, or its possibly malformed answer.
pub(super) type Outcome<D> = Result<Result<D, Error>, Fault>;

/// Most bytes of an item beyond its key and value, without the namespace.
const ITEM_OVERHEAD: usize = 128;

/// A kind of batch.
pub(super) trait Kind: Send + Sync {
    /// The caller's input for an item.
    type What: Send + Sync;
    /// The caller's result for it.
    type Done: Send + Sync;
    /// An item on the wire.
    type Wire: Send;

    /// Whether items may be resent after their outcome was lost.
    const NATURE: Nature;

    fn key(what: &Self::What) -> &[u8];

    /// Most bytes of an item in a request.
    fn bytes(&self, what: &Self::What) -> usize;

    fn wire(&self, what: &Self::What, digest: Bytes, route: Option<v1::Route>) -> Self::Wire;

    /// Sends a request; the outcomes come in the order of the items.
    fn send(
        &self,
        channel: Connection,
        budget: Duration,
        items: Vec<Self::Wire>,
    ) -> impl Future<Output = Result<Response<Vec<Outcome<Self::Done>>>, Status>> + Send;
}

/// Reads.
pub(super) struct Gets {
    pub(super) namespace: String,
    /// Receives the hot keys of answers.
    pub(super) core: Arc<Core>,
    pub(super) quorum: v1::Quorum,
    pub(super) trace: Option<TraceContext>,
}

impl Kind for Gets {
    type What = Bytes;
    type Done = Option<Value>;
    type Wire = v1::GetRequest;

    const NATURE: Nature = Nature::Read;

    fn key(what: &Bytes) -> &[u8] {
        what
    }

    fn bytes(&self, key: &Bytes) -> usize {
        ITEM_OVERHEAD + self.namespace.len() + key.len()
    }

    fn wire(&self, key: &Bytes, digest: Bytes, route: Option<v1::Route>) -> v1::GetRequest {
        v1::GetRequest {
            namespace: self.namespace.clone(),
            key: key.clone(),
            digest,
            route,
            consistency: v1::Consistency::Unspecified.into(),
            quorum: self.quorum.into(),
        }
    }

    async fn send(
        &self,
        channel: Connection,
        budget: Duration,
        items: Vec<v1::GetRequest>,
    ) -> Result<Response<Vec<Outcome<Option<Value>>>>, Status> {
        let digests: Vec<Bytes> = items.iter().map(|item| item.digest.clone()).collect();
        let message = v1::BatchGetRequest { items };
        let answer = kv(channel)
            .batch_get(traced_request(message, budget, self.trace))
            .await?;
        for (digest, result) in digests.iter().zip(&answer.get_ref().results) {
            if let Some(digest) = hot(digest, result) {
                self.core.hot().hint(digest);
            }
        }
        Ok(answer.map(|batch| batch.results.into_iter().map(got).collect()))
    }
}

/// The digest of a key that the answer marks as hot.
fn hot(digest: &Bytes, result: &v1::GetResult) -> Option<Digest> {
    let is_hot = matches!(&result.outcome, Some(v1::get_result::Outcome::Ok(answer)) if answer.hot);
    is_hot.then(|| torc_proto::digest_from_wire(digest).ok())??
}

fn got(result: v1::GetResult) -> Outcome<Option<Value>> {
    match result.outcome {
        Some(v1::get_result::Outcome::Ok(answer)) => Ok(answers::value(answer)),
        Some(v1::get_result::Outcome::Fault(fault)) => Err(fault.into()),
        None => Ok(Err(Error::malformed("an item without an outcome", false))),
    }
}

/// A record to store.
pub(super) struct Record {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    pub(super) condition: Option<Condition>,
    pub(super) expiry: Expiry,
}

/// Writes.
pub(super) struct Puts {
    pub(super) namespace: String,
    pub(super) quorum: v1::Quorum,
    pub(super) trace: Option<TraceContext>,
}

impl Kind for Puts {
    type What = Record;
    type Done = Version;
    type Wire = v1::PutRequest;

    const NATURE: Nature = Nature::Write;

    fn key(record: &Record) -> &[u8] {
        &record.key
    }

    fn bytes(&self, record: &Record) -> usize {
        ITEM_OVERHEAD + self.namespace.len() + record.key.len() + record.value.len()
    }

    fn wire(&self, record: &Record, digest: Bytes, route: Option<v1::Route>) -> v1::PutRequest {
        v1::PutRequest {
            namespace: self.namespace.clone(),
            key: record.key.clone(),
            value: record.value.clone(),
            digest,
            route,
            condition: record.condition.map(condition_to_wire),
            ttl_ms: record.expiry.ttl_ms,
            expires_at_ms: record.expiry.expires_at_ms,
            quorum: self.quorum.into(),
        }
    }

    async fn send(
        &self,
        channel: Connection,
        budget: Duration,
        items: Vec<v1::PutRequest>,
    ) -> Result<Response<Vec<Outcome<Version>>>, Status> {
        let message = v1::BatchPutRequest { items };
        let answer = kv(channel)
            .batch_put(traced_request(message, budget, self.trace))
            .await?;
        Ok(answer.map(|batch| batch.results.into_iter().map(put).collect()))
    }
}

fn put(result: v1::PutResult) -> Outcome<Version> {
    match result.outcome {
        Some(v1::put_result::Outcome::Ok(answer)) => Ok(answers::stored(&answer)),
        Some(v1::put_result::Outcome::Fault(fault)) => Err(fault.into()),
        None => Ok(Err(Error::malformed("an item without an outcome", true))),
    }
}
