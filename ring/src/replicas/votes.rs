//! Sets of a partition's members, as bits.

/// Most members a partition may have while it moves: five old and five new.
pub const MAX_MEMBERS: usize = 10;

/// A set of members by their index in [`super::Config::members`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Votes(u16);

/// Bits beyond [`MAX_MEMBERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bits:#x} is not a set of at most {MAX_MEMBERS} members")]
pub struct VotesError {
    /// The bits found.
    pub bits: u16,
}

impl TryFrom<u16> for Votes {
    type Error = VotesError;

    fn try_from(bits: u16) -> Result<Self, VotesError> {
        if bits >> MAX_MEMBERS == 0 {
            return Ok(Self(bits));
        }
        Err(VotesError { bits })
    }
}

impl From<Votes> for u16 {
    fn from(votes: Votes) -> Self {
        votes.0
    }
}

impl Votes {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// One member; empty for an index beyond [`MAX_MEMBERS`].
    #[must_use]
    pub const fn one(index: usize) -> Self {
        if index < MAX_MEMBERS {
            Self(1 << index)
        } else {
            Self(0)
        }
    }

    /// The first `count` members.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        if count < MAX_MEMBERS {
            Self((1 << count) - 1)
        } else {
            Self((1 << MAX_MEMBERS) - 1)
        }
    }

    /// Adds a member.
    pub const fn insert(&mut self, index: usize) {
        self.0 |= Self::one(index).0;
    }

    /// Whether a member is in the set.
    #[must_use]
    pub const fn contains(self, index: usize) -> bool {
        self.0 & Self::one(index).0 != 0
    }

    /// The number of members.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members of both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The members of this set alone.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether this set contains all of `other`.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether this set has more than half of `set`, not counting members in `excluded`.
    #[must_use]
    pub const fn is_majority_of(self, set: Self, excluded: Self) -> bool {
        self.intersection(set).without(excluded).count() > set.count() / 2
    }

    /// Indexes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_MEMBERS).filter(move |index| self.contains(*index))
    }
}
