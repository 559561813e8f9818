//! Segments: files that hold slices of many partitions.
//!
//! A header (its number is the segment's, its seq is 0), then slices, each at a multiple of 64
//! bytes, then one frame of kind `Slices`, salted with the number: the table, with one row per
//! slice.
//!
//! | bytes | row |
//! |---|---|
//! | 4 | partition |
//! | 2 | zero |
//! | 18 | highest ballot of its records: epoch, hybrid time, node slot |
//! | 8 | where the slice starts |
//! | 8 | its length |
//!
//! The manifest records which rows are live: a slice that was compacted or dropped stays in the
//! file until no slice in it is live; then the file is removed.
//!
//! Invariants:
//! * A segment is written once, synced, and only then named by a manifest; it never changes.
//! * The indexes of its slices are in memory and checked; records are read from the file, which
//!   stays open while any of its slices is in use.
//! * A slice with a damaged index keeps its place and answers every request with "damaged". A
//!   damaged table is rebuilt by walking the slices.

mod open;
mod slice;
mod table;
mod writer;

pub(crate) use open::{open_segment, open_slice_file};
pub(crate) use slice::{SegmentFile, Slice};
pub(crate) use table::{Row, encode as encode_table};
pub(crate) use writer::{Placed, RateLimit, SegmentWriter, complete_segment};

/// Slices start at multiples of this, because a gate's blocks are cache lines.
pub(crate) const SLICE_ALIGN: u64 = 64;

/// The next offset at which a slice can start.
pub(crate) const fn align(at: u64) -> u64 {
    at.next_multiple_of(SLICE_ALIGN)
}
