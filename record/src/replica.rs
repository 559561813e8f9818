//! The durable state of a partition's replica beside its records, and the batches that change both.
//!
//! The contract between a replica and what stores its batches:
//! * Batches of a replica become durable and are applied in the order in which they were made.
//! * Each is atomic: after a crash it is there completely or not at all. After a crash, any prefix of
//!   the batches not reported as durable may exist.
//! * A record's ballot is above that of every readable version of its key, so it makes no difference
//!   whether a store replaces the present version or keeps the one with the highest ballot. There is
//!   one exception: slices that are ingested while the batch is on its way may bring a later version
//!   of the key. Then the store keeps that one. A record
//!   over an unreadable version is found; whether it still is after its store has compacted files depends
//!   on the ballots that the damaged file may hold. Until it is known, the key is unreadable.
//! * After a start, a store tells which versions its replica stored last ([`StoredVersions`](crate::StoredVersions)).
//!   It never claims to know a version, or that there was none, if it does not.
//! * A purge never goes back: one with a lower ballot than before changes nothing. After a wipe, no
//!   purge is in force.

use crate::{Ballot, Epoch, HybridTime, Record};

/// The durable facts of a replica beside its records. About 50 bytes per partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaFacts {
    /// Adopted epoch (R1).
    pub epoch: Epoch,
    /// Epoch in which the present membership began; zero if it is not a member.
    pub since: Epoch,
    /// Promises of the adopted epoch lie below this time (R3).
    pub ceiling: HybridTime,
    /// Everything at or below was identical on all replicas, and its tombstones are dropped.
    pub collected: Ballot,
    /// A collection up to here has begun: values that had expired by its time are absent. The only
    /// field that a store interprets, to tell which records a collection may drop soon.
    pub collecting: Ballot,
}

/// Changes of one replica that become durable together. Applied in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaBatch {
    /// Drop all records first. The facts stay.
    pub wipe: bool,
    /// Records that replace the present ones of their keys. A store limits their bytes: 4 MiB as
    /// stored, 44 to 52 bytes per record in addition to key and value.
    pub records: Vec<Record>,
    /// Drop every record for which [`State::is_collected`](crate::State::is_collected) is true.
    pub purge: Option<Ballot>,
    /// The new facts.
    pub meta: Option<ReplicaFacts>,
}

impl ReplicaBatch {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
