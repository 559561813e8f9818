//! The replicas of a partition: members of an epoch, their quorums, and the steps from
//! one epoch to the next.
//!
//! [`Config`] is one epoch of one partition; [`Milestones`] is the progress in it, and
//! decides when a [`Stage`] may end. The topology commits them, replicas and
//! coordinators obey them (`torc-replication`), and the simulation (`torc-sim`) tests
//! them rule by rule: it detects what each [`Mutation`] breaks.
//!
//! Absent on purpose: messages, ballots of registers, and which node leads.

mod config;
mod malformed;
mod moves;
mod mutation;
mod settled;
mod stage;
mod votes;

pub use config::{Config, Member, Seat};
pub use malformed::MalformedConfig;
pub use moves::{Milestone, Milestones, MoveError};
pub use mutation::{Mutation, Mutations};
pub use settled::Settled;
pub use stage::Stage;
pub use votes::{MAX_MEMBERS, Votes, VotesError};
