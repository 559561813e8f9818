//! Builds of generations.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test fails where it panics"
)]

mod build;
#[path = "../common/mod.rs"]
mod common;
