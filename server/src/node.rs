//! One node: started, serving, stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::server::TcpIncoming;
use torc_proto::v1::cluster_server::ClusterServer;
use torc_proto::v1::kv_server::KvServer;
use torc_proto::v1::replica_server::ReplicaServer;
use torc_proto::{FILE_DESCRIPTOR_SET, MAX_MESSAGE_LEN};
use torc_store::{Advisory, Store, StoreError, StoreOptions};

use crate::clock::Clock;
use crate::cluster::ClusterService;
use crate::config::Settings;
use crate::founding::{EnlistByRpc, announce_address, found};
use crate::gate::Gates;
use crate::group::{GroupError, GroupOptions, TopologyGroup, keep_membership};
use crate::identity::{Identity, IdentityError};
use crate::kv::KvService;
use crate::metrics::Metrics;
use crate::moves::Throttle;
use crate::order::KeyOrder;
use crate::replica::ReplicaService;
use crate::shared::Shared;
use crate::{adopt, founding, http, moves};

/// How long requests under way may take to end when the node stops.
const DRAIN: Duration = Duration::from_secs(5);
/// After this a connection is closed in order, so that clients spread anew.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(3600);
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Why a node did not start. Nothing that was stored is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The store did not open.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The node does not know who it is.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The topology group did not open.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An address cannot be served on. Is another process using it?
    #[error("cannot serve on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The description of the interface could not be prepared.
    #[error("gRPC reflection: {0}")]
    Reflection(String),
}

/// A running node. Stop it with [`Node::stop`]; dropping it stops it without waiting.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    grpc_addr: SocketAddr,
    http_addr: SocketAddr,
}

impl Node {
    /// Opens the data directory, binds both addresses and begins to serve. A node that
    /// belongs to no cluster answers NOT_SERVING until it is bootstrapped or joined.
    ///
    /// # Errors
    /// [`NodeError`]; nothing keeps running then.
    pub async fn start(settings: Settings) -> Result<Self, NodeError> {
        let (grpc, grpc_addr) = bind(settings.grpc_addr).await?;
        let (http, http_addr) = bind(settings.http_addr).await?;
        let shared = Arc::new(open(settings, grpc_addr, http_addr)?);
        if let Some(membership) = shared.identity.membership()
            && !founding::is_due(&shared)
        {
            shared
                .group
                .start(membership.node, membership.cluster)
                .await?;
        }
        let tasks = TaskTracker::new();
        tasks.spawn(serve_http(Arc::clone(&shared), http));
        let serving = serve_grpc(Arc::clone(&shared), grpc)?;
        tasks.spawn(serving);
        tasks.spawn(adopt::run(Arc::clone(&shared)));
        tasks.spawn(moves::run(Arc::clone(&shared)));
        tasks.spawn(until_cancelled(
            shared.cancel.clone(),
            found(Arc::clone(&shared)),
        ));
        tasks.spawn(until_cancelled(
            shared.cancel.clone(),
            announce_address(Arc::clone(&shared)),
        ));
        let enlister = Arc::new(EnlistByRpc(Arc::clone(&shared)));
        tasks.spawn(keep_membership(
            shared.group.clone(),
            enlister,
            shared.cancel.clone(),
        ));
        tasks.close();
        tracing::info!(grpc = %grpc_addr, http = %http_addr, "listening");
        Ok(Self {
            shared,
            tasks,
            grpc_addr,
            http_addr,
        })
    }

    /// Where gRPC is served.
    #[must_use]
    pub const fn grpc_addr(&self) -> SocketAddr {
        self.grpc_addr
    }

    /// Where HTTP is served.
    #[must_use]
    pub const fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// Whether the node serves its partitions, or why not.
    ///
    /// # Errors
    /// The reason, for people.
    pub fn ready(&self) -> Result<(), String> {
        self.shared.ready()
    }

