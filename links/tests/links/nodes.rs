//! Nodes that consist only of links, each with its own runtime, so that it can be killed.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use torc_links::{
    Contact, Directory, LinkMetrics, LinkOptions, LinkService, LinkStream, Links, Parcel, Whoami,
};
use torc_proto::Fault;
use torc_proto::v1;
use torc_proto::v1::replica_server::{Replica, ReplicaServer};
use torc_record::{Epoch, HybridTime};
use torc_replication::{Envelope, Message, OpId, Tag};
use torc_ring::topology::{Boot, ClusterId, Incarnation, Levels};
use torc_ring::{NodeId, Partition, Partitions};

/// The start number of every node.
pub(crate) const BOOT: Boot = Boot {
    number: 3,
    draw: 33,
};
pub(crate) const CLUSTER: ClusterId = ClusterId([9; 16]);
const TIMEOUT: Duration = Duration::from_secs(60);

/// The members, shared by all nodes of a test.
pub(crate) type Members = Arc<Mutex<BTreeMap<NodeId, Contact>>>;

struct View {
    node: NodeId,
    members: Members,
    looked: Arc<AtomicUsize>,
    disowned: Arc<Mutex<Option<Fault>>>,
}

impl Directory for View {
    fn whoami(&self) -> Option<Whoami> {
        Some(Whoami {
            cluster: CLUSTER,
            node: self.node,
            incarnation: incarnation(self.node),
            boot: BOOT,
            levels: Levels::OURS,
            level: Levels::OURS.newest,
            ceiling: HybridTime(u64::MAX),
        })
    }

    fn member(&self, node: NodeId) -> Option<Contact> {
        self.looked.fetch_add(1, Ordering::SeqCst);
        self.members.lock().get(&node).cloned()
    }

    fn disown(&self, why: &Fault) {
        self.disowned.lock().get_or_insert(why.clone());
    }
}

pub(crate) fn incarnation(node: NodeId) -> Incarnation {
    Incarnation([node.0 as u8; 16])
}

/// The parameters of a node.
pub(crate) struct Setup {
    pub(crate) address: SocketAddr,
    pub(crate) queue_envelopes: usize,
    pub(crate) faults_file: Option<PathBuf>,
    /// Batches that the inbox accepts before it gets more permits.
    pub(crate) permits: usize,
    /// Age at which it replaces its streams to others.
    pub(crate) stream_age: Duration,
    /// Age at which it ends streams of others.
    pub(crate) stream_ends_after: Option<Duration>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            queue_envelopes: 1 << 20,
            faults_file: None,
            permits: Semaphore::MAX_PERMITS,
            stream_age: Duration::from_secs(3_600),
            stream_ends_after: None,
        }
    }
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) address: SocketAddr,
    pub(crate) links: Links,
    pub(crate) metrics: LinkMetrics,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) disowned: Arc<Mutex<Option<Fault>>>,
    received: Arc<Mutex<Vec<(NodeId, u64)>>>,
    opened: Arc<AtomicUsize>,
    looked: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

