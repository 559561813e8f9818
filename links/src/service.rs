//! The receiving end of links: authenticates senders and passes messages on.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use torc_proto::link::{LinkHello, LinkWelcome, envelope_from_bytes, split_batch};
use torc_proto::v1::{LinkRequest, LinkResponse, Start};
use torc_proto::{Fault, Reason, WireError};
use torc_record::HybridTime;
use torc_ring::NodeId;
use torc_ring::topology::Boot;

use crate::{DropReason, Inner, Parcel, Whoami};

/// Time limit from the call to the first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Streams of one peer. A peer has one, and the end of its last one may not be known yet. Without
/// TLS, others may be an outsider's: they must not end the one that the peer uses.
const MOST_STREAMS: usize = 4;

/// Takes received messages. The stream waits until it is done.
pub trait Inbox: Send + Sync {
    /// Takes a batch from a peer, in the order of sending.
    fn deliver(&self, from: NodeId, batch: Vec<Parcel>) -> BoxFuture<'_, ()>;
}

impl<F, Delivered> Inbox for F
where
    F: Fn(NodeId, Vec<Parcel>) -> Delivered + Send + Sync,
    Delivered: Future<Output = ()> + Send + 'static,
{
    fn deliver(&self, from: NodeId, batch: Vec<Parcel>) -> BoxFuture<'_, ()> {
        Box::pin(self(from, batch))
    }
}

/// The answers on a stream: a welcome, and perhaps that the node stops.
pub type LinkStream = ReceiverStream<Result<LinkResponse, Status>>;

/// `Replica.Link` of one node. Cloning shares it.
#[derive(Clone)]
pub struct LinkService {
    inner: Arc<Inner>,
    inbox: Arc<dyn Inbox>,
    streams: Arc<Mutex<HashMap<NodeId, Streams>>>,
}

/// The streams of one peer, all of the same start.
struct Streams {
    boot: Boot,
    open: Vec<Arc<OpenStream>>,
    /// The latest time of a ballot that the peer has sent in this start or an earlier one. Its data directory
    /// knows a later one, or is an older copy.
    latest: Arc<AtomicU64>,
}

struct OpenStream {
    batches: AtomicU64,
    replaced: CancellationToken,
}

impl Streams {
    fn new(boot: Boot) -> Self {
        Self {
            boot,
            open: Vec::new(),
            latest: Arc::default(),
        }
    }

    fn latest(&self) -> HybridTime {
        HybridTime(self.latest.load(Ordering::Relaxed))
    }

    /// Adds a stream. It ends all streams of an earlier start, or else, if there are too many, the
    /// one that has brought the fewest batches.
    fn add(&mut self, boot: Boot, stream: Arc<OpenStream>) {
        if self.boot != boot {
            self.boot = boot;
            for earlier in self.open.drain(..) {
                earlier.replaced.cancel();
            }
        }
        if self.open.len() >= MOST_STREAMS {
            let open = self.open.iter().enumerate();
            // The oldest of several.
            let quietest = open.min_by_key(|(_, it)| it.batches.load(Ordering::Relaxed));
            if let Some((at, _)) = quietest {
                self.open.remove(at).replaced.cancel();
            }
        }
        self.open.push(stream);
    }
}

impl std::fmt::Debug for LinkService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkService(..)")
    }
}

impl LinkService {
    pub(crate) fn new(inner: Arc<Inner>, inbox: Arc<dyn Inbox>) -> Self {
        Self {
            inner,
            inbox,
            streams: Arc::default(),
        }
    }

