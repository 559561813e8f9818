//! The store on simulated and real disks: crashes, damage, faults, and what runs beside writes.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test fails where it panics"
)]

mod common;
mod crash;
mod damage;
mod descriptors;
mod faults;
mod fixtures;
mod generations;
mod ingest;
mod kill;
mod model;
mod repair;
mod replica;
mod rot;
mod scratch;
mod scrub;
mod sectors;
mod together;
mod transfer;
mod upkeep;
