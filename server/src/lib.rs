//! `kvd`, the Torc server, as a library: one [`Node`] is one server.
//!
//! This crate is the edge: sockets, clocks, randomness and tasks live here. What a
//! node decides, it decides in the pure crates: `torc-ring` (who holds what),
//! `torc-replication` (what a node does in a stage); what it keeps, `torc-store` keeps.
//! `torc-group` is how the nodes agree on the topology, `torc-links` carries messages between replicas.
//!
//! Map:
//! * [`config`]: settings from flags, variables and a file; [`variables`]: misspelt ones; [`node`]: starting and stopping.
//! * `data_dir`: whether the parts of a data directory belong together; `boot`: whether it is an older copy or a clone.
//! * `shared`: what all parts of a node hold.
//! * `kv`, `cluster`, `replica`: the gRPC services, served by `grpc` to whom `recipient` lets pass; `caller`: who calls and what they may do; `bearers`: the tokens that count; `audit`: what is written of that; `renewal`: replaced certificates; `rotation`: a node's part in replacing the authority; `tls_dir`: the certificates and the authority of a secure node; `enrolment`: getting them with a join token, which `cluster::enrol` lets in and `attempts` bounds; `first_use`: the first tokens; `http`: health, metrics, JSON; `console`: the page for people, and what it shows.
//! * `resp`: the door of Redis clients.
//! * `admission`: how many operations are taken on at a time.
//! * `budget`: how many bytes of clients' requests and answers are held at a time; `meter`: charging them.
//! * `backup`: what this node copies to a backup.
//! * [`spans`]: traces of single operations. `slow`: the log of slow ones.
//! * `hot`: which keys are accessed most.
//! * `adopt`: taking a new topology into force; `registers`: replicas and coordinators; `moves`: receiving slices and reporting facts.
//! * [`mutants`]: rules that a test build breaks.
//! * [`playground`]: a whole cluster in one process.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "tests count small numbers"
    )
)]

mod admission;
mod adopt;
mod attempts;
mod audit;
#[cfg(feature = "backup")]
mod backup;
mod bearers;
mod boot;
mod budget;
mod caller;
mod classes;
mod clock;
mod cluster;
pub mod config;
mod connections;
mod console;
mod data_dir;
mod disk_faults;
mod enrolment;
mod first_use;
mod founding;
mod generations;
mod grpc;
mod hot;
mod http;
mod identity;
mod kv;
mod latencies;
mod memory;
mod meter;
mod metrics;
mod moves;
pub mod mutants;
pub mod node;
mod peers;
pub mod playground;
mod recipient;
mod registers;
mod renewal;
mod replica;
mod resp;
mod rotation;
mod shared;
mod slow;
pub mod spans;
mod sweep;
pub mod telemetry;
mod tls_dir;
pub mod variables;

pub use data_dir::DataDirError;
pub use enrolment::EnrolError;
pub use first_use::FirstUse;
pub use node::{Node, NodeError};
pub use tls_dir::TlsDirError;
