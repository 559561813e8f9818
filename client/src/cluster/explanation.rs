//! Where a key lives and why, and what its replicas hold of it.

use serde::Serialize;
use torc_record::{Digest, Epoch};
use torc_ring::{NodeId, Partition, Token};

use super::{HotEstimate, Member, Position, Stage, as_optional_text, as_text};
use crate::Version;

/// Where a key lives and why, from [`Client::explain`](crate::Client::explain).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Hash of namespace and key.
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    /// The digest's head: the key's position on the ring.
    #[serde(serialize_with = "as_text")]
    pub token: Token,
    /// The partition the token lies in.
    pub partition: Partition,
    /// First token of the partition.
    #[serde(serialize_with = "as_text")]
    pub arc_start: Token,
    /// Last token of the partition, inclusive.
    #[serde(serialize_with = "as_text")]
    pub arc_end: Token,
    /// The position on the ring that owns the token.
    pub successor: Position,
    /// The topology that last changed the partition.
    pub epoch: Epoch,
    /// Whether the partition moves, and how far it is.
    pub stage: Stage,
    /// The node that operations go to.
    pub lead: NodeId,
    /// The preference list; while the partition moves, the old one.
    pub nodes: Vec<NodeId>,
    /// The new preference list while the partition moves, else empty.
    pub next_nodes: Vec<NodeId>,
    /// The members named above.
    pub members: Vec<Member>,
    /// The node that looked the key up.
    pub answered_by: NodeId,
    /// What it holds of the key.
    pub holds: Holds,
    /// Version of what it holds.
    #[serde(serialize_with = "as_optional_text")]
    pub version: Option<Version>,
    /// Length of the value.
    pub value_bytes: u64,
    /// Unix milliseconds from which on the key counts as absent; none: never.
    pub expires_at_ms: Option<u64>,
    /// Where the record was found: `memtable`, or `slice`.
    pub held_in: Option<String>,
    /// Every slice of the partition at that node, and what it says of the key.
    pub slices: Vec<SliceTrace>,
    /// How often the key was accessed there of late; none where accesses are not counted.
    pub hot: Option<HotEstimate>,
    /// What a read and a prepare need.
    pub read_quorum: Quorum,
    /// What an accept needs: all of these.
    pub accept_quorums: Vec<Quorum>,
    /// Replicas that were declared dead: they never count.
    pub excluded: Vec<NodeId>,
    /// What each replica holds, newcomers included.
    pub replicas: Vec<Holding>,
}

/// So many of these nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quorum {
    /// How many have to answer.
    pub needed: u32,
    /// Of whom.
    pub of: Vec<NodeId>,
}

impl Quorum {
    /// A majority of a set.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a partition has few replicas"
    )]
    pub fn majority_of(nodes: &[NodeId]) -> Self {
        Self {
            needed: nodes.len() as u32 / 2 + 1,
            of: nodes.to_vec(),
        }
    }
}

/// What one replica holds of a key by itself: an older version than another's is one that
/// it has missed, or that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// Which node.
    pub node: NodeId,
    /// What it holds; none where it did not tell.
    pub holds: Option<Holds>,
    /// Version of that.
    #[serde(serialize_with = "as_optional_text")]
    pub version: Option<Version>,
    /// Why it did not tell.
    pub problem: Option<String>,
}

/// What one slice says of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SliceTrace {
    /// Number of its file.
    pub segment: u64,
    /// Its number in the file.
    pub row: u32,
    /// Its keys.
    pub keys: u64,
    /// Its length.
    pub bytes: u64,
    /// What its minimal perfect hash function gives the key, whether it is there or not.
    pub slot: u64,
    /// What it says.
    pub verdict: SliceVerdict,
    /// Of the version that it holds.
    #[serde(serialize_with = "as_optional_text")]
    pub version: Option<Version>,
    /// Whether that is a tombstone.
    pub tombstone: bool,
}

/// A slice's word on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SliceVerdict {
    /// Its Bloom gate has never seen the key: nothing is read.
    GateNegative,
    /// The gate let the key through, and the record in its slot is another key's.
    GateFalsePositive,
    /// It holds a version.
    Holds,
    /// It is damaged there: nobody knows.
    Damaged,
    /// Something that this release does not know.
    Unknown,
}

/// What a node holds of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// Nothing.
    Nothing,
    /// A value.
    Value,
    /// The note that it was deleted.
    Tombstone,
}
