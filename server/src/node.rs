//! One node: starting, serving, stopping.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use torc_access::attempts::Attempts;
use torc_access::audit::Audit;
use torc_access::enrolment;
use torc_access::tls_dir::{OwnAuthority, TlsDir};
use torc_group::{Cuts, GroupOptions, Recovery, TopologyGroup, keep_membership};
use torc_hot::Hot;
use torc_links::Faults;
use torc_member::identity::Identity;
use torc_member::peers::Peers;
use torc_member::{LocalMember, addresses};
use torc_ring::NodeId;
use torc_store::{Scratch, Store, StoreOptions};
use torc_telemetry::clock;
use torc_telemetry::slow::SlowLog;
use torc_telemetry::spans::Tracer;
use torc_tls::{NodeTls, Pool};
use torc_transfers::throttle::Throttle;
use torc_transfers::{Transfers, generations, retreat};

use crate::bearers;
use crate::boot;
use crate::config::Settings;
use crate::console;
use crate::data_dir::DataDir;
use crate::disk_faults::FaultyFs;
use crate::error::NodeError;
use crate::first_use::{self, FirstUse};
use crate::founding::{EnlistByRpc, announce_address, found};
use crate::hot;
use crate::kv::KvNode;
use crate::limits::{HANG_UP, Limits};
use crate::metrics::Metrics;
use crate::resp;
use crate::shared::{ReachedAt, Shared};
use crate::{adopt, founding, grpc, http, memory, renewal, sweep};
use torc_limits::connections::Entrance;

/// Time for callers to move to other nodes when the node stops.
const LEAVE: Duration = Duration::from_millis(300);
/// Time limit for the operations then under way.
const DRAIN: Duration = Duration::from_secs(20);

/// The plan of [`recover`] for this data directory, if only its node and `keep` are left of the
/// cluster. Changes nothing. Blocks on the disk.
///
/// # Errors
/// [`NodeError::DataDir`], [`NodeError::Recover`].
pub fn preview_recovery(data_dir: &Path, keep: &BTreeSet<NodeId>) -> Result<Recovery, NodeError> {
    let dir = DataDir::new(data_dir);
    dir.check_store()?;
    let now_ms = clock::unix_ms();
    Ok(TopologyGroup::preview_recovery(
        &dir.topology,
        keep,
        now_ms,
    )?)
}

/// Founds the topology group again from a stopped node, as [`preview_recovery`] showed, after the
/// majority of its voters was lost for good. Blocks on the disk.
///
/// # Errors
/// [`NodeError::Recover`].
pub fn recover(data_dir: &Path, shown: &Recovery) -> Result<(), NodeError> {
    Ok(TopologyGroup::recover(
        &DataDir::new(data_dir).topology,
        shown,
        clock::unix_ms(),
    )?)
}

/// A running node. Stop it with [`Node::stop`]; dropping it stops it without waiting.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    grpc_addr: SocketAddr,
    peer_addr: SocketAddr,
    http_addr: SocketAddr,
    resp_addr: Option<SocketAddr>,
}

