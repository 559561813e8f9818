//! Feature levels: which releases work beside each other.
//!
//! A release works at a range of levels, and the cluster is at one that all members work at. A node
//! whose range lacks it is refused by name. The level rises by itself once every member works at
//! a higher one, and never goes down: what a level allows may be on disks from then on. Whoever
//! adds what an earlier release cannot read or answer, a command, a stored form or a message,
//! gives it the next level and uses it only from that level on.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::stored::Stored;
use super::{NewMember, Topology, TopologyError};

/// The feature levels that a release works at, both ends included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// The lowest: that of the release before, as a rule.
    pub oldest: u32,
    /// The highest.
    pub newest: u32,
}

impl Levels {
    /// Those of this release. The only place that names them.
    pub const OURS: Self = Self {
        oldest: 1,
        newest: 1,
    };

    /// Whether a level is among them.
    #[must_use]
    pub const fn contains(self, level: u32) -> bool {
        self.oldest <= level && level <= self.newest
    }

    /// What to do where a level is not among them.
    #[must_use]
    pub fn advice(self, level: u32) -> String {
        if self.newest < level {
            format!("start it with a release that works at level {level}")
        } else {
            format!(
                "upgrade every member to a release that works at level {} first",
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

/// What a node runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Its name, as `kvd --version` prints it.
    pub version: String,
    /// The feature levels it works at.
    pub levels: Levels,
}

impl Release {
    const MAX_VERSION_LEN: usize = 64;

    /// This one.
    #[must_use]
    pub fn ours() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            levels: Levels::OURS,
        }
    }

    /// Whether a node that runs this can be in a cluster at this level; `who` names the node.
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
    /// The level that every member works at.
    #[must_use]
    pub fn feature_level(&self) -> u32 {
        self.stored.feature_level
    }

    /// Raises the level to the highest that every member works at.
    pub(super) fn raise_level(&mut self) {
        let level = self.stored.highest_level();
        if level > self.stored.feature_level {
            self.stored.feature_level = level;
            self.advance_epoch();
        }
    }
}

impl Stored {
    /// The highest level that every member works at, if there is one.
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
