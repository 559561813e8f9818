//! Feature levels: which releases can work together.
//!
//! A release supports a range of levels, and the cluster is at a level that all members support.
//! Nodes that do not support it are refused. The level rises by itself once every member supports a
//! higher one, and never goes down, because data of that level may then be on disk. A command,
//! stored form or message that an earlier release cannot handle gets the next level and is used
//! only from that level on.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::stored::Stored;
use super::{NewMember, Topology, TopologyError};

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
    const MAX_VERSION_LEN: usize = 64;

    /// The running release.
    #[must_use]
    pub fn ours() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            levels: Levels::OURS,
        }
    }

    /// Checks that a node with this release can join a cluster at this level; `who` names the node.
    ///
    /// # Errors
    /// [`TopologyError::OtherLevel`].
    pub fn check_works_at(&self, level: u32, who: String) -> Result<(), TopologyError> {
        if self.levels.contains(level) {
            return Ok(());
        }
        Err(TopologyError::OtherLevel {
            who,
            release: self.clone(),
            level,
        })
    }

    pub(super) fn check(&self) -> Result<(), TopologyError> {
        if self.version.len() > Self::MAX_VERSION_LEN {
            return Err(TopologyError::setting("version", "at most 64 bytes"));
        }
        if self.levels.oldest > self.levels.newest {
            let setting = "feature levels";
            return Err(TopologyError::setting(setting, "the oldest comes first"));
        }
        Ok(())
    }
}

impl NewMember {
    pub(super) fn check_works_at(&self, level: u32) -> Result<(), TopologyError> {
        let who = format!("the node at {}", self.address);
        self.release.check_works_at(level, who)
    }
}

impl Topology {
    /// The level that every member supports.
    #[must_use]
    pub fn feature_level(&self) -> u32 {
        self.stored.feature_level
    }

    /// Raises the level to the highest that every member supports.
    pub(super) fn raise_level(&mut self) {
        let level = self.stored.highest_level();
        if level > self.stored.feature_level {
            self.stored.feature_level = level;
            self.advance_epoch();
        }
    }
}

impl Stored {
    /// The highest level that every member supports, if any.
    pub(super) fn highest_level(&self) -> u32 {
        let members = self.members.values();
        let newest = members.map(|member| member.identity.release.levels.newest);
        newest.min().unwrap_or(self.feature_level)
    }

    pub(super) fn all_work_at_the_level(&self) -> bool {
        let mut members = self.members.values();
        members.all(|member| member.identity.release.levels.contains(self.feature_level))
    }
}
