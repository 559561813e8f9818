//! Stand-ins for the disk, for tests of this crate and of those above it.
//!
//! Compiled with the feature `testing` only.

mod crash_fs;

pub use crash_fs::{Call, CrashFs, Survives};
