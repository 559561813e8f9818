//! Many probes from two hashes: `g_i = h1 + i h2 mod m`.
//!
//! Kirsch and Mitzenmacher (Less hashing, same performance, 2006): a Bloom filter with these probes
//! has asymptotically the same false positive rate as one with independent probes. h1 and h2 must
//! be independent. D. Lemire's hashing essay shows that two halves of a merely good 64-bit hash
//! need not be; two parts of a keyed BLAKE3 are.

use torc_record::Digest;

/// The two hashes of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoubleHash {
    first: u32,
    second: u32,
}

impl DoubleHash {
    /// From two independent hashes of 32 bits.
    #[must_use]
    pub const fn new(first: u32, second: u32) -> Self {
        Self { first, second }
    }

    /// From the last 64 bits of a digest, which do not contain the token: keys of one partition
    /// share the first bits.
    #[must_use]
    pub fn of(digest: &Digest) -> Self {
        let low = digest.low();
        Self::new((low >> 32) as u32, (low & 0xffff_ffff) as u32)
    }

    /// The first `count` probes among `positions`; none if there are no positions. Below 1 ns per
    /// probe.
    #[must_use]
    pub const fn probes(&self, positions: u32, count: u32) -> Probes {
        Probes {
            next: scale(self.first, positions),
            step: scale(self.second, positions),
            positions,
            left: if positions == 0 { 0 } else { count },
        }
    }
}

/// Maps 32 uniform bits to `0..positions` without a division.
const fn scale(hash: u32, positions: u32) -> u32 {
    ((hash as u64 * positions as u64) >> 32) as u32
}

/// Positions of one key, from [`DoubleHash::probes`].
#[derive(Debug, Clone)]
pub struct Probes {
    next: u32,
    step: u32,
    positions: u32,
    left: u32,
}

impl Iterator for Probes {
    type Item = u32;

    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is less than `positions`"
    )]
    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let probe = self.next;
        // Both summands are less than `positions`, so one subtraction gives the remainder.
        let sum = u64::from(probe) + u64::from(self.step);
        let positions = u64::from(self.positions);
        self.next = (if sum >= positions {
            sum - positions
        } else {
            sum
        }) as u32;
        Some(probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SeedStream, bloom};

    #[test]
    fn probes_are_the_first_hash_plus_multiples_of_the_second() {
        let hash = DoubleHash::new(3 << 28, 9 << 28);
        let probes: Vec<u32> = hash.probes(16, 5).collect();
        assert_eq!(probes, [3, 12, 5, 14, 7]);
        assert_eq!(hash.probes(0, 5).count(), 0);
        let widest = DoubleHash::new(u32::MAX, u32::MAX).probes(u32::MAX, 3);
        assert_eq!(
            widest.collect::<Vec<_>>(),
            [u32::MAX - 1, u32::MAX - 2, u32::MAX - 3]
        );
    }

    /// A filter of 2,000 keys with 10 bits and 7 probes per key has a false positive rate of 0.82 %
    /// with independent probes. Of 200,000 other keys, 1,638 are expected to pass, with a standard
    /// deviation of 40; the rate of this single filter varies about as much. A tenth more is 4
    /// deviations of both together: probability about 1e-4, if the seeds were not fixed.
    #[test]
    fn a_bloom_filter_errs_as_rarely_as_with_independent_probes() {
        let mut random = SeedStream::new(9);
        let mut drawn = || DoubleHash::new(random.next_u64() as u32, random.next_u64() as u32);
        let (bits, probes) = (20_000, bloom::best_probes(10.0));
        let mut filter = vec![false; bits as usize];
        for _ in 0..2_000 {
            drawn()
                .probes(bits, probes)
                .for_each(|bit| filter[bit as usize] = true);
        }
        let is_in = |hash: DoubleHash| hash.probes(bits, probes).all(|bit| filter[bit as usize]);
        let let_in = (0..200_000).filter(|_| is_in(drawn())).count();
        let independent = 200_000.0 * bloom::classic_rate(2_000, bits.into(), probes);
        assert!(
            (let_in as f64) < 1.1 * independent,
            "{let_in}, not {independent:.0}"
        );
    }
}
