//! Stand-ins for the disk, for tests of this crate and of those above it.
//!
//! Compiled with the feature `testing` only.

#![expect(clippy::cast_possible_truncation, reason = "tests count small numbers")]

mod contents;
mod crash_fs;
mod file;
mod hostile;
mod state;

pub use crash_fs::{Call, CrashFs, Survives};
pub use hostile::{read_log, read_slice, sample_log, sample_slice};
