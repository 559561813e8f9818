//! The server for Redis clients.
//!
//! Commands on keys become gets, puts and deletes, which a [`Node`] runs as it runs those of all
//! other clients: this crate accesses neither the store nor a replica.
//!
//! * [`Node`]: what it needs of a node.
//! * `connection`: bytes to requests, replies to bytes; limits and times. `session`: the state of a
//!   connection, and commands without a key.
//! * `burst`: groups requests that arrived together by key; `run`: runs the groups; `modify`:
//!   read-modify-writes of all connections, one task per key at a time; `requests`: the gets, puts
//!   and deletes of both.
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
mod node;
mod requests;
mod run;
mod scan;
mod session;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use torc_access::caller::Caller;
use torc_proto::Fault;
use torc_resp::Reply;

use cluster::Doors;
pub use metrics::RespMetrics;
use modify::Lines;
pub use node::{Charge, Node, Socket};

/// A client that has been silent this long should be probed with TCP keepalive, as in Redis.
pub const KEEPALIVE: Duration = Duration::from_secs(300);

/// The replies of a group's commands.
type Answers = Result<Vec<Reply>, Fault>;

/// Settings of the server for Redis clients.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address at which clients reach this server, HOST:PORT.
    pub address: String,
    /// The namespace of each numbered database.
    pub databases: BTreeMap<u32, String>,
    /// Limit on connections, as clients are told.
    pub max_connections: usize,
    /// Time for the first request, and for authentication.
    pub idle_time: Duration,
    /// Time limit of an operation.
    pub deadline: Duration,
    /// The release of the node.
    pub version: String,
}

/// The server: what all connections of Redis clients share.
pub struct Server {
    options: Options,
    node: Arc<dyn Node>,
    metrics: Arc<RespMetrics>,
    /// Cancelled when the node accepts no more operations.
    closing: CancellationToken,
    started: Instant,
    connections: AtomicU64,
    lines: Lines,
    doors: Doors,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server without connections. Connections end between two requests once `closing` is
    /// cancelled.
    #[must_use]
    pub fn new(
        options: Options,
        node: Arc<dyn Node>,
        metrics: Arc<RespMetrics>,
        closing: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            node,
            metrics,
            closing,
            started: Instant::now(),
            connections: AtomicU64::new(0),
            lines: Lines::default(),
            doors: Doors::default(),
        })
    }

    /// Serves a connection until it ends. `caller` is known by the connection itself; `ends` is when the
    /// connection must end, between two requests.
    #[must_use = "nothing is served unless it is awaited"]
    pub fn attend(
        self: Arc<Self>,
        socket: Box<dyn Socket>,
        caller: Caller,
        ends: Option<Instant>,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let id = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
            self.metrics.connections.inc();
            // If it fails, the client is gone and needs no answer.
            let _ = connection::serve(&self, socket, caller, ends, id).await;
            self.metrics.connections.dec();
        })
    }

    /// Admits `count` operations, or none of them.
    fn admit(&self, count: usize) -> Result<Admitted<'_>, Fault> {
        self.node.enter(count)?;
        Ok(Admitted {
            node: &*self.node,
            count,
        })
    }

    /// The namespace of a database number, as requests name it.
    fn namespace(&self, database: u32) -> String {
        match self.options.databases.get(&database) {
            // Requests name the default namespace by the empty string.
            Some(name) if name != "default" => name.clone(),
            _ => String::new(),
        }
    }
}

/// Held while operations are under way.
struct Admitted<'a> {
    node: &'a dyn Node,
    count: usize,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.node.leave(self.count);
    }
}
