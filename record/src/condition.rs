//! Conditions of writes.

use crate::Ballot;

/// The condition of a write. If it does not hold, the write fails and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The key has no value.
    IfAbsent,
    /// The key has a value, of this version.
    IfVersion(Ballot),
    /// The key's version is below this one. A deleted or expired key has the version of its last write,
    /// until it is collected; then it has that of the collection, and a key that was never written has
    /// that of its partition's last collection, or none.
    IfOlderThan(Ballot),
}
