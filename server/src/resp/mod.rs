//! The server for Redis clients.
//!
//! Commands on keys become gets, puts and deletes, and take the path of all operations (`kv`): this
//! module accesses neither the store nor a replica.
//!
//! * `connection`: bytes to requests, replies to bytes; limits and times. `session`: the state of a
//!   connection, and commands without a key.
//! * `burst`: groups requests that arrived together by key; `run`: runs the groups; `modify`:
//!   read-modify-writes of all connections, one task per key at a time.
//! * `scan`: `SCAN` and `DBSIZE`. `cluster`: the other nodes that serve Redis clients. `info`,
//!   `table`: descriptions of the node and its commands.
//! * `errors`: faults as errors; `metrics`: counters.
//!
//! Absent on purpose: transactions, scripts, channels and values other than strings
//! (`docs/redis.md`).

mod burst;
mod cluster;
mod connection;
mod errors;
mod info;
mod metrics;
mod modify;
mod run;
mod scan;
mod session;
mod table;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use tokio::net::{TcpListener, TcpStream};
use torc_tls::Door;

use crate::config::Settings;
use crate::connections::{Connection, Place, Places};
use crate::shared::Shared;
use cluster::Doors;
pub(crate) use metrics::RespMetrics;
use modify::Lines;

/// Pause after the system failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that has been silent this long is probed with TCP keepalive, as in Redis.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// State that all connections of Redis clients share.
#[derive(Debug)]
pub(crate) struct RespDoor {
    /// The address at which clients reach this server; `None` if it is off.
    address: Option<String>,
    /// The namespace of each numbered database.
    databases: BTreeMap<u32, String>,
    connections: AtomicU64,
    lines: Lines,
    doors: Doors,
}

impl RespDoor {
    pub(crate) fn new(settings: &Settings, bound: Option<SocketAddr>) -> Self {
        let advertised = settings.advertise_resp_addr.clone();
        Self {
            address: bound.map(|bound| advertised.unwrap_or_else(|| bound.to_string())),
            databases: settings.resp_databases.clone(),
            connections: AtomicU64::new(0),
            lines: Lines::default(),
            doors: Doors::default(),
        }
    }

    /// The address at which clients reach this server, HOST:PORT.
    pub(crate) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// The namespace of a database number, as requests name it.
    fn namespace(&self, database: u32) -> String {
        match self.databases.get(&database) {
            // Requests name the default namespace by the empty string.
            Some(name) if name != "default" => name.clone(),
            _ => String::new(),
        }
    }
}

/// Accepts connections and assigns them in turn to the threads that serve gRPC, until the node has
/// closed.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let places = Places::new(shared.settings.max_connections);
    let workers = shared.workers.get().cloned().unwrap_or_default();
    for worker in workers.iter().cycle() {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = shared.closing.cancelled() => return,
        };
        let accepted = accepted.and_then(|(stream, from)| {
            let Some(place) = places.take(from.ip()) else {
                shared.metrics.connections_refused.inc();
                return Ok(None);
            };
            stream.set_nodelay(true)?;
            set_socket_keepalive(&stream, true)?;
            set_tcp_keepidle(&stream, KEEPALIVE)?;
            Ok(Some((stream.into_std()?, place)))
        });
        match accepted {
            Ok(Some((stream, place))) => {
                worker.spawn(attend(Arc::clone(&shared), stream, place));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn attend(shared: Arc<Shared>, stream: std::net::TcpStream, place: Place) {
    let stream = TcpStream::from_std(stream);
    let stream =
        stream.inspect_err(|error| tracing::warn!(%error, "an incoming connection failed"));
    let Ok(stream) = stream else { return };
    let begun = Connection::begin(stream, place, &shared, Door::Resp).await;
    let Some(connection) = begun else { return };
    let id = shared.resp.connections.fetch_add(1, Ordering::Relaxed) + 1;
    shared.metrics.resp.connections.inc();
    // The client is gone, so it needs no answer.
    let _ = connection::serve(&shared, connection, id).await;
    shared.metrics.resp.connections.dec();
}
