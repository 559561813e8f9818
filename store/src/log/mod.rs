//! The commit log: numbered segments of checksummed batches.
//!
//! Invariants:
//! * Sequence numbers are dense: a batch starts with the number after the last entry of
//!   the batch before it, across segments.
//! * A batch is written when the one before it has been synced, so at most one batch, the
//!   last of the last segment, can be torn.
//! * A segment has its name only after its header was synced, and gets a successor only
//!   after it was cut to its last batch and synced. So every segment has a good header,
//!   and every segment but the last ends exactly with a batch.
//! * Each opening of the store starts a new segment: nothing is ever appended behind what
//!   an earlier process wrote, torn or not.
//! * The last frame is written again and synced before it is believed: the sync of whoever
//!   wrote it may have failed.
//!
//! From these follows what a reader may forgive: bad bytes at the end of the last segment
//! with no frame behind them, and nothing else.

mod replay;
mod segment;
mod writer;

pub(crate) use replay::{LogEnd, Replay};
pub(crate) use writer::{LogWriter, SegmentInfo};
