//! Feature levels: which releases can work together.
//!
//! A release supports a range of levels, and the cluster is at a level that all members support.
//! Nodes that do not support it are refused. The level rises by itself once every member supports a
//! higher one, and never goes down, because data of that level may then be on disk. A command,
//! stored form or message that an earlier release cannot handle gets the next level and is used
//! only from that level on.

use super::stored::Stored;
use super::{NewMember, Release, Topology, TopologyError};

impl Release {
    const MAX_VERSION_LEN: usize = 64;

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
            return Err(TopologyError::setting(
                setting,
                "a range that begins with the oldest",
            ));
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
