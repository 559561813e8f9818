//! Compaction: the slices of a partition become one per layer (nearly always one), so that a
//! get asks few gates and disk is given back.
//!
//! Tiered: slices of about one size are compacted together, so that a record is written about
//! once for each fourfold growth of its partition. Beyond a number of slices a partition is
//! compacted whatever their sizes; when the node is idle, a partition with more than one slice
//! of any weight is compacted into one. Segments of which little counts any more are emptied by
//! copying their slices as they are.
//!
//! Slices of one layer are compacted together: what two of them hold of one digest and different
//! keys goes on to the next layer. Each compaction leaves fewer slices in its layer and adds some to
//! higher ones only, so compaction comes to an end.
//!
//! What a collection dropped is left out, unless another slice may hold an older version of
//! its key; what is damaged is left alone until somebody vouches for it.
//!
//! A compaction works on slices that never change, and puts its result in force only if all of
//! them still count. It reads and writes at a limited rate, one partition at a time; its
//! memory is that of the largest partition it merges.

mod choose;
mod job;
mod merge;
mod thread;

#[cfg(any(test, feature = "testing"))]
pub(crate) use choose::{Zeal, how_many};
pub(crate) use thread::run;
