//! The library against nodes over real sockets: small honest ones in memory, told
//! now and then to refuse, to stall or to cut the connection.
//!
//! Nothing here waits for luck or looks at a clock: tests count what the nodes saw
//! and compare what the caller was told. Where a deadline has to pass it is short.

#![expect(
    clippy::unwrap_used,
    reason = "a fixture that fails is a test that fails"
)]

mod admin;
mod batches;
mod cluster;
mod gate;
mod hot;
mod node;
mod outcomes;
mod reaching;
mod routing;
mod scans;
mod service;
mod sessions;
mod traces;

use std::time::Duration;

/// A deadline that a test means to miss.
const SOON: Duration = Duration::from_secs(1);
