//! `kvd`, the Torc server, as a library: one [`Node`] is one server.
//!
//! This crate is the edge: sockets, clocks, randomness and tasks live here. What a
//! node decides, it decides in the pure crates: `torc-ring` (who holds what),
//! `torc-replication` (what a node does in a stage); what it keeps, `torc-store` keeps.
//!
//! Map:
//! * [`config`]: settings from flags, variables and a file; [`node`]: starting and stopping.
//! * `shared`: what all parts of a node hold; `gate`: the epoch fence of every partition.
//! * `kv`, `cluster`, `replica`: the gRPC services, served by `grpc`; `http`: health, metrics, JSON.
//! * [`links`]: messages between replicas.
//! * `admission`: how many operations are taken on at a time.
//! * `hot`: which keys are accessed most.
//! * [`group`]: the topology group; `adopt`: taking a new topology into force;
//!   `moves`: copying partitions and reporting facts.
//! * [`mutants`]: rules that a test build breaks.
//! * [`playground`]: a whole cluster in one process.

mod admission;
mod adopt;
mod clock;
mod cluster;
pub mod config;
mod founding;
mod gate;
pub mod group;
mod grpc;
mod hot;
mod http;
mod identity;
mod kv;
pub mod links;
mod metrics;
mod moves;
pub mod mutants;
pub mod node;
mod order;
mod peers;
pub mod playground;
mod registers;
mod replica;
mod shared;
pub mod telemetry;

pub use node::{Node, NodeError};
