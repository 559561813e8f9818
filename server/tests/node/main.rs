//! Real nodes, real sockets: what clients see of one node or a few.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
mod data_dir;
mod eventual;
mod founding;
mod full_disk;
mod full_memory;
mod hostile;
mod hot;
mod in_flight;
mod namespaces;
mod ports;
mod release;
mod replicas;
mod resp;
mod secure;
mod services;
mod slices;
mod tokens;
mod traces;
