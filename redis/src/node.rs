//! What the server for Redis clients needs of its node.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncWrite};
use torc_access::caller::Caller;
use torc_proto::Fault;
use torc_proto::v1::{
    DeleteRequest, DeleteResponse, GetRequest, GetResponse, PutRequest, PutResponse, ScanRequest,
    ScanResponse,
};
use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, Holder, ReadGenerations, Role, RoutingTable};

/// Bytes that are charged to the node's memory limit until this is dropped.
pub type Charge = Box<dyn Send + Sync>;

/// A connection's stream of bytes.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A node, as the server for Redis clients uses it.
///
/// * Its place: [`id`](Self::id), [`cluster`](Self::cluster), [`routing`](Self::routing),
///   [`redis_addresses`](Self::redis_addresses).
/// * Keys: [`enter`](Self::enter), [`leave`](Self::leave), [`get_all`](Self::get_all),
///   [`put_all`](Self::put_all), [`delete_all`](Self::delete_all), [`scan`](Self::scan).
/// * Callers: [`may`](Self::may), [`denied`](Self::denied), [`holder`](Self::holder).
/// * Memory: the rest.
pub trait Node: Send + Sync + 'static {
    /// Its id, once it is a member of a cluster.
    ///
    /// # Errors
    /// `NOT_SERVING`.
    fn id(&self) -> Result<NodeId, Fault>;

    /// Its cluster, if it has one.
    fn cluster(&self) -> Option<ClusterId>;

    /// Its routing table.
    ///
    /// # Errors
    /// `NOT_SERVING`.
    fn routing(&self) -> Result<Arc<RoutingTable>, Fault>;

    /// The members that answer, each with its address for Redis clients; empty if it serves none.
    fn redis_addresses(&self) -> BoxFuture<'_, Result<Vec<(NodeId, String)>, Fault>>;

    /// Admits that many operations, or none; [`leave`](Self::leave) ends them.
    ///
    /// # Errors
    /// `OVERLOADED` or `NOT_SERVING`.
    fn enter(&self, count: usize) -> Result<(), Fault>;

    /// Ends that many admitted operations.
    fn leave(&self, count: usize);

    /// Runs gets as one batch; the answers have the same order.
    fn get_all<'a>(
        &'a self,
        gets: &'a [GetRequest],
        deadline: Instant,
        generations: &'a mut ReadGenerations,
    ) -> BoxFuture<'a, Vec<Result<GetResponse, Fault>>>;

    /// Runs puts as one batch; the outcomes have the same order.
    fn put_all<'a>(
        &'a self,
        puts: &'a [PutRequest],
        deadline: Instant,
    ) -> BoxFuture<'a, Vec<Result<PutResponse, Fault>>>;

    /// Runs deletes as one batch; the outcomes have the same order.
    fn delete_all<'a>(
        &'a self,
        deletes: &'a [DeleteRequest],
        deadline: Instant,
    ) -> BoxFuture<'a, Vec<Result<DeleteResponse, Fault>>>;

    /// The pages of a scan.
    ///
    /// # Errors
    /// `INVALID`, `NO_SUCH_NAMESPACE`, `NOT_SERVING` or `OVERLOADED`.
    fn scan(
        &self,
        request: ScanRequest,
    ) -> Result<BoxStream<'static, Result<ScanResponse, Fault>>, Fault>;

    /// Refuses a caller that may not do this to a key; an empty key stands for all keys.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` or `UNAUTHENTICATED`, before any lookup.
    fn may(&self, caller: &Caller, role: Role, namespace: &str, key: &[u8]) -> Result<(), Fault>;

    /// Records a refused caller.
    fn denied(&self, caller: &Caller, call: &str, fault: &Fault);

    /// The holder of a token.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`.
    fn holder(&self, token: &str) -> Result<Arc<Holder>, Fault>;

    /// Charges bytes without a limit.
    fn force_charge(&self, bytes: usize) -> Charge;

    /// Charges bytes that are part of a request of `whole` bytes, as soon as there is room.
    fn charge(
        &self,
        bytes: usize,
        whole: usize,
        until: Instant,
    ) -> BoxFuture<'_, Result<Charge, Fault>>;

    /// The bytes charged now.
    fn charged_bytes(&self) -> usize;

    /// Resident memory of the process, bytes.
    fn resident_bytes(&self) -> u64;
}
