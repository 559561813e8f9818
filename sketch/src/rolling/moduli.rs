//! Several primes at once: a collision must occur under each of them.
//!
//! The lecture: "consider several hashes, of different q, to raise the probability of success". If
//! k primes are drawn independently, all divide the difference of two given strings with the k-th
//! power of the probability for one: 1.1e-15 n becomes 1.3e-30 n² with two.

use super::Modulus;
use crate::SeedStream;

/// Limit on the primes: two already make chance negligible.
pub const MAX_MODULI: usize = 8;

/// Independently drawn primes, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moduli {
    first: Modulus,
    others: Vec<Modulus>,
}

/// No primes were requested, or too many. Nothing was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{count} primes were asked for, 1 to {MAX_MODULI} are possible")]
pub struct ModuliError {
    /// The requested number.
    pub count: usize,
}

impl Moduli {
    /// `count` primes from the seed. About 100 us each.
    ///
    /// # Errors
    /// [`ModuliError`] for none or more than [`MAX_MODULI`].
    pub fn random(seed: u64, count: usize) -> Result<Self, ModuliError> {
        if count == 0 || count > MAX_MODULI {
            return Err(ModuliError { count });
        }
        let mut seeds = SeedStream::new(seed);
        let mut draw = || Modulus::random(seeds.next_u64());
        Ok(Self {
            first: draw(),
            others: (1..count).map(|_| draw()).collect(),
        })
    }

    /// The first prime.
    #[must_use]
    pub const fn first(&self) -> &Modulus {
        &self.first
    }

    /// Number of primes.
    #[must_use]
    pub const fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// The hashes of `bytes` under each prime. About 4 ns per byte and prime.
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> Vec<u64> {
        let all = std::iter::once(&self.first).chain(&self.others);
        all.map(|modulus| modulus.hash(bytes)).collect()
    }

    /// Whether the hashes of `bytes` equal `others` under all primes but the first.
    pub(super) fn others_agree(&self, bytes: &[u8], others: &[u64]) -> bool {
        let mut pairs = self.others.iter().zip(others);
        pairs.all(|(modulus, hash)| modulus.hash(bytes) == *hash)
    }

    /// An upper bound of the probability that two given strings of `len` bytes have the same
    /// hashes.
    #[must_use]
    pub fn collision_bound(&self, len: usize) -> f64 {
        Modulus::collision_bound(len).powi(i32::try_from(self.count()).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_drawn_independently_and_bound_together() {
        let moduli = Moduli::random(1, 3).unwrap();
        let hashes = moduli.hash(b"a string of many more bytes than a prime has");
        assert_eq!(hashes.len(), 3);
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
        assert_eq!(
            hashes[0],
            moduli
                .first()
                .hash(b"a string of many more bytes than a prime has")
        );
        let (one, three) = (
            Modulus::collision_bound(1_000),
            moduli.collision_bound(1_000),
        );
        assert!((three / one.powi(3) - 1.0).abs() < 1e-9);
        for count in [0, 9] {
            assert_eq!(Moduli::random(1, count), Err(ModuliError { count }));
        }
    }

    /// q divides the difference of 0 and q, so these strings collide under the first prime by
    /// design.
    #[test]
    fn a_collision_under_one_prime_is_seen_by_the_next() {
        let moduli = Moduli::random(5, 2).unwrap();
        let (zero, prime) = ([0; 8], moduli.first().prime().to_be_bytes());
        let (a, b) = (moduli.hash(&zero), moduli.hash(&prime));
        assert_eq!(a[0], b[0], "the first prime cannot tell");
        assert_ne!(a[1], b[1]);
    }
}
