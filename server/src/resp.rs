//! Redis clients: accepts their connections, and runs their commands for `torc-redis` on this node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use torc_access::caller::Caller;
use torc_proto::Fault;
use torc_proto::v1::{
    DeleteRequest, DeleteResponse, GetRequest, GetResponse, PutRequest, PutResponse, ScanRequest,
    ScanResponse, StatusRequest,
};
use torc_redis::{Charge, KEEPALIVE, Node, Options, Server};
use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, Holder, ReadGenerations, Role, RoutingTable};
use torc_tls::Door;

use crate::bearers::Bearers;
use crate::call::DEFAULT_DEADLINE;
use crate::cluster::{ClusterNode, status};
use crate::kv;
use crate::metrics::Metrics;
use torc_limits::connections::{Connection, Entrance, Place, Places};

/// Pause after the system failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections and assigns them in turn to the threads that serve gRPC, until the node has
/// closed.
pub(crate) async fn serve(
    backend: Backend,
    metrics: Arc<Metrics>,
    workers: Vec<Handle>,
    listener: TcpListener,
) {
    let node = Arc::clone(&backend.node);
    let settings = &node.settings;
    let options = Options {
        address: node.reached_at.resp.clone().unwrap_or_default(),
        databases: settings.resp_databases.clone(),
        max_connections: settings.max_connections,
        idle_time: settings.idle_time,
        deadline: DEFAULT_DEADLINE,
        version: settings.release.version.clone(),
    };
    let server = Server::new(
        options,
        Arc::new(backend),
        Arc::clone(&metrics.resp),
        node.kv.closing.clone(),
    );
    let places = Places::new(settings.max_connections);
    for worker in workers.iter().cycle() {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = node.kv.closing.cancelled() => return,
        };
        let accepted = accepted.and_then(|(stream, from)| {
            let Some(place) = places.take(from.ip()) else {
                metrics.connections_refused.inc();
                return Ok(None);
            };
            stream.set_nodelay(true)?;
            set_socket_keepalive(&stream, true)?;
            set_tcp_keepidle(&stream, KEEPALIVE)?;
            Ok(Some((stream.into_std()?, place)))
        });
        match accepted {
            Ok(Some((stream, place))) => {
                worker.spawn(attend(
                    Arc::clone(&node.entrance),
                    Arc::clone(&server),
                    stream,
                    place,
                ));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn attend(
    entrance: Arc<Entrance>,
    server: Arc<Server>,
    stream: std::net::TcpStream,
    place: Place,
) {
    let stream = TcpStream::from_std(stream);
    let stream =
        stream.inspect_err(|error| tracing::warn!(%error, "an incoming connection failed"));
    let Ok(stream) = stream else { return };
    let begun = Connection::begin(stream, place, &entrance, Door::Resp).await;
    let Some(connection) = begun else { return };
    let ends = entrance.tls.is_some();
    let ends = ends.then(|| connection.grows_old_at());
    let caller = connection.caller().clone();
    server.attend(Box::new(connection), caller, ends).await;
}

/// This node, for the server.
pub(crate) struct Backend {
    pub(crate) node: Arc<ClusterNode>,
    pub(crate) bearers: Arc<Bearers>,
}

impl Node for Backend {
    fn id(&self) -> Result<NodeId, Fault> {
        self.node.member.node()
    }

    fn cluster(&self) -> Option<ClusterId> {
        self.node.member.identity.membership().map(|it| it.cluster)
    }

    fn routing(&self) -> Result<Arc<RoutingTable>, Fault> {
        self.node.member.routing()
    }

    fn redis_addresses(&self) -> BoxFuture<'_, Result<Vec<(NodeId, String)>, Fault>> {
        Box::pin(async {
            let status = status::gather(&self.node, &StatusRequest::default()).await?;
            let answering = status.nodes.into_iter().filter(|node| node.reachable);
            let members = answering.filter_map(|node| Some((node.member?, node.resp_address)));
            Ok(members
                .map(|(member, address)| (NodeId(member.id), address))
                .collect())
        })
    }

    fn enter(&self, count: usize) -> Result<(), Fault> {
        self.node.kv.limits.admission.enter(count)
    }

    fn leave(&self, count: usize) {
        self.node.kv.limits.admission.leave(count);
    }

    fn get_all<'a>(
        &'a self,
        gets: &'a [GetRequest],
        deadline: Instant,
        generations: &'a mut ReadGenerations,
    ) -> BoxFuture<'a, Vec<Result<GetResponse, Fault>>> {
        Box::pin(kv::get_all(&self.node.kv, gets, deadline, generations))
    }

    fn put_all<'a>(
        &'a self,
        puts: &'a [PutRequest],
        deadline: Instant,
    ) -> BoxFuture<'a, Vec<Result<PutResponse, Fault>>> {
        Box::pin(kv::put_all(&self.node.kv, puts, deadline))
    }

    fn delete_all<'a>(
        &'a self,
        deletes: &'a [DeleteRequest],
        deadline: Instant,
    ) -> BoxFuture<'a, Vec<Result<DeleteResponse, Fault>>> {
        Box::pin(kv::delete_all(&self.node.kv, deletes, deadline))
    }

    fn scan(
        &self,
        request: ScanRequest,
    ) -> Result<BoxStream<'static, Result<ScanResponse, Fault>>, Fault> {
        let pages = kv::scan(&self.node.kv, request)?;
        let pages = pages.map(|page| {
            page.map_err(|status| Fault {
                // Reading changes nothing.
                maybe_applied: false,
                ..Fault::from_status(&status)
            })
        });
        Ok(pages.boxed())
    }

    fn may(&self, caller: &Caller, role: Role, namespace: &str, key: &[u8]) -> Result<(), Fault> {
        self.node.kv.may(caller, role, namespace, key)
    }

    fn denied(&self, caller: &Caller, call: &str, fault: &Fault) {
        self.node.kv.denied(caller, call, fault);
    }

    fn holder(&self, token: &str) -> Result<Arc<Holder>, Fault> {
        self.bearers.find(token)
    }

    fn force_charge(&self, bytes: usize) -> Charge {
        Box::new(self.node.kv.limits.budget.force(bytes))
    }

    fn charge(
        &self,
        bytes: usize,
        whole: usize,
        until: Instant,
    ) -> BoxFuture<'_, Result<Charge, Fault>> {
        Box::pin(async move {
            let charged = self
                .node
                .kv
                .limits
                .budget
                .wait_for_part(bytes, whole, until)
                .await?;
            Ok(Box::new(charged) as Charge)
        })
    }

    fn charged_bytes(&self) -> usize {
        self.node.kv.limits.budget.held()
    }

    fn resident_bytes(&self) -> u64 {
        status::resident_memory_bytes()
    }
}
