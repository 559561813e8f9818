//! Sums of versions, to compare two replicas of a partition.

use crate::{Ballot, KeyId};

/// A 128-bit hash of a key's digest, its namespace and its version. Sums of it, modulo 2^128, are
/// equal for equal sets of versions, and for others with probability 2^-128: digests are keyed, so
/// an outsider cannot construct collisions. A ballot names one write, so the value need not be
/// read.
///
/// Nodes exchange it and slices contain it, so it must never change. About 20 ns.
#[must_use]
pub fn entry_sum(key: KeyId, ballot: Ballot) -> u128 {
    let slot = u64::from(ballot.slot.0) | u64::from(key.namespace.0) << 16;
    let words = [
        key.digest.high(),
        key.digest.low(),
        ballot.epoch.0,
        ballot.time.0,
        slot,
    ];
    let half = |seed: u64| {
        words.iter().fold(
            seed,
            |state, word| mix(state ^ mix(word.wrapping_add(seed))),
        )
    };
    let high = half(0x9e37_79b9_7f4a_7c15);
    let low = half(0xd1b5_4a32_d192_ed03);
    u128::from(high) << 64 | u128::from(low)
}

/// The sum of a page's entries, in ring order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageSum {
    /// Entries.
    pub count: u64,
    /// Their sum, see [`entry_sum`].
    pub sum: u128,
    last: Option<KeyId>,
}

impl PageSum {
    /// A sum from elsewhere.
    #[must_use]
    pub const fn of(count: u64, sum: u128) -> Self {
        Self {
            count,
            sum,
            last: None,
        }
    }

    /// Adds an entry. Refuses an entry with the digest and namespace of the previous one, because a
    /// sum does not show which of two such keys has which version.
    #[must_use]
    pub fn add(&mut self, key: KeyId, ballot: Ballot) -> bool {
        if self.last == Some(key) {
            return false;
        }
        self.last = Some(key);
        self.count += 1;
        self.sum = self.sum.wrapping_add(entry_sum(key, ballot));
        true
    }
}

/// The finalizer of `SplitMix64` (Steele, Lea, Flood 2014).
const fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Digest, Epoch, HybridTime, NamespaceId, NodeSlot};

    /// Computed by a second, Python implementation.
    #[test]
    fn the_sum_of_an_entry_does_not_change() {
        let ballot = Ballot {
            epoch: Epoch(3),
            time: HybridTime(0x0102_0304_0506_0708),
            slot: NodeSlot(5),
        };
        let of = |namespace| {
            let digest = Digest([0xd0; 16]);
            entry_sum(KeyId { digest, namespace }, ballot)
        };
        assert_eq!(of(NamespaceId(1)), GOLDEN);
        assert_ne!(of(NamespaceId(2)), GOLDEN);
    }

    const GOLDEN: u128 = 0xe655_7dee_99f3_88a9_be4f_3017_8968_9ad9;
}
