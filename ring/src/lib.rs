//! The consistent-hash ring of Torc, which decides where data lives.
//!
//! A [`Token`] is a key's position on the circle of `u64`; the circle is cut into equal
//! [`Partitions`]; node positions on partition borders make the [`Ring`]; a [`Placement`]
//! names the replicas and the lead of every partition. [`allocate()`] plans the change of
//! the ring when a node joins, leaves, is replaced or changes its weight; a
//! [`TransitionPlan`] lists what must move. [`replicas`] has the quorums of a partition
//! and the stages of its move, [`topology`] is the agreed state with all of this, and
//! [`simulate()`] grows a ring for capacity planning.
//!
//! Invariants:
//! * Everything is deterministic: the same input gives the same ring on every
//!   machine. So the plan shown is the plan that runs, and every member of the topology
//!   group computes the same ring by itself. Placement and allocation count in
//!   integers; floats appear only in reports.
//! * A node at token `t` owns `(previous, t]`, and node positions lie on the
//!   inclusive ends of partitions.
//! * Every partition has min(replicas, nodes) distinct replicas.
//!
//! Absent on purpose: clocks, randomness (seeds are arguments), threads and files; the
//! movement of data (`torc-replication`) and agreement on the topology (`torc-group`).

#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, reason = "tests count small numbers")
)]

mod allocate;
mod layered;
mod lead;
mod node;
mod partition;
mod placement;
pub mod replicas;
mod ring;
mod share;
mod simulate;
mod token;
pub mod topology;
mod transition;
mod walk;

pub use allocate::{
    AllocateError, Change, DEFAULT_POSITIONS, DEFAULT_REPLICAS, MAX_POSITIONS, MAX_REPLICAS,
    allocate,
};
pub use layered::Layered;
pub use node::{NodeId, NodeSpec, ParseNodeIdError, Weight, WeightError, Zone, ZoneError};
pub use partition::{Partition, Partitions, PartitionsError};
pub use placement::{Balance, NodeLoad, Placement, PreferenceList};
pub use ring::{Ring, RingError};
pub use simulate::{Growth, Row, simulate};
pub use token::Token;
pub use transition::{PlannedMove, TransitionPlan};
