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

use crate::compaction::{Urgency, how_many};

/// The number of slices of these ascending lengths that a compaction rewrites, smallest first, if
/// `most` may stay and the node is busy or idle.
#[must_use]
pub fn compacted(lens: &[u64], most: usize, is_idle: bool) -> usize {
    let urgency = if is_idle {
        Urgency::Idle
    } else {
        Urgency::Busy
    };
    how_many(lens, most, urgency)
}
