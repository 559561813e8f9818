//! Linearizability of one register, checked twice by unrelated algorithms.

mod configurations;
mod wing_gong;

pub use configurations::check_by_configurations;
pub use wing_gong::check;

/// Most operations of one key.
pub const MAX_OPERATIONS: usize = 128;

/// What a checker found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains everything.
    Linearizable,
    /// There is none.
    Violation,
    /// The search was too long, or the history is.
    Undecided,
}

#[cfg(test)]
mod tests;
