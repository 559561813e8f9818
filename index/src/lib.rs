//! Finds a sealed record with a few bits of memory per key.
//!
//! A slice holds the sealed records of one partition. [`Mphf`] maps each of their digests to its
//! own slot, in about two bits per key. It covers exactly one partition, so it travels with that
//! partition. [`paper::Stitched`] combines the functions of many partitions. [`KeylessSet`] adds
//! fingerprints: a table of a known set without its keys.
//!
//! Examples with lines of text, `cargo run --release -p torc-index --example NAME`: `urls_to_mphf`
//! builds a function of your URLs and looks them up, `dense_ids` numbers the pages of a web graph
//! and ranks them, `boilerplate` removes known lines from a text.
//!
//! Invariants:
//! * Everything is read in place from borrowed bytes: a view parses and allocates nothing, and no
//!   bytes, however hostile, make it panic or answer outside its slots.
//! * The result of a build depends on the digests and the seed alone, byte for byte, on every host.
//! * No key is hashed here: digests come in, and everything else derives from them.
//!
//! Absent on purpose: the storage and checking of slices (`torc-store`), threads, files, clocks and
//! randomness.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "tests count small numbers"
    )
)]

pub mod gate;
mod keyless;
mod mphf;
mod offsets;
pub mod paper;
mod perfect;
mod prefetch;

pub use gate::{Gate, GateError};
pub use keyless::{KeylessError, KeylessSet, KeylessViewError};
pub use mphf::{BuildError, Mphf, MphfHead, ViewError};
pub use offsets::{Offsets, OffsetsError};
pub use perfect::PerfectHash;
pub use prefetch::{prefetch, prefetch_value};
