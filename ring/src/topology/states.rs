//! The states of members, and the steps of a rotation.

use serde::{Deserialize, Serialize};

/// The state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// It has an id but no ring positions yet.
    Joining,
    /// It has ring positions.
    Active,
    /// It is handing over its partitions and will be removed.
    Leaving,
}

impl std::fmt::Display for MemberState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Joining => "joining",
            Self::Active => "active",
            Self::Leaving => "leaving",
        })
    }
}

/// The step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RotationStep {
    /// Members learn to trust the new authority beside the old one, which still issues
    /// certificates.
    Trust,
    /// The new authority issues certificates; members still trust the old one.
    Issue,
    /// Members trust one authority alone. The rotation is over.
    Finished,
}

impl std::fmt::Display for RotationStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Trust => "trust",
            Self::Issue => "issue",
            Self::Finished => "finished",
        })
    }
}