impl Node {
    /// Opens the data directory, binds all addresses and begins to serve. A node that belongs to no
    /// cluster answers `NOT_SERVING` until it is bootstrapped or joined.
    ///
    /// # Errors
    /// [`NodeError`]; nothing is left running.
    // Boxed: otherwise every program that awaits it would compile the whole server again.
    #[must_use = "nothing happens unless it is awaited"]
    pub fn start(settings: Settings) -> BoxFuture<'static, Result<Self, NodeError>> {
        Box::pin(Self::begin(settings))
    }

    async fn begin(settings: Settings) -> Result<Self, NodeError> {
        let shift = settings.test_clock_shift.clone().map(clock::watch_shift);
        let (grpc_listener, grpc_addr) = bind(settings.grpc_addr).await?;
        let (peer_listener, peer_addr) = bind(settings.peer_addr).await?;
        let (http, http_addr) = bind(settings.http_addr).await?;
        let resp = match settings.resp_addr {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let (resp, resp_addr) = resp.unzip();
        let bound = [Some(grpc_addr), Some(http_addr), resp_addr];
        let own_authority = prepare(&settings, bound.into_iter().flatten()).await?;
        let opened = open(
            settings,
            own_authority,
            [grpc_addr, peer_addr, http_addr],
            resp_addr,
        );
        let shared = Arc::new(opened?);
        let tasks = TaskTracker::new();
        tasks.spawn(http::serve(Arc::clone(&shared), http));
        grpc::serve(&shared, grpc_listener, peer_listener, &tasks)?;
        if let Some(listener) = resp {
            tasks.spawn(resp::serve(Arc::clone(&shared), listener));
        }
        tasks.spawn(adopt::run(Arc::clone(&shared)));
        tasks.spawn(until_cancelled(
            shared.cancel.clone(),
            bearers::run(Arc::clone(&shared.bearers), shared.group.clone()),
        ));
        tasks.spawn(until_cancelled(
            shared.cancel.clone(),
            watch_addresses(Arc::clone(&shared)),
        ));
        tasks.spawn(generations::run(Arc::clone(&shared.transfers)));
        tasks.spawn(sweep::run(Arc::clone(&shared)));
        tasks.spawn(retreat::run(Arc::clone(&shared.transfers)));
        tasks.spawn(until_cancelled(
            shared.cancel.clone(),
            found(Arc::clone(&shared)),
        ));
        tasks.spawn(until_cancelled(
            shared.cancel.clone(),
            confirm_and_announce(Arc::clone(&shared)),
        ));
        tasks.spawn(hot::keep(Arc::clone(&shared)));
        let consoles = futures::future::join(
            console::sample(Arc::clone(&shared)),
            console::run(Arc::clone(&shared)),
        );
        tasks.spawn(until_cancelled(shared.cancel.clone(), async {
            consoles.await;
        }));
        if let Some(tls) = shared.entrance.tls.clone() {
            let renewing = renewal::run(Arc::clone(&shared), tls);
            tasks.spawn(until_cancelled(shared.cancel.clone(), renewing));
        }
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
        tracing::info!(grpc = %grpc_addr, peers = %peer_addr, http = %http_addr, resp = ?resp_addr, "listening");
        let node = Self {
            shared,
            tasks,
            grpc_addr,
            peer_addr,
            http_addr,
            resp_addr,
        };
        if let Err(error) = node.take_part().await {
            node.stop().await?;
            return Err(error);
        }
        Ok(node)
    }

    /// Starts this node's part in the topology group, unless the node must first be founded or
    /// joined.
    async fn take_part(&self) -> Result<(), NodeError> {
        let shared = &self.shared;
        if let Some(membership) = shared.member.identity.membership()
            && !founding::is_due(shared)
        {
            boot::check_level(shared, membership).map_err(NodeError::Level)?;
            let alone = boot::check_alone(shared, membership).await;
            alone.map_err(|fault| NodeError::Superseded(fault.message))?;
            let started = shared.group.start(membership.node, membership.cluster);
            started.await?;
        } else if !founding::is_due(shared) {
            let address = &shared.reached_at.grpc;
            tracing::info!("not in a cluster yet: waiting for `kvctl join-node {address}`");
        }
        Ok(())
    }

    /// The first tokens of a secure cluster, on its founder, once the cluster serves; `None` if
    /// they were shown before. The caller prints them and calls [`Node::told_first_use`].
    pub async fn first_use(&self) -> Option<FirstUse> {
        first_use::tokens(&self.shared).await
    }

    /// Records that the first tokens were shown, so that they are not created again.
    ///
    /// # Errors
    /// [`NodeError::TlsDir`]: a restart then creates and shows new tokens.
    pub fn told_first_use(&self) -> Result<(), NodeError> {
        let own = self.shared.own_authority.as_deref();
        Ok(own.map_or(Ok(()), |own| own.dir.end_first_use())?)
    }

    /// Address of the gRPC port.
    #[must_use]
    pub const fn grpc_addr(&self) -> SocketAddr {
        self.grpc_addr
    }

    /// Address of the port for other nodes.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    /// Address of the HTTP port.
    #[must_use]
    pub const fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// Address of the port for Redis clients, if it is on.
    #[must_use]
    pub const fn resp_addr(&self) -> Option<SocketAddr> {
        self.resp_addr
    }

    /// Whether the node serves its partitions; if not, the reason.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn ready(&self) -> Result<(), String> {
        self.shared.ready()
    }

    /// Waits until the node has failed for good; returns the reason.
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

    /// Stops in order, so that no operation is left in doubt. First callers move to other nodes
    /// while everything is still served. Then the node accepts nothing more and lets operations
    /// under way end (at most 20 seconds), still connected to the other nodes. Then it tells these
    /// that it stops, and answers what they have sent. Then it closes connections, syncs and closes
    /// everything.
    ///
    /// # Errors
    /// [`NodeError::Store`] if the last sync failed.
    #[must_use = "nothing happens unless it is awaited"]
    pub fn stop(self) -> BoxFuture<'static, Result<(), NodeError>> {
        Box::pin(self.end())
    }

    async fn end(self) -> Result<(), NodeError> {
        let shared = &self.shared;
        shared.kv.leaving.cancel();
        tokio::time::sleep(LEAVE).await;
        tracing::debug!("refusing new operations");
        shared.kv.limits.admission.close();
        shared.kv.closing.cancel();
        let idle = tokio::time::timeout(DRAIN, shared.kv.limits.admission.idle());
        if idle.await.is_err() {
            tracing::warn!("some operations did not finish in time: their outcome is unknown");
        }
        tracing::debug!("operations have finished, leaving the other replicas");
        if let Some(registers) = shared.member.registers.get() {
            registers.leave().await;
        }
        tracing::debug!("closing connections");
        shared.cancel.cancel();
        if tokio::time::timeout(2 * HANG_UP, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some tasks did not finish in time");
        }
        tracing::debug!("connections are closed");
        if let Some(tracer) = &self.shared.kv.tracer {
            tracer.close().await;
        }
        self.shared.group.shutdown().await;
        tracing::debug!("left the topology group");
        let audit = Arc::clone(&self.shared.kv.audit);
        // Fails only if the writer panics.
        let _ = tokio::task::spawn_blocking(move || audit.close()).await;
        self.shared.scratch.clone().close().await;
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

/// For tests: cuts the topology group's links to the nodes that the file names.
fn group_cuts(file: PathBuf) -> Cuts {
    let faults = Faults::default();
    let watching = AbortOnDropHandle::new(tokio::spawn(faults.clone().watch(file)));
    Cuts::new(move |node| {
        // Keeps the file watched for as long as this closure lives.
        let _ = &watching;
        faults.cuts_group_to(node)
    })
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), NodeError> {
    let failed = |source| NodeError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Prepares the certificates of a secure node: existing ones, those of a new authority, or those
/// that its cluster issues.
async fn prepare(
    settings: &Settings,
    bound: impl Iterator<Item = SocketAddr>,
) -> Result<Option<OwnAuthority>, NodeError> {
    let Some(secure) = &settings.secure else {
        return Ok(None);
    };
    let data_dir = || settings.data_dir.clone();
    let dir = TlsDir::of(&settings.data_dir);
    let names = settings.names(bound);
    if dir.is_complete() {
        if secure.join.is_some() {
            tracing::info!("ignored --join: this node already has its certificates");
        }
    } else if Store::format_file(&DataDir::new(&settings.data_dir).store).exists() {
        return Err(NodeError::NotSecure {
            data_dir: data_dir(),
        });
    } else if let Some(authority) = &secure.authority {
        TlsDir::at(authority).share(&dir)?;
    } else if let Some(token) = &secure.join {
        enrolment::enrol(&dir, token, &names).await?;
    } else if settings.bootstrap {
        dir.found()?;
    } else {
        return Err(NodeError::NotEnrolled {
            data_dir: data_dir(),
        });
    }
    Ok(Some(dir.open(names, secure.certificate_life)?))
}

fn store_options(settings: &Settings, dir: &DataDir) -> StoreOptions {
    let mut options = settings.store.clone();
    options.dir.clone_from(&dir.store);
    options.release_memory = memory::release;
    options
}

fn open(
    settings: Settings,
    own_authority: Option<OwnAuthority>,
    [grpc, peer, http]: [SocketAddr; 3],
    resp: Option<SocketAddr>,
) -> Result<Shared, NodeError> {
    let tls = settings.tls.clone();
    let tls = tls.map(|tls| NodeTls::open(tls.files, tls.tls12));
    let tls = tls.transpose()?;
    let connector = tls.as_ref().map(NodeTls::connector);
    let pool = Arc::new(Pool::new(connector));
    let dir = DataDir::new(&settings.data_dir);
    dir.check_store()?;
    let options = store_options(&settings, &dir);
    let (store, recovery) = match settings.test_disk_faults.clone() {
        None => Store::open(options)?,
        Some(plan) => Store::open_with(options, Arc::new(FaultyFs::new(plan)))?,
    };
    dir.check_identity(&store)?;
    tracing::info!(
        records = recovery.records,
        sealed = recovery.sealed_records,
        log_bytes = recovery.log_bytes_replayed,
        log_tail = ?recovery.log_tail,
        seconds = recovery.seconds,
        "recovered"
    );
    let identity = Identity::load(&store)?;
    let boot = boot::next(&store)?;
    let group = TopologyGroup::open(GroupOptions {
        dir: dir.topology.clone(),
        incarnation: identity.incarnation,
        boot,
        address: settings.peer_address(peer),
        cuts: settings.test_link_faults.clone().map(group_cuts),
        pool: Arc::clone(&pool),
        ..GroupOptions::default()
    })?;
    dir.check_group(&identity, &group, boot::last_confirmed(&store)?)?;
    boot::take(&store, boot)?;
    let scratch = Scratch::open(dir.scratch);
    let cancel = CancellationToken::new();
    let metrics = Metrics::new();
    let audit_log = settings.audit_log.clone().unwrap_or(dir.audit);
    let audit = Audit::begin(audit_log, metrics.audit.clone()).map_err(NodeError::Thread)?;
    let reached_at = ReachedAt::of(&settings, [grpc, peer, http], resp);
    let trace = |traces| {
        let address = reached_at.grpc.clone();
        Tracer::begin(traces, address, metrics.spans.clone(), &cancel)
    };
    let tracer = settings.traces.as_ref().map(trace).transpose();
    let member = Arc::new(LocalMember::new(identity, Peers::new(pool)));
    let transfers = Arc::new(Transfers {
        member: Arc::clone(&member),
        store: store.clone(),
        group: group.clone(),
        partitions: settings.store.partitions,
        data_dir: settings.data_dir.clone(),
        throttle: Throttle::new(settings.transfer_bytes_per_s, Instant::now()),
        ingests: Semaphore::new(settings.worker_threads),
        metrics: metrics.transfers.clone(),
        cancel: cancel.clone(),
    });
    let local = Arc::clone(&member);
    let entrance = Entrance {
        tls,
        idle_time: settings.idle_time,
        cancel: cancel.clone(),
        handshakes_failed: metrics.handshakes_failed.clone(),
        cluster: Box::new(move || local.identity.membership().map(|it| it.cluster)),
    };
    let kv = Arc::new(KvNode {
        member: Arc::clone(&member),
        store: store.clone(),
        limits: Limits::new(&settings),
        hot: Hot::new(settings.hot, settings.worker_threads, scratch.clone()),
        audit: Arc::new(audit),
        metrics: Arc::clone(&metrics.keys),
        slow: SlowLog::new(settings.slow, metrics.slow.clone()),
        tracer: tracer.map_err(NodeError::Thread)?,
        idle_time: settings.idle_time,
        leaving: cancel.child_token(),
        closing: cancel.child_token(),
    });
    Ok(Shared {
        reached_at,
        kv,
        scratch,
        member,
        boot,
        group,
        addresses: Arc::default(),
        entrance,
        own_authority: own_authority.map(Arc::new),
        attempts: Attempts::default(),
        bearers: Arc::default(),
        link_service: std::sync::OnceLock::new(),
        metrics,
        transfers,
        console: Arc::default(),
        started: Instant::now(),
        workers: std::sync::OnceLock::new(),
        cancel,
        store,
        settings,
    })
}

/// Confirms first: callers must not be sent here before the group has confirmed that this is the
/// member.
async fn confirm_and_announce(shared: Arc<Shared>) {
    boot::confirm(Arc::clone(&shared)).await;
    if *shared.member.confirmed.borrow() {
        announce_address(shared).await;
    }
}

/// Keeps the addresses of the other members up to date.
async fn watch_addresses(shared: Arc<Shared>) {
    let (known, changes) = (
        Arc::clone(&shared.addresses),
        shared.member.adopted.subscribe(),
    );
    let members = || {
        let me = shared.member.identity.node();
        let table = shared.member.routing.load();
        let members = table.iter().flat_map(|table| &table.members);
        let others = members.filter(|(node, _)| Some(**node) != me);
        let others = others.map(|(node, it)| (*node, it.identity.peer_address.clone()));
        others.collect()
    };
    addresses::run(known, members, changes).await;
}

async fn until_cancelled(cancel: CancellationToken, task: impl Future<Output = ()>) {
    let _ = cancel.run_until_cancelled(task).await;
}
