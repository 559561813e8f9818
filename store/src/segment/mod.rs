//! Segments: files that hold slices of many partitions.
//!
//! A header (its number is the segment's, its seq is 0), then slices, each at a multiple of 64 bytes, then one frame
//! of kind `Slices`, salted with the number: the table, with a row a slice.
//!
//! | bytes | row |
//! |---|---|
//! | 4 | partition |
//! | 2 | zero |
//! | 18 | highest ballot of its records: epoch, hybrid time, node slot |
//! | 8 | where the slice starts |
//! | 8 | its length |
//!
//! Which rows count is said by the manifest: a slice that was compacted or dropped stays in the
//! file until none of its slices counts, and then the file is removed.
//!
//! Invariants:
//! * A segment is written once, synced, and only then named by a manifest; it never changes.
//! * The indexes of its slices are in memory, checked; records are read from the file, which is
//!   open as long as any of its slices is used.
//! * A slice whose index is damaged keeps its place: it answers "damaged" to every question.
//!   A damaged table is made anew by walking the slices.

mod open;
mod slice;
mod table;
mod writer;

pub(crate) use open::{open_segment, open_slice_file};
pub(crate) use slice::{SegmentFile, Slice};
pub(crate) use table::{Row, encode as encode_table};
pub(crate) use writer::{Placed, RateLimit, SegmentWriter, complete_segment};

/// Slices start at multiples of this: a gate's blocks are cache lines.
pub(crate) const SLICE_ALIGN: u64 = 64;

/// The next place where a slice can start.
pub(crate) const fn align(at: u64) -> u64 {
    at.next_multiple_of(SLICE_ALIGN)
}
