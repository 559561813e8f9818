//! A node's release and the feature levels that it supports; `feature.rs` has the rules.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The feature levels that a release supports, both ends included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// The lowest: usually that of the previous release.
    pub oldest: u32,
    /// The highest.
    pub newest: u32,
}

impl Levels {
    /// The levels of this release. The only place that defines them.
    pub const OURS: Self = Self {
        oldest: 1,
        newest: 1,
    };

    /// Whether a level is among them.
    #[must_use]
    pub const fn contains(self, level: u32) -> bool {
        self.oldest <= level && level <= self.newest
    }

    /// What to do if a level is not among them.
    #[must_use]
    pub fn advice(self, level: u32) -> String {
        if self.newest < level {
            format!("start it with a release that supports level {level}")
        } else {
            format!(
                "first upgrade every member to a release that supports level {}",
                self.oldest
            )
        }
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "level {}", self.oldest)
        } else {
            write!(f, "levels {} to {}", self.oldest, self.newest)
        }
    }
}

/// The release of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Its name, as `kvd --version` prints it.
    pub version: String,
    /// The feature levels that it supports.
    pub levels: Levels,
}

impl Release {
    /// The running release.
    #[must_use]
    pub fn ours() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            levels: Levels::OURS,
        }
    }
}