    /// Accepts a stream from another node, which `may_be` authenticates. A stream of a later start
    /// of the same node ends it, or too many others of the same start. From `ends` on, the sender's
    /// certificate counts no longer: the stream ends, and the sender opens another one.
    ///
    /// # Errors
    /// A status: retryable while one node does not know the other yet; final if the
    /// sender means another node, or is not the node that it claims to be.
    pub async fn accept(
        &self,
        mut requests: Streaming<LinkRequest>,
        ends: Option<Instant>,
        may_be: impl FnOnce(NodeId) -> bool,
    ) -> Result<LinkStream, Status> {
        let first = tokio::time::timeout(HELLO_TIMEOUT, requests.message())
            .await
            .map_err(|_| {
                Fault::new(Reason::Deadline, "the peer did not identify itself in time")
            })??;
        let hello = LinkHello::from_wire(&first.unwrap_or_default()).map_err(Fault::from)?;
        if !may_be(hello.node) {
            let message = format!("the certificate is not that of node {}", hello.node);
            return Err(Fault::new(Reason::PermissionDenied, message).into());
        }
        let me = self.check(&hello)?;
        let (answers, received) = mpsc::channel(3);
        let welcome = LinkWelcome {
            node: me.node,
            incarnation: me.incarnation,
            boot: me.boot,
            levels: me.levels,
        };
        // The channel has room for three: this, that the node stops, and why the stream ends.
        let _ = answers.try_send(Ok(welcome.to_wire()));
        let stream = Arc::new(OpenStream {
            batches: AtomicU64::new(0),
            replaced: self.inner.cancel.child_token(),
        });
        let latest = {
            let mut streams = self.streams.lock();
            let of_it = streams.entry(hello.node);
            let of_it = of_it.or_insert_with(|| Streams::new(hello.boot));
            of_it.add(hello.boot, Arc::clone(&stream));
            Arc::clone(&of_it.latest)
        };
        let service = self.clone();
        self.inner.inbound.spawn(async move {
            let leaving = async {
                service.inner.leaving.cancelled().await;
                let leaving = LinkResponse {
                    welcome: None,
                    leaving: true,
                };
                let _ = answers.try_send(Ok(leaving));
                std::future::pending::<Infallible>().await
            };
            let ended = tokio::select! {
                biased;
                () = stream.replaced.cancelled() => Err(retry("the node is stopping, or a newer stream has taken over")),
                never = leaving => match never {},
                ended = service.pump(hello.node, (&stream, &latest), requests, ends) => ended,
            };
            service.forget(hello.node, &stream);
            if let Err(status) = ended {
                let _ = answers.try_send(Err(status));
            }
        });
        Ok(ReceiverStream::new(received))
    }

    /// Whether a member that starts knows of all ballots that it has sent.
    ///
    /// # Errors
    /// `SUPERSEDED`: its data directory is an older copy. `INVALID`: malformed.
    pub fn check_start(&self, start: &Start) -> Result<(), Fault> {
        let field = "incarnation";
        let incarnation = <[u8; 16]>::try_from(&start.incarnation[..]);
        let incarnation = incarnation.map_err(|_| WireError::Field { field })?;
        let node = NodeId(start.node);
        let member = self.inner.directory.member(node);
        let is_it = member.is_some_and(|it| it.incarnation.0 == incarnation);
        let latest = self.streams.lock().get(&node).map(Streams::latest);
        if is_it && latest.is_some_and(|latest| latest.0 > start.ceiling) {
            return Err(Fault::outdated(node));
        }
        Ok(())
    }

    fn forget(&self, node: NodeId, stream: &Arc<OpenStream>) {
        if let Some(streams) = self.streams.lock().get_mut(&node) {
            streams.open.retain(|open| !Arc::ptr_eq(open, stream));
        }
    }

    fn check(&self, hello: &LinkHello) -> Result<Whoami, Fault> {
        let me = self.inner.directory.whoami();
        let me = me.ok_or_else(|| not_yet("this node belongs to no cluster yet"))?;
        if self.inner.leaving.is_cancelled() {
            return Err(not_yet("this node is stopping"));
        }
        if (hello.cluster, hello.target) != (me.cluster, me.node) || hello.node == me.node {
            let message = format!("this is node {} of cluster {}", me.node, me.cluster);
            return Err(Fault::new(Reason::Refused, message));
        }
        if !hello.levels.contains(me.level) {
            let message = format!(
                "node {} supports feature {}, but the cluster is at level {}: {}",
                hello.node,
                hello.levels,
                me.level,
                hello.levels.advice(me.level)
            );
            return Err(Fault::new(Reason::Refused, message));
        }
        let member = self.inner.directory.member(hello.node);
        let member =
            member.ok_or_else(|| not_yet("this node does not know the peer as a member"))?;
        if member.incarnation != hello.incarnation {
            let message = "the peer's data directory is not the one that joined: a wiped \
                           node must join as a new member";
            return Err(Fault::new(Reason::Refused, message));
        }
        let streams = self.streams.lock();
        let seen = streams.get(&hello.node).map(|it| (it.boot, it.latest()));
        drop(streams);
        let mut known = member.boot.into_iter().chain(seen.map(|(boot, _)| boot));
        if let Some(known) = known.find(|known| hello.boot.is_superseded_by(*known)) {
            return Err(Fault::superseded(hello.node, hello.boot, known));
        }
        match seen {
            Some((boot, latest)) if boot != hello.boot && latest > hello.ceiling => {
                Err(Fault::outdated(hello.node))
            }
            _ => Ok(me),
        }
    }

