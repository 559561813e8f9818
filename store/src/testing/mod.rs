//! Substitutes for the disk, and calls that wait, for tests of this crate and of those above it.
//!
//! Compiled only with the feature `testing`.

#![expect(clippy::cast_possible_truncation, reason = "tests count small numbers")]

mod contents;
mod crash_fs;
mod file;
mod hostile;
mod state;
mod waiting;

pub use crash_fs::{CrashFs, Survives};
pub use hostile::{
    read_log, read_slice, sample_keyless, sample_log, sample_numbered, sample_slice,
};
pub use state::Call;
pub use waiting::WaitingStore;

use crate::compaction::{Zeal, how_many};

/// The number of slices of these ascending lengths that a compaction merges, smallest first, if
/// `most` may stay and the node is busy or idle.
#[must_use]
pub fn compacted(lens: &[u64], most: usize, is_idle: bool) -> usize {
    let zeal = if is_idle { Zeal::Idle } else { Zeal::Busy };
    how_many(lens, most, zeal)
}
