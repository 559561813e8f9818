//! The server for Redis clients.
//!
//! Commands on keys become gets, puts and deletes, and take the path of all operations (`kv`): this
//! module accesses neither the store nor a replica.
//!
//! * `connection`: bytes to requests, replies to bytes; limits and times. `session`: the state of
//!   a connection, and commands without a key.
//! * `burst`: requests that arrived together, by key; `run`: carrying them out; `modify`:
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

/// Pause after the system refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that is silent so long is asked whether it is there, as Redis does.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// What all connections of Redis clients share.
#[derive(Debug)]
pub(crate) struct RespDoor {
    /// Where others reach it; none: it is not served.
    address: Option<String>,
    /// Namespaces by number.
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

    /// Where others reach it, HOST:PORT.
    pub(crate) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// The namespace of a number, as requests name it.
    fn namespace(&self, database: u32) -> String {
        match self.databases.get(&database) {
            // No name is the default's.
            Some(name) if name != "default" => name.clone(),
            _ => String::new(),
        }
    }
}

/// Accepts connections, and deals them out to the threads that serve gRPC in turn, until the node has closed.
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
    let begun = Connection::begin(stream, Some(place), &shared, Door::Resp).await;
    let Some(connection) = begun else { return };
    let id = shared.resp.connections.fetch_add(1, Ordering::Relaxed) + 1;
    shared.metrics.resp.connections.inc();
    // Whoever went away needs no answer.
    let _ = connection::serve(&shared, connection, id).await;
    shared.metrics.resp.connections.dec();
}
