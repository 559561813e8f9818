//! One node: started, serving, stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use torc_store::{Advisory, Store, StoreError, StoreOptions};

use crate::admission::Admission;
use crate::clock::{self, Clock};
use crate::config::Settings;
use crate::founding::{EnlistByRpc, announce_address, found};
use crate::gate::Gates;
use crate::group::{GroupError, GroupOptions, TopologyGroup, keep_membership};
use crate::hot::{self, Hot};
use crate::identity::{Identity, IdentityError};
use crate::metrics::Metrics;
use crate::moves::Throttle;
use crate::order::KeyOrder;
use crate::shared::Shared;
use crate::{adopt, founding, grpc, http, moves};

/// How long requests under way may take to end when the node stops.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);
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
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
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
        let shift = settings.test_clock_shift.clone().map(clock::watch_shift);
        let (grpc_listener, grpc_addr) = bind(settings.grpc_addr).await?;
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
        grpc::serve(&shared, grpc_listener, &tasks)?;
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
        tasks.spawn(hot::keep(Arc::clone(&shared)));
        if let Some(shift) = shift {
            tasks.spawn(until_cancelled(shared.cancel.clone(), shift));
        }
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
    options.seal_log_bytes = settings.seal_log_bytes;
    options.seal_after = settings.seal_after;
    options.seal_bytes_per_s = settings.seal_bytes_per_s;
    options.most_slices = settings.most_slices;
    options.fold_bytes_per_s = settings.fold_bytes_per_s;
    options.fold_job_bytes = settings.fold_job_bytes;
    options.fold_when_idle = settings.fold_when_idle;
    options.gate_rate = settings.gate_rate;
    let (store, recovery) = Store::open(options)?;
    tracing::info!(
        records = recovery.records,
        sealed = recovery.sealed_records,
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
        admission: Admission::new(settings.max_operations),
        routing: arc_swap::ArcSwapOption::empty(),
        clock: Clock::resume(recovery.highest_time),
        peers: crate::peers::Peers::default(),
        link_service: std::sync::OnceLock::new(),
        registers: std::sync::OnceLock::new(),
        metrics: Metrics::new(),
        throttle: Throttle::new(settings.transfer_bytes_per_s, now),
        hot: Hot::new(settings.hot),
        sketchers: tokio::sync::Semaphore::new(2),
        landers: tokio::sync::Semaphore::new(settings.worker_threads),
        started: now,
        workers: std::sync::OnceLock::new(),
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
