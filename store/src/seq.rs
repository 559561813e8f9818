//! Sequence numbers.

/// Number of an entry of the commit log: dense, ascending, and stable across restarts. The first
/// entry has 1; 0 is before all entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);
