//! The rules of replication as pure state machines: input in, intentions out. This
//! crate does not send, store, wait or read a clock.
//!
//! One register per key, no leader, no log (CASPaxos), with one-round reads, one-round
//! writes when warm, and replica sets that change under load.
//!
//! * [`Replica`]: one replica of one partition; [`Storage`] below it, [`Effect`]s out.
//! * [`Coordinator`]: operations of both modes; [`Intent`]s out.
//! * [`Config`], [`Milestones`]: a partition's replicas in an epoch, its quorums, and
//!   the steps from one epoch to the next; from `torc-ring`, because the topology commits
//!   them.
//! * [`Collector`]: tombstones and expired values. [`compare`]: anti-entropy.
//! * [`ScanRound`]: pages of a partition as a quorum knows them.
//! * [`LostStretch`]: recovers lost records of this replica from the others.
//! * [`Hints`]: writes that replicas of `eventual` namespaces have missed.
//! * [`Fence`]: whether a replica may act on a message of another epoch.
//!
//! Invariants, and where they are kept: a replica acts in an epoch only once it is durable
//! (`replica/adopt.rs`); it sends nothing that is not durable (`replica/mod.rs`); a ballot
//! belongs to one version (`clock.rs`); a version is returned only if proven chosen
//! ([`Config::is_chosen`], `coordinator/get.rs`). Each [`Mutation`] breaks one rule, which the simulation
//! (`torc-sim`) detects. Not every rule has one: R10, which refuses ballots too far ahead of the clock, has none.
//!
//! Absent on purpose: the wire, the disk, the topology group's log, batching of
//! messages between nodes, and the client's choice of a node.

mod clock;
mod collect;
pub mod compare;
mod coordinator;
mod effect;
mod fence;
mod hints;
mod locator;
mod lost;
mod memory;
mod message;
mod promise;
mod range;
mod reading;
mod recent;
mod replica;
mod same;
mod scan;
mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use clock::ReservedClock;
pub use collect::{Collector, Sends};
pub use coordinator::{
    Coordinator, CoordinatorOptions, EventualOptions, EventualRead, EventualWrite, Intent,
    Operation, OutOfReach, Outcome, Quorum, Request, Rules,
};
pub use effect::Effect;
pub use fence::Fence;
pub use hints::{Hint, HintId, Hints};
pub use locator::{DigestHasher, NumberHasher, NumberTable};
pub use lost::{LostStretch, Stretch};
pub use message::{
    Claim, Content, Envelope, Held, KnownPage, MAX_CLAIMS, Message, OpId, Recall, Tag,
};
pub use reading::{Reading, Readout};
pub use replica::{Input, Now, Recovered, Replica, ReplicaOptions};
pub use same::SameRound;
pub use scan::{FilteredPage, Listed, ListedEntry, ScanAnswer, ScanPage, ScanRound, ScanStep};
pub use storage::{Entry, LogPosition, Lookup, Scanned, Seq, Storage};
pub use torc_record::{KeyId, Locator};
pub use torc_ring::replicas::{
    Config, MAX_MEMBERS, Member, Milestone, Milestones, MoveError, Mutation, Mutations, Seat,
    Settled, Votes,
};
