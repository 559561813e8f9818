//! Deterministic simulation of the replication state machines.
//!
//! It runs the server's real state machines, not a model, in one thread under a seeded scheduler.
//! Messages are lost, duplicated, late and out of order; links are cut in one direction; disks lose
//! unsynced batches, and records rot; clocks are wrong and jump; nodes crash, become slow, lose
//! their disks, join, leave and replace each other, while tombstones and expired values are
//! collected. Then it checks every key's history for linearizability, and the healed cluster for
//! equal replicas.
//!
//! One seed is one run. Each [`Mutation`](torc_replication::Mutation) breaks one rule; `mutants`
//! shows that the checks detect each.
//!
//! Left out: the wire's bytes and the store's files (their crates test them), more than one
//! partition (partitions share nothing but clocks), overload.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a test of small numbers"
)]

mod answers;
mod campaign;
pub mod check;
mod clients;
mod creation;
mod disk;
mod doors;
mod event;
mod faults;
pub mod generations;
mod group;
pub mod history;
mod ledger;
mod merges;
mod node;
mod perform;
mod profile;
mod rng;
mod run;
mod scans;
mod shrink;
mod steps;
mod trace;
mod workload;
mod world;

pub use campaign::{Caught, Hunt, PLAN, Tally, hunt, plan_of, run_seed};
pub use profile::{Faults, Profile};
pub use rng::Rng;
pub use run::{Report, Violation, run, run_with};
pub use shrink::{Shrunk, shrink};
pub use trace::Trace;
pub use world::Counts;
