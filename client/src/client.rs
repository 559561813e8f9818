//! The client's operations on single keys.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use torc_proto::{TraceContext, condition_to_wire, v1};
use torc_record::{Digest, Key, KeyId, MAX_VALUE_LEN, NamespaceId, RecordError};
use torc_ring::topology::RoutingTable;

use crate::call::Call;
use crate::core::Core;
use crate::options::LONGEST_DEADLINE;
use crate::retry::Nature;
use crate::trace::{SpanSink, TraceMode, Tracing};
use crate::view::View;
use crate::{
    Condition, Consistency, Deleted, Error, ErrorKind, GetOptions, HotGets, PutOptions, QuorumSize,
    Value, Version, answers,
};
use torc_session::SessionPermit;

/// A client of a cluster, in one namespace.
///
/// Cheap to clone: clones share connections and topology, and many tasks may use them
/// at once. It works on the Tokio runtime of its first use.
///
/// * Set up: [`Client::builder`], [`Client::connect`], [`Client::namespace`],
///   [`Client::with_deadline`], [`Client::with_quorum`].
/// * One key: [`Client::get`], [`Client::put`], [`Client::delete`] and their `_with`
///   variants.
/// * Many keys: [`Client::batch_get`], [`Client::batch_put`], [`Client::scan`].
/// * The cluster: [`Client::status`], [`Client::topology`], [`Client::explain`],
///   [`Client::plan_join`], [`Client::join`], [`Client::plan_leave`],
///   [`Client::leave`].
///
/// # Errors, retries and deadlines
///
/// An operation has one deadline. Until then, the library retries it, with growing
/// random waits, if it certainly did not happen; reads also if their outcome is
/// unknown. A write of unknown outcome is never sent twice: it fails at once with
/// [`ErrorKind::OutcomeUnknown`]. Dropping an operation's future abandons it; the
/// outcome of a write is then unknown.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
    namespace: Arc<str>,
    deadline: Duration,
    quorum: v1::Quorum,
    trace: Option<TraceMode>,
    spans: Option<SpanSink>,
}

/// A namespace's id and the key of its digests, which every operation needs.
pub(crate) struct Place {
    pub(crate) view: Arc<View>,
    pub(crate) namespace: NamespaceId,
}

impl Place {
    pub(crate) fn digest(&self, key: &[u8]) -> Digest {
        self.view.table.digest(self.namespace, key)
    }

    fn id_of(&self, key: &[u8]) -> KeyId {
        KeyId {
            digest: self.digest(key),
            namespace: self.namespace,
        }
    }
}

/// Setting up.
impl Client {
    pub(crate) fn new(
        core: Arc<Core>,
        namespace: String,
        deadline: Duration,
        spans: Option<SpanSink>,
    ) -> Self {
        Self {
            core,
            trace: None,
            spans,
            namespace: namespace.into(),
            deadline,
            quorum: v1::Quorum::Unspecified,
        }
    }

    /// A client of another namespace on the same connections. Does not check that the
    /// namespace exists.
    #[must_use]
    pub fn namespace(&self, name: impl Into<String>) -> Self {
        Self {
            namespace: name.into().into(),
            ..self.clone()
        }
    }

    /// A client on the same connections with another deadline for each operation.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            deadline: deadline.min(LONGEST_DEADLINE),
            ..self.clone()
        }
    }

    /// A client on the same connections that needs this many replicas to answer each get, put
    /// and delete. Default: a majority, as in every scan. For eventual namespaces only:
    /// elsewhere operations then fail with [`ErrorKind::Invalid`].
    #[must_use]
    pub fn with_quorum(&self, quorum: QuorumSize) -> Self {
        Self {
            quorum: quorum.to_wire(),
            ..self.clone()
        }
    }

    /// A client on the same connections whose gets, puts, deletes and batches belong to this span:
    /// if it is sampled, nodes that trace record their work.
    #[must_use]
    pub fn with_trace(&self, span: TraceContext) -> Self {
        Self {
            trace: Some(TraceMode::PartOf(span)),
            ..self.clone()
        }
    }

    /// A client on the same connections that traces each get, put, delete and request of a batch,
    /// each in its own trace.
    #[must_use]
    pub fn with_sampling(&self) -> Self {
        Self {
            trace: Some(TraceMode::Sampled),
            ..self.clone()
        }
    }

    /// The trace of one operation.
    fn tracing(&self) -> Option<Tracing> {
        Tracing::begin(self.trace, self.spans.as_ref())
    }

    /// The trace context of a batch's requests, which have no span of the client.
    pub(crate) fn trace_of_batch(&self) -> Option<TraceContext> {
        Tracing::begin(self.trace, None).map(|it| it.context)
    }

    pub(crate) const fn quorum(&self) -> v1::Quorum {
        self.quorum
    }

    /// Starts an operation.
    pub(crate) fn call(&self, nature: Nature) -> Call<'_> {
        Call::new(&self.core, nature, self.deadline).traced(self.tracing())
    }

    /// Time limit of an operation, or of a long operation without progress.
    pub(crate) const fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn namespace_name(&self) -> String {
        self.namespace.as_ref().to_owned()
    }

    /// Finds the namespace; fetches a newer topology once if it is unknown.
    pub(crate) async fn place(&self, call: &mut Call<'_>) -> Result<Place, Error> {
        let found = |view: Arc<View>| {
            let namespace = view.table.namespace_id(self.namespace.as_ref());
            namespace.map(|namespace| Place { view, namespace })
        };
        let view = call.view().await?;
        call.is_told = view.tells_digests();
        if let Some(place) = found(Arc::clone(&view)) {
            return Ok(place);
        }
        // If there is no newer topology, the known one decides.
        let _ = self.core.refresh(Some(&view), None, call.deadline()).await;
        let view = call.view().await?;
        if view.hides_namespaces() {
            // Nodes know whether the namespace exists, and whether this client may know that.
            call.is_told = false;
            return Ok(Place {
                view,
                namespace: NamespaceId::DEFAULT,
            });
        }
        call.is_told = view.tells_digests();
        found(view).ok_or_else(|| {
            let name = &self.namespace;
            let message = format!(
                "there is no namespace `{name}`: create it with `kvctl namespace create {name}`"
            );
            Error::new(ErrorKind::NoSuchNamespace, message)
        })
    }
}

