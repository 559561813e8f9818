//! One node: starting, serving, stopping.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use torc_access::attempts::Attempts;
use torc_access::audit::Audit;
use torc_access::enrolment;
use torc_access::tls_dir::{OwnAuthority, TlsDir};
use torc_group::{Cuts, GroupOptions, Recovery, TopologyGroup, keep_membership};
use torc_hot::Hot;
use torc_links::{Faults, LinkService};
use torc_member::LocalMember;
use torc_member::addresses::{self, Addresses};
use torc_member::identity::Identity;
use torc_member::peers::Peers;
use torc_ring::NodeId;
use torc_store::{Scratch, Store, StoreOptions};
use torc_telemetry::clock;
use torc_telemetry::slow::SlowLog;
use torc_telemetry::spans::Tracer;
use torc_tls::{NodeTls, Pool};
use torc_transfers::generations::Fetches;
use torc_transfers::throttle::Throttle;
use torc_transfers::{Background, Transfers, generations, retreat};

use crate::adopt::{self, Adoption};
use crate::bearers::{self, Bearers};
use crate::boot;
use crate::cluster::ClusterNode;
use crate::config::{Settings, TransferRates};
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
use crate::own_node::{OwnNode, ReachedAt};
use crate::recipient::CheckRecipient;
use crate::registers::Beginning;
use crate::renewal::{self, Renewal};
use crate::replica::ReplicaService;
use crate::resp;
use crate::{founding, grpc, http, memory, sweep};
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
    own: Arc<OwnNode>,
    cluster: Arc<ClusterNode>,
    scratch: Scratch,
    cancel: CancellationToken,
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
        let mut parts = open(
            settings,
            own_authority,
            [grpc_addr, peer_addr, http_addr],
            resp_addr,
        )?;
        let tasks = TaskTracker::new();
        let listeners = (grpc_listener, peer_listener);
        if let Err(error) = parts.serve(&tasks, listeners, http, resp) {
            parts.cancel.cancel();
            return Err(error);
        }
        parts.spawn_tasks(&tasks);
        if let Some(shift) = shift {
            tasks.spawn(until_cancelled(parts.cancel.clone(), shift));
        }
        tasks.close();
        tracing::info!(grpc = %grpc_addr, peers = %peer_addr, http = %http_addr, resp = ?resp_addr, "listening");
        let Parts {
            own,
            cluster,
            scratch,
            cancel,
            ..
        } = parts;
        let node = Self {
            own,
            cluster,
            scratch,
            cancel,
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
        let own = &self.own;
        if let Some(membership) = own.member.identity.membership()
            && !founding::is_due(own)
        {
            boot::check_level(own, membership).map_err(NodeError::Level)?;
            let checked = boot::check(own, membership).await;
            checked.map_err(|fault| NodeError::Superseded(fault.message))?;
            let started = own.group.start(membership.node, membership.cluster);
            started.await?;
        } else if !founding::is_due(own) {
            let address = &own.reached_at.grpc;
            tracing::info!("not in a cluster yet: waiting for `kvctl join-node {address}`");
        }
        Ok(())
    }

    /// The first tokens of a secure cluster, on its founder, once the cluster serves; `None` if
    /// they were shown before. The caller prints them and calls [`Node::told_first_use`].
    pub async fn first_use(&self) -> Option<FirstUse> {
        first_use::tokens(&self.cluster).await
    }

    /// Records that the first tokens were shown, so that they are not created again.
    ///
    /// # Errors
    /// [`NodeError::TlsDir`]: a restart then creates and shows new tokens.
    pub fn told_first_use(&self) -> Result<(), NodeError> {
        let own = self.cluster.own_authority.as_deref();
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
        self.cluster.ready()
    }

    /// Waits until the node has failed for good; returns the reason.
    pub async fn failed(&self) -> String {
        loop {
            if let Some(reason) = self.cluster.failed() {
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
        let kv = &self.cluster.kv;
        kv.leaving.cancel();
        tokio::time::sleep(LEAVE).await;
        tracing::debug!("refusing new operations");
        kv.limits.admission.close();
        kv.closing.cancel();
        let idle = tokio::time::timeout(DRAIN, kv.limits.admission.idle());
        if idle.await.is_err() {
            tracing::warn!("some operations did not finish in time: their outcome is unknown");
        }
        tracing::debug!("operations have finished, leaving the other replicas");
        if let Some(registers) = self.own.member.registers.get() {
            registers.leave().await;
        }
        tracing::debug!("closing connections");
        self.cancel.cancel();
        if tokio::time::timeout(2 * HANG_UP, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some tasks did not finish in time");
        }
        tracing::debug!("connections are closed");
        if let Some(tracer) = &kv.tracer {
            tracer.close().await;
        }
        self.own.group.shutdown().await;
        tracing::debug!("left the topology group");
        let audit = Arc::clone(&kv.audit);
        // Fails only if the writer panics.
        let _ = tokio::task::spawn_blocking(move || audit.close()).await;
        self.scratch.clone().close().await;
        self.own.store.clone().close().await?;
        tracing::info!("stopped");
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.cancel.cancel();
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

fn open_store(
    settings: &Settings,
    dir: &DataDir,
) -> Result<(Store, torc_store::Recovery), NodeError> {
    dir.check_store()?;
    let options = store_options(settings, dir);
    let opened = match settings.test_disk_faults.clone() {
        None => Store::open(options)?,
        Some(plan) => Store::open_with(options, Arc::new(FaultyFs::new(plan)))?,
    };
    dir.check_identity(&opened.0)?;
    Ok(opened)
}

/// The throttle of all transfers.
fn throttle(rates: TransferRates, limits: &Limits) -> Throttle {
    let admission = Arc::clone(&limits.admission);
    let throttle = Throttle::new(rates.at_rest, Instant::now());
    throttle.while_serving(rates.serving, move || admission.begun())
}

fn open(
    settings: Settings,
    own_authority: Option<OwnAuthority>,
    [grpc, peer, http]: [SocketAddr; 3],
    resp: Option<SocketAddr>,
) -> Result<Parts, NodeError> {
    let tls = settings.tls.clone();
    let tls = tls.map(|tls| NodeTls::open(tls.files, tls.tls12));
    let tls = tls.transpose()?;
    let connector = tls.as_ref().map(NodeTls::connector);
    let pool = Arc::new(Pool::new(connector));
    let dir = DataDir::new(&settings.data_dir);
    let (store, recovery) = open_store(&settings, &dir)?;
    let ceiling = boot::ceiling(&store, &recovery);
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
    let address = &reached_at.grpc;
    let trace = |it| Tracer::begin(it, address.clone(), metrics.spans.clone(), &cancel);
    let tracer = settings.traces.as_ref().map(trace).transpose();
    let member = Arc::new(LocalMember::new(identity, Peers::new(pool)));
    let limits = Limits::new(&settings);
    let transfers = Arc::new(Transfers {
        member: Arc::clone(&member),
        store: store.clone(),
        group: group.clone(),
        partitions: settings.store.partitions,
        data_dir: settings.data_dir.clone(),
        throttle: throttle(settings.transfer_rates, &limits),
        background: Background::new(settings.worker_threads).map_err(NodeError::Thread)?,
        fetches: Fetches::default(),
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
        limits,
        hot: Hot::new(settings.hot, settings.worker_threads, scratch.clone()),
        audit: Arc::new(audit),
        metrics: Arc::clone(&metrics.keys),
        slow: SlowLog::new(settings.slow, metrics.slow.clone()),
        tracer: tracer.map_err(NodeError::Thread)?,
        idle_time: settings.idle_time,
        leaving: cancel.child_token(),
        closing: cancel.child_token(),
    });
    let settings = Arc::new(settings);
    let reached_at = Arc::new(reached_at);
    let own_authority = own_authority.map(Arc::new);
    let own = OwnNode {
        settings: Arc::clone(&settings),
        reached_at: Arc::clone(&reached_at),
        member: Arc::clone(&member),
        group: group.clone(),
        store,
        boot,
        ceiling,
    };
    let cluster = ClusterNode {
        settings,
        reached_at,
        member,
        group,
        kv,
        entrance: Arc::new(entrance),
        own_authority,
        attempts: Attempts::default(),
        transfers,
        console: Arc::default(),
        started: Instant::now(),
    };
    Ok(Parts {
        own: Arc::new(own),
        cluster: Arc::new(cluster),
        bearers: Arc::default(),
        scratch,
        metrics: Arc::new(metrics),
        links: Arc::default(),
        workers: Vec::new(),
        cancel,
    })
}

/// The parts of a node that is about to serve.
struct Parts {
    own: Arc<OwnNode>,
    cluster: Arc<ClusterNode>,
    bearers: Arc<Bearers>,
    scratch: Scratch,
    metrics: Arc<Metrics>,
    /// The receiving end of messages between replicas, set with the first topology that has this
    /// node.
    links: Arc<OnceLock<LinkService>>,
    /// The runtimes of the threads that serve gRPC, once these run.
    workers: Vec<Handle>,
    cancel: CancellationToken,
}

impl Parts {
    /// Starts to accept connections.
    fn serve(
        &mut self,
        tasks: &TaskTracker,
        (clients, peers): (TcpListener, TcpListener),
        http: TcpListener,
        resp: Option<TcpListener>,
    ) -> Result<(), NodeError> {
        let (cluster, own) = (&self.cluster, &self.own);
        let http_server = http::Server {
            node: Arc::clone(cluster),
            bearers: Arc::clone(&self.bearers),
            scratch: self.scratch.clone(),
            metrics: Arc::clone(&self.metrics),
        };
        tasks.spawn(http::serve(http_server, http));
        let addresses = Arc::default();
        let watching = watch_addresses(Arc::clone(&addresses), Arc::clone(&own.member));
        tasks.spawn(until_cancelled(self.cancel.clone(), watching));
        let grpc_server = grpc::Server {
            node: Arc::clone(cluster),
            replica: ReplicaService {
                own: Arc::clone(own),
                runtime: Handle::current(),
                transfers: Arc::clone(&cluster.transfers),
                links: Arc::clone(&self.links),
                audit: Arc::clone(&cluster.kv.audit),
                own_authority: cluster.own_authority.clone(),
            },
            check: CheckRecipient {
                kv: Arc::clone(&cluster.kv),
                bearers: Arc::clone(&self.bearers),
                reached_at: Arc::clone(&cluster.reached_at),
            },
            addresses,
            refused: self.metrics.connections_refused.clone(),
        };
        self.workers = grpc::serve(grpc_server, clients, peers, tasks)?;
        if let Some(listener) = resp {
            let backend = resp::Backend {
                node: Arc::clone(cluster),
                bearers: Arc::clone(&self.bearers),
            };
            let (metrics, workers) = (Arc::clone(&self.metrics), self.workers.clone());
            tasks.spawn(resp::serve(backend, metrics, workers, listener));
        }
        Ok(())
    }

    /// Starts what runs beside the requests. All of it ends when the node has closed.
    fn spawn_tasks(&self, tasks: &TaskTracker) {
        let (own, cluster) = (&self.own, &self.cluster);
        let (member, group) = (&own.member, &own.group);
        let adoption = Adoption {
            beginning: Beginning {
                own: Arc::clone(own),
                kv: Arc::clone(&cluster.kv),
                scratch: self.scratch.clone(),
                transfers: Arc::clone(&cluster.transfers),
                entrance: Arc::clone(&cluster.entrance),
                links: Arc::clone(&self.links),
                workers: self.workers.clone(),
                metrics: Arc::clone(&self.metrics),
                started: cluster.started,
            },
            bearers: Arc::clone(&self.bearers),
            epoch: self.metrics.topology_epoch.clone(),
        };
        tasks.spawn(adopt::run(adoption, self.cancel.clone()));
        tasks.spawn(generations::run(Arc::clone(&cluster.transfers)));
        tasks.spawn(retreat::run(Arc::clone(&cluster.transfers)));
        tasks.spawn(hot::keep(Arc::clone(&cluster.kv), self.cancel.clone()));
        let enlister = Arc::new(EnlistByRpc(Arc::clone(own)));
        tasks.spawn(keep_membership(
            group.clone(),
            enlister,
            self.cancel.clone(),
        ));
        let spawn = |task: BoxFuture<'static, ()>| {
            tasks.spawn(until_cancelled(self.cancel.clone(), task));
        };
        spawn(Box::pin(bearers::run(
            Arc::clone(&self.bearers),
            group.clone(),
        )));
        let deleted = self.metrics.dropped_records_deleted.clone();
        spawn(Box::pin(sweep::run(
            Arc::clone(member),
            group.clone(),
            deleted,
        )));
        spawn(Box::pin(found(Arc::clone(own))));
        spawn(Box::pin(confirm_and_announce(Arc::clone(own))));
        spawn(Box::pin(console::sample(
            Arc::clone(&cluster.console),
            Arc::clone(&self.metrics),
        )));
        spawn(Box::pin(console::run(Arc::clone(cluster))));
        if let Some(tls) = cluster.entrance.tls.clone() {
            let renewal = Renewal {
                member: Arc::clone(member),
                group: group.clone(),
                own_authority: cluster.own_authority.clone(),
                files_refused: self.metrics.tls_files_refused.clone(),
                certificate_end: self.metrics.tls_certificate_end.clone(),
            };
            spawn(Box::pin(renewal::run(renewal, tls)));
        }
    }
}

/// Confirms first: callers must not be sent here before the group has confirmed that this is the
/// member.
async fn confirm_and_announce(own: Arc<OwnNode>) {
    boot::confirm(Arc::clone(&own)).await;
    if *own.member.confirmed.borrow() {
        announce_address(own).await;
    }
}

/// Keeps the addresses of the other members up to date.
async fn watch_addresses(known: Arc<Addresses>, member: Arc<LocalMember>) {
    let changes = member.adopted.subscribe();
    let members = || {
        let me = member.identity.node();
        let table = member.routing.load();
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
