//! Sequence numbers.

/// Number of an entry of the commit log: dense, ascending, the same after a restart. The
/// first entry has 1; 0 is before all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);
