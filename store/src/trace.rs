//! Where a key was looked for, for people.

use std::sync::Arc;

use crate::Seq;
use crate::packed::{Packed, Position};
use crate::partition_table::{PartitionTable, Slices};
use crate::segment::Slice;
use crate::slice::{Found, Reading};
use torc_record::Ballot;

/// What one slice says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Its gate has never seen the key: nothing is read.
    GateNegative,
    /// Its gate let the key through, and the record in its slot is another key's.
    GateFalsePositive,
    /// It holds a version of the key.
    Holds {
        /// Which.
        ballot: Ballot,
        /// Whether it is a tombstone.
        is_tombstone: bool,
    },
    /// It is damaged there: nobody knows.
    Damaged(&'static str),
}

/// One slice of the key's partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SliceTrace {
    /// Number of its segment.
    pub segment: u64,
    /// Its row there.
    pub row: u32,
    /// Its keys.
    pub keys: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// The slot that its minimal perfect hash function gives the key, whether it is there or
    /// not.
    pub slot: Option<usize>,
    /// What it says.
    pub verdict: Verdict,
}

/// Where a key was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// The version that the memtable holds, and the number of its entry in the log: if there
    /// is one, it is the newest, and slices are not asked by a get.
    pub memtable: Option<(Ballot, Seq)>,
    /// Every slice of the partition.
    pub slices: Vec<SliceTrace>,
}

impl PartitionTable {
    pub(crate) fn trace(&self, position: &Position<'_>) -> Trace {
        let (memtable, slices): (Option<(Seq, Packed)>, Slices) = self.look_up(position);
        Trace {
            memtable: memtable.map(|(seq, packed)| (packed.ballot(), seq)),
            slices: slices.iter().map(|slice| trace(slice, position)).collect(),
        }
    }
}

fn trace(slice: &Arc<Slice>, position: &Position<'_>) -> SliceTrace {
    let digest = position.digest();
    let verdict = match slice.find(&digest, Reading::Wait) {
        Found::GateNegative => Verdict::GateNegative,
        Found::Damaged(what) => Verdict::Damaged(what),
        // A trace waits.
        Found::NotCached => Verdict::Damaged("it was not read"),
        Found::Record(packed) if packed.position() == *position => Verdict::Holds {
            ballot: packed.ballot(),
            is_tombstone: packed.is_tombstone(),
        },
        Found::Record(_) => Verdict::GateFalsePositive,
    };
    let mphf = slice.view().ok().and_then(|view| view.mphf());
    let (segment, row) = slice.id();
    SliceTrace {
        segment,
        row,
        keys: slice.header().map_or(0, |header| header.keys() as u64),
        bytes: slice.len(),
        slot: mphf.map(|mphf| mphf.slot(&digest)),
        verdict,
    }
}
