//! Where a key lives and why, and what its replicas hold.

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
    /// The first 64 bits of the digest: the key's position on the ring.
    #[serde(serialize_with = "as_text")]
    pub token: Token,
    /// The partition that contains the token.
    pub partition: Partition,
    /// First token of the partition.
    #[serde(serialize_with = "as_text")]
    pub arc_start: Token,
    /// Last token of the partition, inclusive.
    #[serde(serialize_with = "as_text")]
    pub arc_end: Token,
    /// The ring position that owns the token.
    pub successor: Position,
    /// Epoch of the topology that last changed the partition.
    pub epoch: Epoch,
    /// The stage of the partition's move, if it moves.
    #[serde(serialize_with = "as_text")]
    pub stage: Stage,
    /// The node to which operations go.
    pub lead: NodeId,
    /// The preference list; while the partition moves, the old one.
    pub nodes: Vec<NodeId>,
    /// While the partition moves, the new preference list; else empty.
    pub next_nodes: Vec<NodeId>,
    /// The members named above.
    pub members: Vec<Member>,
    /// The node that looked the key up.
    pub answered_by: NodeId,
    /// That node's record of the key.
    pub holds: RecordKind,
    /// Version of the record.
    #[serde(serialize_with = "as_optional_text")]
    pub version: Option<Version>,
    /// Length of the value.
    pub value_bytes: u64,
    /// When the value expires, Unix milliseconds; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// Where the record was found: `memtable` or `slice`.
    pub held_in: Option<String>,
    /// In a static namespace that does not store its keys: bits of the fingerprint by which the key
    /// was recognised, so it is only probably present. Zero in any other namespace.
    pub fingerprint_bits: u32,
    /// Every slice of the partition on that node, and its answer for the key.
    pub slices: Vec<SliceTrace>,
    /// Recent accesses to the key at that node; `None` if it does not count them.
    pub hot: Option<HotEstimate>,
    /// The quorum of a read or prepare.
    pub read_quorum: Quorum,
    /// The quorums of an accept: it needs all of them.
    pub accept_quorums: Vec<Quorum>,
    /// Replicas that were declared dead and never count.
    pub excluded: Vec<NodeId>,
    /// The record of each replica, new ones included.
    pub replicas: Vec<ReplicaRecord>,
}

/// A number out of some nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quorum {
    /// How many must answer.
    pub needed: u32,
    /// The nodes.
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

/// One replica's record of a key. If it is older than another's, the replica has missed a
/// write, or the write is in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplicaRecord {
    /// The node.
    pub node: NodeId,
    /// Its record; `None` if it did not answer.
    pub holds: Option<RecordKind>,
    /// Version of the record.
    #[serde(serialize_with = "as_optional_text")]
    pub version: Option<Version>,
    /// Why it did not answer.
    pub problem: Option<String>,
}

/// One slice's answer for a key.
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
    /// The slot that its minimal perfect hash function gives the key, present or not.
    pub slot: u64,
    /// Its answer.
    pub verdict: SliceVerdict,
    /// The version in the slice.
    #[serde(serialize_with = "as_optional_text")]
    pub version: Option<Version>,
    /// Whether the record is a tombstone.
    pub tombstone: bool,
}

/// A slice's answer for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SliceVerdict {
    /// Its Bloom gate says no: nothing is read.
    GateNegative,
    /// The gate says maybe, but the slot holds another key's record.
    GateFalsePositive,
    /// It holds a version.
    Holds,
    /// The slot is damaged: its content is unknown.
    Damaged,
    /// An answer that this release does not know.
    Unknown,
}

/// The kind of a node's record of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// Nothing.
    Nothing,
    /// A value.
    Value,
    /// A tombstone: the key was deleted or has expired.
    Tombstone,
}
