//! Majority by bits, with deletion.
//!
//! The lecture: if a key has more than half of the stream, then each of its bits has the majority
//! among all keys' bits at that position. So it suffices to count, for each position, the keys with
//! a 1 there.
//!
//! The lecture calls at least half a majority, and sets a bit if `c_i >= c / 2`. For two keys with
//! exactly half each, that rule mixes the bits of both, and no rule on bits can name one of them;
//! so here a majority is more than half, and the comparison is strict (`torc-bench theory --only
//! majority`).

use torc_record::{DIGEST_LEN, Digest};

const BITS: usize = 8 * DIGEST_LEN;

/// For each bit of a digest, the number of keys with that bit set; and the number of keys.
///
/// Linear: deletion, merging and subtraction are exact, modulo 2^64 as in [`crate::CountMin`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MajorityBits {
    ones: [i64; BITS],
    total: i64,
}

impl Default for MajorityBits {
    fn default() -> Self {
        Self::new()
    }
}

impl MajorityBits {
    /// The state of an empty stream.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ones: [0; BITS],
            total: 0,
        }
    }

    /// Increments a key's count. About 60 ns.
    pub fn insert(&mut self, digest: &Digest) {
        self.add(digest, 1);
    }

    /// Decrements a key's count.
    pub fn delete(&mut self, digest: &Digest) {
        self.add(digest, -1);
    }

    /// Adds `count` to a key's count.
    pub fn add(&mut self, digest: &Digest, count: i64) {
        for (ones, byte) in self.ones.chunks_exact_mut(8).zip(digest.0) {
            for (place, ones) in ones.iter_mut().enumerate() {
                let mask = -i64::from(byte >> place & 1);
                *ones = ones.wrapping_add(count & mask);
            }
        }
        self.total = self.total.wrapping_add(count);
    }

    /// Adds the other stream's counts.
    pub fn merge(&mut self, other: &Self) {
        self.combine(other, i64::wrapping_add);
    }

    /// Subtracts the other stream's counts: then [`candidate`](Self::candidate) is the majority of
    /// what this stream has in addition.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::wrapping_sub);
    }

    fn combine(&mut self, other: &Self, of: impl Fn(i64, i64) -> i64) {
        for (ones, other) in self.ones.iter_mut().zip(&other.ones) {
            *ones = of(*ones, *other);
        }
        self.total = of(self.total, other.total);
    }

    /// Insertions minus deletions.
    #[must_use]
    pub const fn total(&self) -> i64 {
        self.total
    }

    /// The key with more than half of the stream, if there is one. Without a majority, it may be a
    /// digest that never occurred. `None` for an empty stream.
    #[must_use]
    pub fn candidate(&self) -> Option<Digest> {
        if self.total <= 0 {
            return None;
        }
        let mut digest = [0; DIGEST_LEN];
        for (byte, ones) in digest.iter_mut().zip(self.ones.chunks_exact(8)) {
            for (place, &ones) in ones.iter().enumerate() {
                let is_set = ones > self.total.wrapping_sub(ones);
                *byte |= u8::from(is_set) << place;
            }
        }
        Some(Digest(digest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::digest;

    fn counted(stream: &[u64]) -> MajorityBits {
        let mut bits = MajorityBits::new();
        for &key in stream {
            bits.insert(&digest(key));
        }
        bits
    }

    #[test]
    fn the_lectures_example() {
        // 110, 110, 110, 111.
        let mut bits = MajorityBits::new();
        bits.add(&Digest([0b110; DIGEST_LEN]), 3);
        bits.insert(&Digest([0b111; DIGEST_LEN]));
        assert_eq!(bits.candidate(), Some(Digest([0b110; DIGEST_LEN])));
        assert_eq!(MajorityBits::new().candidate(), None);
    }

    #[test]
    fn counts_beyond_half_of_the_range_do_not_overflow() {
        let mut bits = MajorityBits::new();
        bits.add(&digest(1), i64::MAX);
        assert_eq!(bits.candidate(), Some(digest(1)));
    }

    proptest! {
        #[test]
        fn a_majority_of_what_deletion_leaves_is_named(
            others in prop::collection::vec(1_u64..5, 0..40),
            deleted in prop::collection::vec(5_u64..9, 0..200),
        ) {
            let majority = vec![0; others.len() + 1];
            let mut bits = counted(&[&deleted[..], &others, &majority].concat());
            let mut subtracted = bits.clone();
            for &key in &deleted { bits.delete(&digest(key)); }
            prop_assert_eq!(bits.candidate(), Some(digest(0)));
            subtracted.subtract(&counted(&deleted));
            prop_assert_eq!(&subtracted, &bits);
            subtracted.merge(&counted(&deleted));
            prop_assert_eq!(subtracted, counted(&[&deleted[..], &others, &majority].concat()));
        }
    }
}
