//! `h(x) = (ax + b) >> s`: two coefficients, a multiplication, strongly universal.
//!
//! Dietzfelbinger (1996): for x with w bits and a result of l bits, with a and b uniform over at
//! least w + l - 1 bits, (h(x), h(y)) is uniform over all pairs for x != y. The hashing essay of D.
//! Lemire gives the form for w = 32 with 64-bit arithmetic, and the reason for it: any subset of
//! the result's bits of a strongly universal function can be used, which does not hold for an
//! almost universal one. a need not be odd; that would be another, weaker family.

use crate::SeedStream;

/// The result would have no bits, or more than a word.
///
/// Nothing was created: request 1 to `most` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash of {bits} bits was asked for, and 1 to {most} are possible")]
pub struct HashBitsError {
    /// The requested number of bits.
    pub bits: u32,
    /// Limit of this family.
    pub most: u32,
}

const fn checked(bits: u32, most: u32) -> Result<u32, HashBitsError> {
    if bits >= 1 && bits <= most {
        Ok(most - bits)
    } else {
        Err(HashBitsError { bits, most })
    }
}

/// Maps 64 bits to 1..=64 bits, strongly universal. About 1.5 ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiplyShift {
    multiplier: u128,
    addend: u128,
    shift: u32,
}

impl MultiplyShift {
    /// A member of the family with results of `bits` bits.
    ///
    /// # Errors
    /// [`HashBitsError`] unless `bits` is 1 to 64.
    pub const fn new(seeds: &mut SeedStream, bits: u32) -> Result<Self, HashBitsError> {
        match checked(bits, 64) {
            Ok(shift) => Ok(Self {
                multiplier: seeds.next_u128(),
                addend: seeds.next_u128(),
                shift,
            }),
            Err(error) => Err(error),
        }
    }

    /// The hash of `x`.
    #[inline]
    #[must_use]
    pub const fn hash(&self, x: u64) -> u64 {
        let sum = self
            .multiplier
            .wrapping_mul(x as u128)
            .wrapping_add(self.addend);
        ((sum >> 64) as u64) >> self.shift
    }
}

/// Maps 32 bits to 1..=32 bits with 64-bit arithmetic, strongly universal. Below 1 ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiplyShift32 {
    multiplier: u64,
    addend: u64,
    shift: u32,
}

impl MultiplyShift32 {
    /// A member of the family with results of `bits` bits.
    ///
    /// # Errors
    /// [`HashBitsError`] unless `bits` is 1 to 32.
    pub const fn new(seeds: &mut SeedStream, bits: u32) -> Result<Self, HashBitsError> {
        match checked(bits, 32) {
            Ok(shift) => Ok(Self {
                multiplier: seeds.next_u64(),
                addend: seeds.next_u64(),
                shift,
            }),
            Err(error) => Err(error),
        }
    }

    /// The hash of `x`.
    #[inline]
    #[must_use]
    pub const fn hash(&self, x: u32) -> u32 {
        let sum = self
            .multiplier
            .wrapping_mul(x as u64)
            .wrapping_add(self.addend);
        ((sum >> 32) as u32) >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Difficult pairs: neighbours, one bit apart at either end, multiples.
    const PAIRS: [(u64, u64); 5] = [
        (0, 1),
        (1, 1 << 63),
        (u64::MAX, u64::MAX - 1),
        (0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa),
        (3, 3 << 32),
    ];
    const MEMBERS: u32 = 64_000;

    /// Chi-square of a table of 64 equally likely cells, 63 degrees of freedom: above 136 with
    /// probability below 2.5e-7 (Wilson-Hilferty).
    fn assert_uniform(cells: &[u32; 64], of: &str) {
        let expected = f64::from(MEMBERS) / 64.0;
        let chi_square: f64 = cells
            .iter()
            .map(|&n| (f64::from(n) - expected).powi(2) / expected)
            .sum();
        assert!(chi_square < 136.0, "chi-square {chi_square} for {of}");
    }

    #[test]
    fn the_hashes_of_two_values_are_uniform_over_pairs() {
        for (x, y) in PAIRS {
            let mut seeds = SeedStream::new(x ^ y.rotate_left(7));
            let mut cells = [0; 64];
            for _ in 0..MEMBERS {
                let hash = MultiplyShift::new(&mut seeds, 3).unwrap();
                cells[(hash.hash(x) << 3 | hash.hash(y)) as usize] += 1;
            }
            assert_uniform(&cells, &format!("{x:x}, {y:x}"));
        }
    }

    #[test]
    fn of_a_32_bit_hash_both_halves_are_uniform_over_pairs() {
        for shift in [13_u32, 29] {
            // The essay's example where another family fails: only the top bit of 2^31 is set.
            let (x, y) = (1_u32 << 31, 1);
            let mut seeds = SeedStream::new(u64::from(shift));
            let mut cells = [0; 64];
            for _ in 0..MEMBERS {
                let hash = MultiplyShift32::new(&mut seeds, 32).unwrap();
                let part = |x| hash.hash(x) >> shift & 7;
                cells[(part(x) << 3 | part(y)) as usize] += 1;
            }
            assert_uniform(&cells, &format!("bits from {shift} on"));
        }
    }

    #[test]
    fn golden_hashes_do_not_change() {
        let hash = MultiplyShift::new(&mut SeedStream::new(7), 16).unwrap();
        // (a x + b mod 2^128) >> 112 with Python integers, a and b from SplitMix64 of the seed 7.
        assert_eq!(
            [0, 1, u64::MAX].map(|x| hash.hash(x)),
            [59_032, 19_044, 34_584]
        );
    }

    #[test]
    fn a_result_has_at_least_one_bit_and_at_most_a_word() {
        let mut seeds = SeedStream::new(0);
        assert!(MultiplyShift::new(&mut seeds, 0).is_err());
        assert!(MultiplyShift::new(&mut seeds, 65).is_err());
        assert!(MultiplyShift32::new(&mut seeds, 33).is_err());
        assert!(MultiplyShift::new(&mut seeds, 1).unwrap().hash(u64::MAX) < 2);
    }
}
