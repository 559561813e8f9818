//! Compaction rewrites the slices of a partition as one per layer (nearly always one), so
//! that a get checks few gates and disk space is freed.
//!
//! It is tiered: slices of similar size are compacted together, so that a record is written
//! about once for each fourfold growth of its partition. Above a number of slices a partition
//! is compacted whatever their sizes; when the node is idle, a partition with more than one
//! slice of relevant size is compacted into one. Segments with few live slices are emptied by
//! copying those slices unchanged.
//!
//! Slices of one layer are compacted together: records with the same digest but different keys go
//! to the next layer. Each compaction leaves fewer slices in its layer and adds slices only to
//! higher ones, so compaction terminates.
//!
//! Collected records are left out, unless another slice may hold an older version of the
//! key. Damaged slices are not compacted until
//! [`Store::mark_repaired`](crate::Store::mark_repaired) is called.
//!
//! A compaction works on immutable slices, and its result takes effect only if all of them are
//! still live. It reads and writes at a limited rate, one partition at a time; it needs memory
//! for the largest partition that it compacts.

mod choose;
mod job;
mod merge;
mod thread;

#[cfg(any(test, feature = "testing"))]
pub(crate) use choose::{Urgency, how_many};
pub(crate) use thread::run;
