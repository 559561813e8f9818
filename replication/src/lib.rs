//! The rules of replication, as pure functions and state machines.
//!
//! Input in, intentions out: nothing here sends, stores, waits or reads a clock.
//!
//! * [`Fence`]: a replica handles a message only in the epoch it has adopted.
//! * [`Role`]: what a node does for a partition in a stage.
//! * [`WriteOp`]: when a write that goes to one or two replica sets is durable.
//!
//! Absent on purpose: the ballots of concurrent coordinators. A partition has one
//! replica and one lead in each stage, and the lead orders its writes; more replicas
//! are refused when a cluster is founded.

mod fence;
mod role;
mod write;

pub use fence::Fence;
pub use role::Role;
pub use write::{Progress, WriteOp};
