//! The library against nodes over real sockets: small in-memory nodes that can be made to refuse,
//! stall or cut the connection.
//!
//! No test depends on chance or reads a clock: tests count the requests that the nodes saw, and
//! compare the outcomes of the callers. Deadlines that must pass are short.

#![expect(
    clippy::unwrap_used,
    reason = "a fixture that fails is a test that fails"
)]

mod admin;
mod batches;
mod cluster;
mod hot;
mod node;
mod outcomes;
mod proxy;
mod reaching;
mod routing;
mod scans;
mod service;
mod sessions;
mod traces;

use std::time::Duration;

/// A deadline that a test intends to miss.
const SOON: Duration = Duration::from_secs(1);