impl Node {
    pub(crate) fn start(id: u64, members: &Members, setup: Setup) -> Self {
        let id = NodeId(id);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let inside = runtime.enter();
        let metrics = LinkMetrics::register(&mut Registry::default());
        let disowned = Arc::<Mutex<Option<Fault>>>::default();
        let looked = Arc::<AtomicUsize>::default();
        let directory = View {
            node: id,
            members: Arc::clone(members),
            looked: Arc::clone(&looked),
            disowned: Arc::clone(&disowned),
        };
        let options = LinkOptions {
            queue_envelopes: setup.queue_envelopes,
            faults_file: setup.faults_file,
            stream_age: setup.stream_age,
            ..LinkOptions::new(Partitions::DEFAULT)
        };
        let cancel = CancellationToken::new();
        let links = Links::new(Arc::new(directory), options, metrics.clone(), cancel);
        let received = Arc::<Mutex<Vec<_>>>::default();
        let permits = Arc::new(Semaphore::new(setup.permits));
        let (seen, taking) = (Arc::clone(&received), Arc::clone(&permits));
        let inbox = move |from, batch: Vec<Parcel>| {
            let (seen, taking) = (Arc::clone(&seen), Arc::clone(&taking));
            async move {
                taking.acquire().await.unwrap().forget();
                seen.lock()
                    .extend(batch.iter().map(|e| (from, number(&e.envelope))));
            }
        };
        let service = links.service(Arc::new(inbox));
        let listener = runtime.block_on(TcpListener::bind(setup.address)).unwrap();
        let address = listener.local_addr().unwrap();
        let opened = Arc::<AtomicUsize>::default();
        let service = LinkOnly {
            service,
            stream_ends_after: setup.stream_ends_after,
            opened: Arc::clone(&opened),
        };
        let server = ReplicaServer::new(service).max_decoding_message_size(32 << 20);
        runtime.spawn(
            tonic::transport::Server::builder()
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(16 << 20)
                .add_service(server)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        let contact = Contact {
            address: address.to_string(),
            incarnation: incarnation(id),
            boot: Some(BOOT),
        };
        members.lock().insert(id, contact);
        drop(inside);
        Self {
            id,
            address,
            links,
            metrics,
            permits,
            disowned,
            received,
            opened,
            looked,
            runtime: Some(runtime),
        }
    }

    /// Messages that arrived from a node, in order.
    pub(crate) fn received_from(&self, from: NodeId) -> Vec<u64> {
        let received = self.received.lock();
        let its = received.iter().filter(|(node, _)| *node == from);
        its.map(|(_, number)| *number).collect()
    }

    /// Streams that were opened to it, refused ones too.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    /// How often it looked for a member.
    pub(crate) fn looked(&self) -> usize {
        self.looked.load(Ordering::SeqCst)
    }

    pub(crate) fn received(&self) -> usize {
        self.received.lock().len()
    }

    /// Leaves the other nodes. `answered` resolves once this node has answered them.
    pub(crate) fn leave(&self, answered: impl Future<Output = ()>) {
        let runtime = self.runtime.as_ref().unwrap();
        runtime.block_on(self.links.leave(answered));
    }

    /// Ends everything of the node at once, including connections.
    pub(crate) fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A message with a number.
pub(crate) fn message(number: u64) -> Parcel {
    envelope(number).into()
}

pub(crate) fn envelope(number: u64) -> Envelope {
    let tag = Tag {
        op: OpId(number),
        round: HybridTime(1 << 60),
    };
    Envelope {
        partition: Partition(7),
        epoch: Epoch(3),
        message: Message::Accepted { tag },
    }
}

fn number(envelope: &Envelope) -> u64 {
    match &envelope.message {
        Message::Accepted { tag } | Message::Accept { tag, .. } => tag.op.0,
        other => panic!("nobody sent {other:?}"),
    }
}

/// Waits until a condition holds; fails after a minute.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A `Replica` service that supports only links.
struct LinkOnly {
    service: LinkService,
    stream_ends_after: Option<Duration>,
    opened: Arc<AtomicUsize>,
}

type Answer<T> = Result<Response<T>, Status>;

fn absent<T>() -> Answer<T> {
    Err(Status::unimplemented("links only"))
}

#[tonic::async_trait]
impl Replica for LinkOnly {
    type CopySlicesStream = futures::stream::Empty<Result<v1::CopySlicesResponse, Status>>;
    type LinkStream = LinkStream;

    async fn link(&self, request: Request<Streaming<v1::LinkRequest>>) -> Answer<LinkStream> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(
            self.service
                .accept(
                    request.into_inner(),
                    self.stream_ends_after.map(|time| Instant::now() + time),
                    |_| true,
                )
                .await?,
        ))
    }

    async fn identify(&self, _: Request<v1::IdentifyRequest>) -> Answer<v1::IdentifyResponse> {
        absent()
    }

    async fn enlist(&self, _: Request<v1::EnlistRequest>) -> Answer<v1::EnlistResponse> {
        absent()
    }

    async fn copy_slices(
        &self,
        _: Request<v1::CopySlicesRequest>,
    ) -> Answer<Self::CopySlicesStream> {
        absent()
    }

    async fn give_authority(
        &self,
        _: Request<v1::GiveAuthorityRequest>,
    ) -> Answer<v1::GiveAuthorityResponse> {
        absent()
    }

    async fn summarize(&self, _: Request<v1::SummarizeRequest>) -> Answer<v1::SummarizeResponse> {
        absent()
    }
}
