//! Primes: a test, the next prime, a random prime.
//!
//! Miller-Rabin with the first twelve primes as bases decides every 64-bit number (Sorenson and
//! Webster 2015: no composite below 3.3e24 passes all of them), so only the choice of a prime is
//! random.

use std::ops::Range;

use crate::SeedStream;

const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];

#[expect(
    clippy::cast_possible_truncation,
    reason = "a remainder is less than the modulus"
)]
const fn multiply(a: u64, b: u64, modulus: u64) -> u64 {
    (a as u128 * b as u128 % modulus as u128) as u64
}

fn power(mut base: u64, mut exponent: u64, modulus: u64) -> u64 {
    let mut result = 1 % modulus;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, base, modulus);
        }
        base = multiply(base, base, modulus);
        exponent >>= 1;
    }
    result
}

/// Whether `n` is prime: exact. About 20 us for a prime of 64 bits.
#[must_use]
pub fn is_prime(n: u64) -> bool {
    if n < 2 {
        return false;
    }
    if let Some(&divisor) = BASES.iter().find(|&&prime| n.is_multiple_of(prime)) {
        return n == divisor;
    }
    let twos = (n - 1).trailing_zeros();
    let odd = (n - 1) >> twos;
    BASES.iter().all(|&base| !is_witness(base, odd, twos, n))
}

/// Whether `base` shows that `n = odd * 2^twos + 1` is composite.
fn is_witness(base: u64, odd: u64, twos: u32, n: u64) -> bool {
    let mut x = power(base, odd, n);
    if x == 1 {
        return false;
    }
    for _ in 0..twos {
        if x == n - 1 {
            return false;
        }
        x = multiply(x, x, n);
    }
    true
}

/// The smallest prime that is at least `n`; `None` above the last prime below 2^64.
#[must_use]
pub fn next_prime(n: u64) -> Option<u64> {
    (n..=u64::MAX).find(|&candidate| is_prime(candidate))
}

/// A uniformly random prime in `range`; `None` if 100,000 draws hit no prime, which has a
/// probability below 1e-900 for a range of at least 2^20 numbers that begins above 2^20.
#[must_use]
pub fn random_prime(seeds: &mut SeedStream, range: &Range<u64>) -> Option<u64> {
    let width = range.end.checked_sub(range.start)?;
    let drawn = (0..100_000).map(|_| range.start + seeds.below(width));
    drawn
        .into_iter()
        .find(|&candidate| candidate < range.end && is_prime(candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_agree_with_trial_division() {
        for n in 0..10_000_u64 {
            let divided = n > 1 && (2..100).filter(|d| *d < n).all(|d| n % d != 0);
            assert_eq!(is_prime(n), divided, "{n}");
        }
    }

    #[test]
    fn numbers_that_fool_weaker_tests_do_not_pass() {
        // Carmichael numbers, and the smallest strong pseudoprimes to the first 4, 9 and 11 primes.
        for composite in [
            561,
            41_041,
            3_215_031_751,
            3_825_123_056_546_413_051,
            u64::MAX,
        ] {
            assert!(!is_prime(composite), "{composite}");
        }
        for prime in [(1 << 61) - 1, 18_446_744_073_709_551_557] {
            assert!(is_prime(prime), "{prime}");
        }
        assert_eq!(
            next_prime(18_446_744_073_709_551_558),
            None,
            "that was the last of 64 bits"
        );
        assert_eq!(next_prime(24), Some(29));
    }

    /// The 21 primes below 75, drawn 21,000 times: chi-square with 20 degrees of freedom, above 65
    /// with probability below 2e-6.
    #[test]
    fn each_prime_of_a_range_is_as_likely() {
        let mut seeds = SeedStream::new(11);
        let mut seen = [0_u32; 75];
        for _ in 0..21_000 {
            seen[random_prime(&mut seeds, &(0..75)).unwrap() as usize] += 1;
        }
        let primes: Vec<u32> = (0..75)
            .filter(|&n| is_prime(n))
            .map(|n| seen[n as usize])
            .collect();
        let chi_square: f64 = primes
            .iter()
            .map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0)
            .sum();
        assert_eq!((primes.len(), primes.iter().sum::<u32>()), (21, 21_000));
        assert!(chi_square < 65.0, "{seen:?}");
        assert_eq!(random_prime(&mut seeds, &(24..29)), None, "there is none");
        assert_eq!(random_prime(&mut seeds, &(5..5)), None);
    }
}
