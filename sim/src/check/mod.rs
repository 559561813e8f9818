//! Linearizability of one register, checked twice by unrelated algorithms.

mod configurations;
mod wing_gong;

pub use configurations::check_by_configurations;
pub use wing_gong::check;

/// Limit on the operations of one key.
pub const MAX_OPERATIONS: usize = 128;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Some order explains everything.
    Linearizable,
    /// No order does.
    Violation,
    /// The search or the history was too long.
    Undecided,
}

#[cfg(test)]
mod tests;