    /// Waits until something has failed that the node cannot recover from.
    pub async fn failed(&self) -> String {
        loop {
            if let torc_store::StoreHealth::Failed(reason) = self.shared.store.health() {
                return reason;
            }
            if let Some(reason) = self.shared.group.failed() {
                return reason;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Takes no new requests, lets those under way end (at most five seconds), syncs
    /// and closes everything.
    ///
    /// # Errors
    /// [`NodeError::Store`] when the last sync failed.
    pub async fn stop(self) -> Result<(), NodeError> {
        self.shared.cancel.cancel();
        if tokio::time::timeout(DRAIN, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some requests did not end in time");
        }
        self.shared.group.shutdown().await;
        self.shared.advisory.clone().close().await;
        self.shared.store.clone().close().await?;
        tracing::info!("stopped");
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.cancel.cancel();
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), NodeError> {
    let failed = |source| NodeError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn open(settings: Settings, grpc: SocketAddr, http: SocketAddr) -> Result<Shared, NodeError> {
    let mut options = StoreOptions::new(settings.data_dir.join("store"));
    options.partitions = settings.partitions;
    options.overlay_limit_bytes = settings.overlay_limit_bytes;
    options.log_segment_bytes = settings.log_segment_bytes;
    options.checkpoint_log_bytes = settings.checkpoint_log_bytes;
    let (store, recovery) = Store::open(options)?;
    tracing::info!(
        records = recovery.records,
        from_checkpoint = recovery.checkpoint_records,
        log_bytes = recovery.log_bytes_replayed,
        torn_bytes = recovery.torn_bytes_cut,
        seconds = recovery.seconds,
        "recovered"
    );
    let identity = Identity::load(&store)?;
    let group = GroupOptions {
        dir: settings.data_dir.join("topology"),
        ..GroupOptions::default()
    };
    let now = Instant::now();
    Ok(Shared {
        address: settings
            .advertise_addr
            .clone()
            .unwrap_or_else(|| grpc.to_string()),
        http_address: settings
            .advertise_http_addr
            .clone()
            .unwrap_or_else(|| http.to_string()),
        advisory: Advisory::open(settings.data_dir.join("advisory")),
        identity,
        group: TopologyGroup::open(group)?,
        gates: Gates::new(settings.partitions),
        order: KeyOrder::new(),
        routing: arc_swap::ArcSwapOption::empty(),
        clock: Clock::resume(recovery.highest_time),
        peers: crate::peers::Peers::default(),
        metrics: Metrics::new(),
        throttle: Throttle::new(settings.transfer_bytes_per_s, now),
        started: now,
        cancel: CancellationToken::new(),
        store,
        settings,
    })
}

async fn until_cancelled(cancel: CancellationToken, task: impl Future<Output = ()>) {
    let _ = cancel.run_until_cancelled(task).await;
}

async fn serve_http(shared: Arc<Shared>, listener: TcpListener) {
    let cancel = shared.cancel.clone();
    let server = axum::serve(listener, http::router(shared));
    let stopped = server
        .with_graceful_shutdown(cancel.cancelled_owned())
        .await;
    if let Err(error) = stopped {
        tracing::error!(%error, "HTTP ended");
    }
}

fn serve_grpc(
    shared: Arc<Shared>,
    listener: TcpListener,
) -> Result<impl Future<Output = ()> + Send + 'static, NodeError> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|error| NodeError::Reflection(error.to_string()))?;
    let (health, health_service) = tonic_health::server::health_reporter();
    let kv = KvServer::new(KvService::new(Arc::clone(&shared)))
        .max_decoding_message_size(MAX_MESSAGE_LEN)
        .max_encoding_message_size(usize::MAX);
    let replica = ReplicaServer::new(ReplicaService::new(Arc::clone(&shared)))
        .max_decoding_message_size(2 * MAX_MESSAGE_LEN);
    let router = tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .max_concurrent_streams(Some(shared.settings.max_streams))
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .max_connection_age(MAX_CONNECTION_AGE)
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .add_service(kv)
        .add_service(ClusterServer::new(ClusterService::new(Arc::clone(&shared))))
        .add_service(replica)
        .add_service(shared.group.service())
        .add_service(health_service)
        .add_service(reflection);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Ok(async move {
        let cancel = shared.cancel.clone();
        let stopped = cancel.clone().cancelled_owned();
        let reporting = report_health(shared, health);
        let serving = router.serve_with_incoming_shutdown(incoming, stopped);
        let (served, ()) = tokio::join!(serving, reporting);
        if let Err(error) = served {
            tracing::error!(%error, "gRPC ended");
            cancel.cancel();
        }
    })
}

/// Keeps the standard health service equal to `/readyz`.
async fn report_health(shared: Arc<Shared>, health: tonic_health::server::HealthReporter) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    let mut shown = None;
    loop {
        let ready = shared.ready().is_ok() && !shared.cancel.is_cancelled();
        if shown != Some(ready) {
            let status = if ready { Serving } else { NotServing };
            health.set_service_status("", status).await;
            health.set_service_status("torc.v1.Kv", status).await;
            shown = Some(ready);
        }
        if shared.cancel.is_cancelled() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
            () = shared.cancel.cancelled() => {}
        }
    }
}
