//! `h(x) = sum of a_i x_i mod m`: the digits of x to the base m, each times a random coefficient.
//!
//! The lecture's universal hashing (S. Jiang, Hash methods, 2023, "Universal Hashing"; Carter and
//! Wegman 1979): m is a prime, with one random coefficient per digit of 128 bits. For x != y some
//! digit differs, its difference has an inverse, and exactly one of the m values of its coefficient
//! makes the hashes collide: probability 1/m. h(x) and h(y) need not be independent (0 always
//! hashes to 0), so this family is universal, but not strongly universal.
//!
//! Slower than [`MultiplyShift`](crate::hash::MultiplyShift), because digits take divisions. It is the family with which
//! the theorems are proved, for any m and for all 128 bits of a digest.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a remainder is less than the prime, a u64"
)]

use crate::SeedStream;
use crate::hash::prime::next_prime;

/// More values than this family supports. Nothing was created: request at most 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash to {values} values was asked for, and at most 2^32 are possible")]
pub struct ModulusTooLarge {
    /// The requested number of values.
    pub values: u64,
}

/// Maps 128 bits to `0..m`, universal. About 10 ns per digit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigitHash {
    prime: u64,
    coefficients: Vec<u64>,
}

impl DigitHash {
    /// A member of the family with the smallest prime number of values that is at least `values`.
    ///
    /// # Errors
    /// [`ModulusTooLarge`] above 2^32.
    pub fn new(seeds: &mut SeedStream, values: u64) -> Result<Self, ModulusTooLarge> {
        let error = ModulusTooLarge { values };
        if values > 1 << 32 {
            return Err(error);
        }
        let prime = next_prime(values).ok_or(error)?;
        let coefficients = digits(u128::MAX, prime)
            .map(|_| seeds.below(prime))
            .collect();
        Ok(Self {
            prime,
            coefficients,
        })
    }

    /// m, the number of values.
    #[must_use]
    pub const fn values(&self) -> u64 {
        self.prime
    }

    /// The hash of `x`, less than [`DigitHash::values`].
    #[must_use]
    pub fn hash(&self, x: u128) -> u64 {
        let terms = digits(x, self.prime).zip(&self.coefficients);
        // 128 terms, each less than 2^66.
        let sum: u128 = terms
            .map(|(digit, &a)| u128::from(digit) * u128::from(a))
            .sum();
        (sum % u128::from(self.prime)) as u64
    }
}

/// The digits of `x`, last one first.
fn digits(mut x: u128, base: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let digit = x % u128::from(base);
        let more = x > 0;
        x /= u128::from(base);
        more.then_some(digit as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pair collides with probability exactly 1/m: at m = 101, 297 of 30,000 members are
    /// expected, with a standard deviation of 17; outside 5.5 deviations with probability below
    /// 1e-7 per pair.
    #[test]
    fn two_values_collide_in_one_of_m_members() {
        let pairs = [
            (0, 1),
            (1, 1 << 127),
            (u128::MAX, u128::MAX - 101),
            (7, 7 + 101 * 101),
        ];
        for (x, y) in pairs {
            let mut seeds = SeedStream::new(5);
            let members = (0..30_000).map(|_| DigitHash::new(&mut seeds, 98).unwrap());
            let collisions = members.filter(|hash| hash.hash(x) == hash.hash(y)).count();
            assert!(
                (203..=391).contains(&collisions),
                "{collisions} for {x:x}, {y:x}"
            );
        }
    }

    #[test]
    fn every_digit_of_128_bits_has_a_coefficient() {
        for (values, coefficients) in [(2, 128), (3, 81), (1 << 32, 4), (65_521, 9)] {
            let hash = DigitHash::new(&mut SeedStream::new(1), values).unwrap();
            assert_eq!(
                hash.coefficients.len(),
                coefficients,
                "base {}",
                hash.values()
            );
            assert!(hash.hash(u128::MAX) < hash.values());
        }
        assert_eq!(
            DigitHash::new(&mut SeedStream::new(1), 0).unwrap().values(),
            2
        );
        assert!(DigitHash::new(&mut SeedStream::new(1), (1 << 32) + 1).is_err());
    }

    #[test]
    fn the_sum_is_of_digits_times_coefficients() {
        let hash = DigitHash {
            prime: 7,
            coefficients: vec![3, 5, 1],
        };
        // 2 + 4 * 7 + 6 * 49
        assert_eq!(hash.hash(324), (2 * 3 + 4 * 5 + 6) % 7);
    }
}
