//! A trace of a lookup, for display.

use std::sync::Arc;

use crate::Seq;
use crate::packed::Packed;
use crate::partition_table::{PartitionTable, Slices};
use crate::segment::Slice;
use crate::slice::{Found, Reading};
use torc_record::{Ballot, Locator};

/// A slice's answer for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Its gate excludes the key: nothing was read.
    GateNegative,
    /// Its gate passed the key, but the record in its slot has another key.
    GateFalsePositive,
    /// It holds a version of the key.
    Holds {
        /// The version.
        ballot: Ballot,
        /// Whether it is a tombstone.
        is_tombstone: bool,
    },
    /// The place is damaged, so the slice may or may not hold the key.
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
    /// Number of its keys.
    pub keys: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// The slot that its minimal perfect hash function gives the key, whether or not the key is
    /// there.
    pub slot: Option<usize>,
    /// Its answer.
    pub verdict: Verdict,
}

/// The places where a key was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// The memtable's version, and the number of its log entry. Unless a slice of the partition is
    /// damaged, this version is the newest, and a get reads no slice.
    pub memtable: Option<(Ballot, Seq)>,
    /// Every slice of the partition.
    pub slices: Vec<SliceTrace>,
}

impl PartitionTable {
    pub(crate) fn trace(&self, position: &Locator<&[u8]>) -> Trace {
        let (memtable, slices): (Option<(Seq, Packed)>, Slices) = self.look_up(position);
        Trace {
            memtable: memtable.map(|(seq, packed)| (packed.ballot(), seq)),
            slices: slices.iter().map(|slice| trace(slice, position)).collect(),
        }
    }
}

fn trace(slice: &Arc<Slice>, position: &Locator<&[u8]>) -> SliceTrace {
    let digest = position.digest;
    let verdict = match slice.find(position, Reading::Wait) {
        Found::GateNegative => Verdict::GateNegative,
        Found::Damaged(what) => Verdict::Damaged(what),
        // Cannot happen: a trace waits for the disk.
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
