//! The versions that a replica stored, as far as its disk still knows them after a start.

use std::collections::VecDeque;

use crate::{Ballot, HybridTime, KeyId, Record};

/// How many versions a disk tells of at most.
const MOST: usize = 32;

/// A version of a key that a replica stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredVersion {
    /// The key.
    pub key: KeyId,
    /// The version.
    pub version: Ballot,
    /// The ballot under which it was stored: the version's own, or a later one under which a
    /// coordinator had it accepted again.
    pub ballot: Ballot,
}

impl From<&Record> for StoredVersion {
    fn from(record: &Record) -> Self {
        Self {
            key: KeyId::of(record),
            version: record.version(),
            ballot: record.ballot,
        }
    }
}

/// The last versions that a replica stored, overwritten ones included: those in the log that its
/// store replays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredVersions {
    /// The replica never stored a version above this time that is not among the last.
    pub forgotten: HybridTime,
    /// The oldest first, at most 32.
    pub last: VecDeque<StoredVersion>,
}

impl StoredVersions {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self::after(HybridTime(u64::MAX));

    /// No version above this time was stored.
    #[must_use]
    pub const fn after(forgotten: HybridTime) -> Self {
        Self {
            forgotten,
            last: VecDeque::new(),
        }
    }

    /// Notes a version that was stored.
    pub fn note(&mut self, stored: StoredVersion) {
        if stored.version.time <= self.forgotten {
            return;
        }
        if self.last.len() >= MOST
            && let Some(oldest) = self.last.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.version.time);
        }
        self.last.push_back(stored);
    }
}
