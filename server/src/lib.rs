//! `kvd`, the Torc server, as a library: one [`Node`] is one server.
//!
//! This crate is the edge: sockets, randomness and tasks live here. The pure crates make the
//! decisions: `torc-ring` on placement, `torc-replication` on operations, which `torc-driver` runs.
//! `torc-limits` bounds what strangers and clients take, `torc-config` has the settings.
//! `torc-store` keeps the data, `torc-group` agrees on the topology, `torc-links` carries messages
//! between replicas, `torc-member` knows the node in its cluster, `torc-transfers` moves slices,
//! generations and backups, `torc-access` tells who may do what, and `torc-telemetry` has logs, spans
//! and the clock.
//!
//! Map:
//! * [`config`]: settings from flags, variables and a file; [`variables`]: misspelt ones; [`node`]: starting and stopping;
//!   `error`: why a node does not start.
//! * `data_dir`: checks that the parts of a data directory belong together; `boot`: detects an
//!   older copy or a clone of it.
//! * `own_node`: the node as its cluster knows it, for founding, joining and coming back; `limits`: its permits and
//!   budgets.
//! * `kv`, `cluster`, `replica`: the gRPC services, which `grpc` serves and `recipient` guards;
//!   `bearers`: valid tokens; `renewal`: replaced certificates; `rotation`: a node's part in
//!   replacing the authority; `first_use`: the first tokens;
//!   `http`: health, metrics, JSON; `console`: what the web page (`torc-console`) needs of this node.
//! * `resp`: runs the commands of Redis clients, whose server is `torc-redis`.
//! * `hot`: what `torc-hot`, the most accessed keys, needs of this node.
//! * `adopt`: adopting a new topology; `registers`: starting the replicas; `sweep`: deleting the records of
//!   dropped namespaces.
//! * [`playground`]: a whole cluster in one process.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "tests count small numbers"
    )
)]

mod adopt;
mod bearers;
mod boot;
mod call;
mod cluster;
mod console;
mod data_dir;
mod disk_faults;
mod error;
mod first_use;
mod founding;
mod grpc;
mod hot;
mod http;
mod kv;
mod limits;
mod memory;
mod metrics;
pub mod node;
mod own_node;
pub mod playground;
mod recipient;
mod registers;
mod renewal;
mod replica;
mod resp;
mod rotation;
mod sweep;

pub use data_dir::DataDirError;
pub use error::NodeError;
pub use first_use::FirstUse;
pub use memory::{frugal, return_pages_at_once};
pub use node::Node;
pub use torc_access::enrolment::EnrolError;
pub use torc_access::tls_dir::TlsDirError;
pub use torc_config as config;
pub use torc_config::variables;