/// Operations on one key: one round trip to the lead of the key's partition.
impl Client {
    /// Gets the newest acknowledged value of a key, if any.
    ///
    /// If nodes mark a key as hot, the client sends one get of it at a time, to its replicas in
    /// turn. Gets that start meanwhile wait and share the answer of the next request: up to two
    /// round trips in all. So each get uses a request that was sent after it started, and sees
    /// every write acknowledged before. [`ClientBuilder::mitigate_hot_keys`](crate::ClientBuilder::mitigate_hot_keys) switches this off.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a key that is empty or longer than 1,024 bytes,
    /// without a round trip; [`ErrorKind::Unavailable`], [`ErrorKind::Overloaded`] or
    /// [`ErrorKind::Deadline`] if it did not succeed within the deadline;
    /// [`ErrorKind::NoSuchNamespace`]; [`ErrorKind::Corrupt`].
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<Value>, Error> {
        self.get_with(key, GetOptions::default()).await
    }

    /// [`Client::get`] with options.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_with(
        &self,
        key: impl Into<Bytes>,
        options: GetOptions,
    ) -> Result<Option<Value>, Error> {
        let key = checked_key(key)?;
        let mut call = self.call(Nature::Read);
        let at = self.place(&mut call).await?.id_of(&key);
        let consistency = options.consistency;
        if self.core.hot().is_hot(&at.digest) {
            // The future is large, and rarely needed.
            return Box::pin(self.get_hot(call, &key, at, consistency)).await;
        }
        self.get_alone(call, &key, at, consistency).await
    }

    async fn get_hot(
        &self,
        call: Call<'_>,
        key: &Bytes,
        at: KeyId,
        consistency: Consistency,
    ) -> Result<Option<Value>, Error> {
        let (deadline, is_told) = (call.deadline(), call.is_told);
        let sending = Box::pin(self.get_alone(call.spread(), key, at, consistency));
        let agreement = (consistency, self.quorum);
        let sharing = self.core.hot().share(&at.digest, agreement, sending);
        if let Some(result) = timeout_at(deadline, sharing).await.map_err(|_| late())? {
            return result;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let mut call = Call::new(&self.core, Nature::Read, left).traced(self.tracing());
        call.is_told = is_told;
        self.get_alone(call, key, at, consistency).await
    }

    async fn get_alone(
        &self,
        call: Call<'_>,
        key: &Bytes,
        at: KeyId,
        consistency: Consistency,
    ) -> Result<Option<Value>, Error> {
        let consistency = consistency.to_wire().into();
        let sending = |permit: SessionPermit, budget, route, digest| {
            let message = v1::GetRequest {
                namespace: self.namespace_name(),
                key: key.clone(),
                digest,
                route,
                consistency,
                quorum: self.quorum.into(),
            };
            async move { permit.get(message, budget).await }
        };
        // Another generation of a static namespace has other digests.
        let now = |view: &View| {
            let namespace = view.table.namespace_id(self.namespace.as_ref());
            let namespace = namespace.filter(|now| *now != at.namespace);
            namespace.map_or(at, |namespace| KeyId {
                digest: view.table.digest(namespace, key),
                namespace,
            })
        };
        let answer = call.on_lead(at, now, sending).await?;
        if answer.hot {
            self.core.hot().hint(at.digest);
        }
        answers::value(answer)
    }

    /// Counters on hot keys of this client and its clones.
    #[must_use]
    pub fn hot_gets(&self) -> HotGets {
        self.core.hot().counted()
    }

    /// Stores a value under a key and returns its version.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a key that is empty or longer than 1,024 bytes or a
    /// value longer than 1 MiB, without a round trip; [`ErrorKind::OutcomeUnknown`]
    /// if the connection broke or the deadline passed after the write was sent;
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Overloaded`] or
    /// [`ErrorKind::Deadline`] if it was certainly not stored within the deadline;
    /// [`ErrorKind::OutOfSpace`]; [`ErrorKind::NoSuchNamespace`].
    pub async fn put(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<Version, Error> {
        self.put_with(key, value, PutOptions::default()).await
    }

    /// [`Client::put`] with options.
    ///
    /// # Errors
    /// As [`Client::put`]; [`ErrorKind::ConditionNotMet`]; [`ErrorKind::Invalid`] for
    /// a time to live under a millisecond or besides `expires_at_ms`, and for a condition in an eventual
    /// namespace.
    pub async fn put_with(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        options: PutOptions,
    ) -> Result<Version, Error> {
        let key = checked_key(key)?;
        let value = checked_value(value)?;
        let expiry = options.expiry()?;
        let mut call = self.call(Nature::Write);
        let at = self.place(&mut call).await?.id_of(&key);
        let sending = |permit: SessionPermit, budget, route, digest| {
            let message = v1::PutRequest {
                namespace: self.namespace_name(),
                key: key.clone(),
                value: value.clone(),
                digest,
                route,
                condition: options.condition.map(condition_to_wire),
                ttl_ms: expiry.ttl_ms,
                expires_at_ms: expiry.expires_at_ms,
                quorum: self.quorum.into(),
            };
            async move { permit.put(message, budget).await }
        };
        answers::stored(&call.on_lead(at, |_| at, sending).await?)
    }

    /// Deletes a key. Deleting an absent key succeeds.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub async fn delete(&self, key: impl Into<Bytes>) -> Result<Deleted, Error> {
        self.delete_with(key, None).await
    }

    /// [`Client::delete`] with a condition.
    ///
    /// # Errors
    /// As [`Client::put`]; [`ErrorKind::ConditionNotMet`].
    pub async fn delete_with(
        &self,
        key: impl Into<Bytes>,
        condition: Option<Condition>,
    ) -> Result<Deleted, Error> {
        self.delete_by(key, condition, true).await
    }

    /// Deletes a key without reporting whether it had a value: one round of messages between
    /// nodes instead of two. Returns the version of the deletion.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub async fn erase(&self, key: impl Into<Bytes>) -> Result<Version, Error> {
        let deleted = self.delete_by(key, None, false).await?;
        Ok(deleted.version)
    }

    async fn delete_by(
        &self,
        key: impl Into<Bytes>,
        condition: Option<Condition>,
        want_existed: bool,
    ) -> Result<Deleted, Error> {
        let key = checked_key(key)?;
        let mut call = self.call(Nature::Write);
        let at = self.place(&mut call).await?.id_of(&key);
        let sending = |permit: SessionPermit, budget, route, digest| {
            let message = v1::DeleteRequest {
                namespace: self.namespace_name(),
                key: key.clone(),
                digest,
                route,
                condition: condition.map(condition_to_wire),
                quorum: self.quorum.into(),
                want_existed,
            };
            async move { permit.delete(message, budget).await }
        };
        answers::deleted(&call.on_lead(at, |_| at, sending).await?)
    }
}

/// The topology.
impl Client {
    /// The cluster's topology, after asking up to three nodes for a newer one. If
    /// nothing changed, this costs a round trip and a few hundred bytes each.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Deadline`] if no node answered within
    /// the deadline.
    pub async fn topology(&self) -> Result<Arc<RoutingTable>, Error> {
        let mut call = self.call(Nature::Read);
        let seen = self.core.view();
        while let Err(failure) = self
            .core
            .refresh(seen.as_ref(), None, call.deadline())
            .await
        {
            call.recover(failure, None, None).await?;
        }
        Ok(Arc::clone(&call.view().await?.table))
    }

    /// The topology that the client uses now, without a request; `None` before the
    /// first operation.
    #[must_use]
    pub fn known_topology(&self) -> Option<Arc<RoutingTable>> {
        self.core.view().map(|view| Arc::clone(&view.table))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("namespace", &self.namespace)
            .field("deadline", &self.deadline)
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

/// The error of a get that waited for another get's request until its deadline.
fn late() -> Error {
    let message = "earlier requests for the same hot key were not answered in time";
    Error::new(ErrorKind::Deadline, message)
}

pub(crate) fn checked_key(key: impl Into<Bytes>) -> Result<Bytes, Error> {
    match Key::new(key) {
        Ok(key) => Ok(key.into_bytes()),
        Err(refused) => Err(Error::new(ErrorKind::Invalid, refused.to_string())),
    }
}

pub(crate) fn checked_value(value: impl Into<Bytes>) -> Result<Bytes, Error> {
    let value = value.into();
    let len = value.len();
    if len <= MAX_VALUE_LEN {
        return Ok(value);
    }
    let refused = RecordError::ValueTooLong { len };
    Err(Error::new(ErrorKind::Invalid, refused.to_string()))
}
