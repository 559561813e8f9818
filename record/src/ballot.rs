//! Ballots: the total order of a record's versions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Number of a committed topology. A partition's epoch is the number of the
/// topology that last changed that partition.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Hybrid time: Unix milliseconds in the upper 48 bits, a counter in the lower 16.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct HybridTime(pub u64);

impl HybridTime {
    const COUNTER_BITS: u32 = 16;

    /// The first hybrid time of a millisecond. Milliseconds beyond 48 bits (the
    /// year 10889) saturate.
    #[must_use]
    pub const fn from_unix_ms(unix_ms: u64) -> Self {
        const MAX_MS: u64 = u64::MAX >> HybridTime::COUNTER_BITS;
        let bounded = if unix_ms > MAX_MS { MAX_MS } else { unix_ms };
        Self(bounded << Self::COUNTER_BITS)
    }

    /// The Unix millisecond of this time.
    #[must_use]
    pub const fn unix_ms(self) -> u64 {
        self.0 >> Self::COUNTER_BITS
    }
}

/// Short number of a member node, unique among the members of one topology.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct NodeSlot(pub u16);

/// The version of a record: (epoch, hybrid time, node slot), in that order of
/// weight. Two different writes of one key never carry the same ballot.
///
/// Its text form `epoch.time.slot` (decimal) is what users see as a version.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Ballot {
    /// Epoch of the partition when the ballot was issued.
    pub epoch: Epoch,
    /// Hybrid time of the issuing node.
    pub time: HybridTime,
    /// The issuing node.
    pub slot: NodeSlot,
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch.0, self.time.0, self.slot.0)
    }
}

/// Text that is not a version. Pass a version as `get` or `put` printed it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version: use three decimal numbers, epoch.time.slot")]
pub struct ParseBallotError(String);

impl FromStr for Ballot {
    type Err = ParseBallotError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split('.');
            let ballot = Self {
                epoch: Epoch(parts.next()?.parse().ok()?),
                time: HybridTime(parts.next()?.parse().ok()?),
                slot: NodeSlot(parts.next()?.parse().ok()?),
            };
            parts.next().is_none().then_some(ballot)
        };
        parse().ok_or_else(|| ParseBallotError(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ballot(epoch: u64, time: u64, slot: u16) -> Ballot {
        Ballot {
            epoch: Epoch(epoch),
            time: HybridTime(time),
            slot: NodeSlot(slot),
        }
    }

    #[test]
    fn epoch_outweighs_time_outweighs_slot() {
        assert!(ballot(2, 0, 0) > ballot(1, u64::MAX, u16::MAX));
        assert!(ballot(1, 2, 0) > ballot(1, 1, u16::MAX));
        assert!(ballot(1, 1, 2) > ballot(1, 1, 1));
    }

    #[test]
    fn text_that_is_not_a_version_is_refused() {
        for text in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.2.-3", "1.2.65536"] {
            assert!(text.parse::<Ballot>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn hybrid_time_saturates_instead_of_wrapping() {
        assert!(HybridTime::from_unix_ms(u64::MAX) > HybridTime::from_unix_ms(1 << 47));
    }

    proptest! {
        #[test]
        fn a_version_survives_its_text_form(epoch: u64, time: u64, slot: u16) {
            let ballot = ballot(epoch, time, slot);
            prop_assert_eq!(ballot.to_string().parse(), Ok(ballot));
        }
    }
}
