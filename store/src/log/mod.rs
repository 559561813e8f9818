//! The commit log: numbered segments of checksummed batches.
//!
//! Invariants:
//! * Sequence numbers have no gaps: a batch starts with the number after the last
//!   entry of the previous batch, across segments.
//! * A batch is written after the previous one was synced, so at most one batch can be
//!   torn: the last of the last segment.
//! * A segment gets its name only after its header was synced, and a successor only
//!   after it was cut to its last batch and synced. So every segment has a valid
//!   header, and every segment but the last ends exactly with a batch.
//! * Each opening of the store starts a new segment: nothing is ever appended to what
//!   an earlier process wrote.
//! * The last frame is written again and synced before it is used, because its writer's
//!   sync may have failed.
//!
//! So a reader tolerates only bad bytes at the end of the last segment with no frame
//! after them.

pub(crate) mod newest;
mod replay;
mod segment;
mod writer;

pub(crate) use replay::{LogEnd, Replay};
pub(crate) use writer::{LogWriter, SegmentInfo};