    /// Passes batches on until the stream ends.
    async fn pump(
        &self,
        from: NodeId,
        (stream, latest): (&OpenStream, &AtomicU64),
        mut requests: Streaming<LinkRequest>,
        ends: Option<Instant>,
    ) -> Result<(), Status> {
        let mut over = pin!(async {
            match ends {
                Some(ends) => tokio::time::sleep_until(ends.into()).await,
                None => std::future::pending().await,
            }
        });
        loop {
            let request = tokio::select! {
                biased;
                () = &mut over => {
                    return Err(retry("the certificate is no longer accepted on this connection: reconnect"));
                }
                request = requests.message() => request?,
            };
            let Some(request) = request else {
                return Ok(());
            };
            stream.batches.fetch_add(1, Ordering::Relaxed);
            let batch = self.read(request).map_err(Fault::from)?;
            let ballots = batch.iter().filter_map(|it| it.envelope.message.ballot());
            if let Some(ballot) = ballots.max_by_key(|it| it.time) {
                latest.fetch_max(ballot.time.0, Ordering::Relaxed);
            }
            if self.inner.faults.cut_from(from) {
                self.inner.metrics.dropped(DropReason::Cut, batch.len());
            } else if !batch.is_empty() {
                if let Some(queue) = self.inner.queues.read().get(&from) {
                    queue.heard();
                }
                self.inbox.deliver(from, batch).await;
            }
        }
    }

    /// The messages of a batch. A malformed one is dropped alone.
    fn read(&self, request: LinkRequest) -> Result<Vec<Parcel>, WireError> {
        let metrics = &self.inner.metrics;
        metrics.received_batches.inc();
        metrics
            .received_bytes
            .inc_by(request.envelopes.len() as u64);
        let parts = split_batch(request.envelopes)?;
        let mut batch = Vec::with_capacity(parts.len());
        for part in parts {
            match envelope_from_bytes(part, self.inner.options.partitions) {
                Ok((envelope, trace)) => {
                    metrics.received(&envelope.message);
                    let trace = trace.map(Box::new);
                    batch.push(Parcel { envelope, trace });
                }
                Err(error) => {
                    metrics.dropped(DropReason::Malformed, 1);
                    tracing::debug!(%error, "a malformed message");
                }
            }
        }
        Ok(batch)
    }
}

fn not_yet(message: &str) -> Fault {
    Fault::new(Reason::NotServing, message).retry_after(RETRY_AFTER)
}

fn retry(message: &str) -> Status {
    not_yet(message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(batches: u64) -> Arc<OpenStream> {
        Arc::new(OpenStream {
            batches: batches.into(),
            replaced: CancellationToken::new(),
        })
    }

    #[test]
    fn too_many_streams_end_the_quietest_and_a_later_start_ends_all() {
        let start = |number| Boot { number, draw: 1 };
        let mut streams = Streams::new(start(1));
        let used = open(9);
        streams.add(start(1), Arc::clone(&used));
        let others: Vec<_> = [1; 8].map(open).to_vec();
        for other in &others {
            streams.add(start(1), Arc::clone(other));
        }
        let is_replaced = |stream: &Arc<OpenStream>| stream.replaced.is_cancelled();
        assert!(!is_replaced(&used), "the peer uses it");
        assert!(others[..5].iter().all(is_replaced), "the oldest first");
        assert!(!others[5..].iter().any(is_replaced));
        streams.add(start(2), open(0));
        assert!(is_replaced(&used) && others.iter().all(is_replaced));
        assert_eq!(streams.open.len(), 1);
    }
}
