//! Arithmetic modulo a random prime of 54 bits.
//!
//! 54 bits, because 256 times a hash below 4q then fits 64 bits, so a step of the hash needs only
//! one reduction, which may be lazy. Reductions multiply by a reciprocal (Barrett 1986).

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "quotients fit 64 bits, and of products the low half is wanted"
)]

use std::ops::Range;

use crate::SeedStream;
use crate::hash::prime::random_prime;

const PRIMES: Range<u64> = 1 << 53..1 << 54;
/// Used if drawing a prime fails (see [`random_prime`]): the largest prime below 2^54.
const FALLBACK: u64 = (1 << 54) - 33;
/// A lower bound on the number of primes in [`PRIMES`]: 3x / (5 ln 2x) for x = 2^53.
const FEWEST_PRIMES: f64 = 1.44e14;

/// A prime q between 2^53 and 2^54, and its reciprocals. Values are below q.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modulus {
    prime: u64,
    /// 2^117 / q, rounded down.
    reciprocal: u64,
    /// 2^108 / q, rounded down.
    wide_reciprocal: u64,
}

impl Modulus {
    /// A prime drawn uniformly from the seed. About 100 us.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let prime = random_prime(&mut SeedStream::new(seed), &PRIMES);
        Self::of(prime.unwrap_or(FALLBACK))
    }

    /// `prime` must be in [`PRIMES`].
    const fn of(prime: u64) -> Self {
        Self {
            prime,
            reciprocal: ((1_u128 << 117) / prime as u128) as u64,
            wide_reciprocal: ((1_u128 << 108) / prime as u128) as u64,
        }
    }

    /// q.
    #[must_use]
    pub const fn prime(&self) -> u64 {
        self.prime
    }

    /// An upper bound of the probability that two given strings of `len` bytes have the same hash.
    #[must_use]
    pub fn collision_bound(len: usize) -> f64 {
        (8.0 * len as f64 / 53.0 / FEWEST_PRIMES).min(1.0)
    }

    /// `x` modulo q, or that plus q.
    #[inline]
    pub(crate) const fn reduce_lazily(&self, x: u64) -> u64 {
        // The quotient is exact or one too small: 2^64 / 2^117 < 1/q.
        let quotient = ((x as u128 * self.reciprocal as u128) >> 117) as u64;
        x.wrapping_sub(quotient.wrapping_mul(self.prime))
    }

    /// A multiple of q that is at most 256 `x` and at least that less 2q, for `x` below 4q.
    #[inline]
    pub(super) const fn multiple_below_256_times(&self, x: u64) -> u64 {
        let quotient = ((x as u128 * self.reciprocal as u128) >> 109) as u64;
        quotient.wrapping_mul(self.prime)
    }

    /// Reduces a value below 4q modulo q. Has no branches, which random values would make
    /// unpredictable.
    #[inline]
    pub(super) fn canonical_of_four(&self, x: u64) -> u64 {
        let below_twice = x.min(x.wrapping_sub(2 * self.prime));
        below_twice.min(below_twice.wrapping_sub(self.prime))
    }

    /// Reduces a value below 2q modulo q.
    #[inline]
    pub(crate) const fn canonical(&self, x: u64) -> u64 {
        if x >= self.prime { x - self.prime } else { x }
    }

    /// `x` modulo q. About 2 ns.
    #[inline]
    #[must_use]
    pub const fn reduce(&self, x: u64) -> u64 {
        self.canonical(self.reduce_lazily(x))
    }

    /// a + b.
    #[inline]
    #[must_use]
    pub const fn add(&self, a: u64, b: u64) -> u64 {
        self.canonical(a + b)
    }

    /// a - b.
    #[inline]
    #[must_use]
    pub const fn subtract(&self, a: u64, b: u64) -> u64 {
        self.canonical(a + self.prime - b)
    }

    /// a b. About 3 ns.
    #[inline]
    #[must_use]
    pub const fn multiply(&self, a: u64, b: u64) -> u64 {
        let product = a as u128 * b as u128;
        // Exact or up to two too small (Barrett), for a product below 2^108.
        let quotient = (((product >> 53) * self.wide_reciprocal as u128) >> 55) as u64;
        let rest = (product as u64).wrapping_sub(quotient.wrapping_mul(self.prime));
        self.canonical(self.canonical(rest))
    }

    /// base^exponent. About 6 ns per bit of the exponent.
    #[must_use]
    pub const fn power(&self, mut base: u64, mut exponent: u64) -> u64 {
        let mut result = 1;
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = self.multiply(result, base);
            }
            base = self.multiply(base, base);
            exponent >>= 1;
        }
        result
    }

    /// 256^len: the weight that `len` further bytes give to a hash.
    #[must_use]
    pub const fn shift(&self, len: u64) -> u64 {
        self.power(256, len)
    }

    /// The hash of a string followed by `byte`, from the hash of the string.
    #[inline]
    #[must_use]
    pub const fn push(&self, hash: u64, byte: u8) -> u64 {
        self.reduce(hash << 8 | byte as u64)
    }

    /// The hash of `bytes`. About 4 ns per byte.
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let lazily = |hash, &byte| self.reduce_lazily((hash << 8) + u64::from(byte));
        self.canonical(bytes.iter().fold(0, lazily))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::prime::is_prime;

    fn extremes() -> [Modulus; 3] {
        [
            Modulus::of((1 << 53) + 5),
            Modulus::of(FALLBACK),
            Modulus::random(1),
        ]
    }

    #[test]
    fn moduli_are_primes_of_54_bits_and_differ_by_seed() {
        for modulus in extremes() {
            assert!(
                is_prime(modulus.prime) && PRIMES.contains(&modulus.prime),
                "{modulus:?}"
            );
        }
        assert_ne!(Modulus::random(1), Modulus::random(2));
        assert_eq!(
            Modulus::random(1).prime(),
            GOLDEN,
            "chunk boundaries must not change"
        );
    }
    const GOLDEN: u64 = 9_796_750_163_921_467;

    #[test]
    fn the_largest_operands_are_reduced() {
        for modulus in extremes() {
            let q = modulus.prime;
            for x in [
                0,
                1,
                q - 1,
                q,
                q + 1,
                2 * q - 1,
                2 * q,
                u64::MAX - 1,
                u64::MAX,
            ] {
                assert_eq!(modulus.reduce(x), x % q, "{x} mod {q}");
            }
            assert_eq!(modulus.multiply(q - 1, q - 1), 1, "(-1)(-1)");
            assert_eq!(modulus.power(3, q - 1), 1, "Fermat");
            for x in [0, 1, q - 1, q, 2 * q, 4 * q - 1] {
                let rest = x * 256 - modulus.multiple_below_256_times(x);
                assert!(rest < 2 * q && rest % q == x * 256 % q, "{x} mod {q}");
                assert_eq!(modulus.canonical_of_four(x), x % q);
            }
        }
    }

    proptest! {
        #[test]
        fn arithmetic_agrees_with_division(x: u64, a: u64, b: u64) {
            for modulus in extremes() {
                let q = modulus.prime;
                prop_assert_eq!(modulus.reduce(x), x % q);
                prop_assert!(modulus.reduce_lazily(x) < 2 * q);
                let (a, b) = (a % q, b % q);
                prop_assert_eq!(modulus.add(a, b), (a + b) % q);
                prop_assert_eq!(modulus.subtract(a, b), (a + q - b) % q);
                let product = u128::from(a) * u128::from(b) % u128::from(q);
                prop_assert_eq!(u128::from(modulus.multiply(a, b)), product);
            }
        }

        #[test]
        fn the_hash_is_the_number_to_the_base_256(bytes in prop::collection::vec(any::<u8>(), 0..15)) {
            let number = bytes.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
            let modulus = Modulus::random(4);
            prop_assert_eq!(u128::from(modulus.hash(&bytes)), number % u128::from(modulus.prime));
            let pushed = bytes.iter().fold(0, |hash, &byte| modulus.push(hash, byte));
            prop_assert_eq!(modulus.hash(&bytes), pushed);
        }
    }
}
