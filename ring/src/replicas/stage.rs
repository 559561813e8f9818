//! The stages of a partition's move.

use serde::{Deserialize, Serialize};

/// Stage of a partition; the table of quorums is [`super::Config`]'s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// Served by its replicas alone.
    #[default]
    Stable,
    /// Newcomers copy; the old set serves.
    Copying,
    /// Writes go to both sets, reads to the old set.
    WriteBothReadOld,
    /// Writes go to both sets, reads to the new set.
    WriteBothReadNew,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stable => "stable",
            Self::Copying => "copying",
            Self::WriteBothReadOld => "write_both_read_old",
            Self::WriteBothReadNew => "write_both_read_new",
        })
    }
}
