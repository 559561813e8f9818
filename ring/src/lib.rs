//! Where data lives: the consistent-hash ring of Torc.
//!
//! A [`Token`] is a key's position on the circle of `u64`; the circle is cut into
//! equal [`Partitions`]; node positions on partition borders make the [`Ring`]; a
//! [`Placement`] names the replicas and the lead of every partition. [`allocate()`] plans
//! how the ring changes when a node joins, leaves, is replaced or weighs differently;
//! a [`TransitionPlan`] says what then has to move. [`replicas`] has the quorums of a
//! partition and the stages of its move, and [`topology`] is the agreed state that
//! holds it all, and [`simulate()`] grows a ring on paper, for capacity planning.
//!
//! Invariants:
//! * Everything is deterministic: the same input gives the same ring on every
//!   machine, so that a plan that was shown is the plan that runs, and every member
//!   of the topology group computes the same ring by itself. Placement and
//!   allocation count in integers; floats appear in reports only.
//! * A node at token `t` owns `(previous, t]`, and node positions lie on the
//!   inclusive ends of partitions.
//! * Every partition has min(replicas, nodes) distinct replicas.
//!
//! Absent on purpose: clocks, randomness (seeds are arguments), threads and files;
//! how data moves (`torc-replication`) and how topology is agreed on
//! (`torc-group`).

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

pub use allocate::{AllocateError, Change, MAX_POSITIONS, MAX_REPLICAS, allocate};
pub use layered::Layered;
pub use node::{NodeId, NodeSpec, ParseNodeIdError, Weight, WeightError, Zone, ZoneError};
pub use partition::{Partition, Partitions, PartitionsError};
pub use placement::{Balance, NodeLoad, Placement, PreferenceList};
pub use ring::{Ring, RingError};
pub use simulate::{Growth, Row, simulate};
pub use token::Token;
pub use transition::{PlannedMove, TransitionPlan};
