//! The replicas of a partition: who they are in an epoch, their quorums, and the way
//! from one epoch to the next.
//!
//! [`Config`] is one epoch of one partition; [`Milestones`] is what is known of it, and
//! decides when a [`Stage`] may be left. The topology commits them, replicas and
//! coordinators go by them (`torc-replication`), and the simulation (`torc-sim`) proved
//! them, rule by rule: what a [`Mutation`] breaks is caught there.
//!
//! Absent on purpose: messages, ballots of registers, and which node leads.

mod config;
mod form;
mod moves;
mod mutation;
mod settled;
mod stage;
mod votes;

pub use config::{Config, Member, Seat};
pub use form::MalformedConfig;
pub use moves::{Milestone, Milestones, MoveError};
pub use mutation::{Mutation, Mutations};
pub use settled::Settled;
pub use stage::Stage;
pub use votes::{MAX_MEMBERS, Votes, VotesError};
