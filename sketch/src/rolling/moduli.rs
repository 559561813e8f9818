//! Several primes at once: a collision must happen under each of them.
//!
//! The lecture: "consider several hashes, of different q, to raise the probability of success". Of k primes drawn independently, all divide
//! the difference of two given strings with the k-th power of the probability that one does: 1.1e-15 n becomes 1.3e-30 n² with two.

use super::Modulus;
use crate::SeedStream;

/// Most primes: with two, chance is out of the question already.
pub const MAX_MODULI: usize = 8;

/// Primes drawn independently of each other, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moduli {
    first: Modulus,
    others: Vec<Modulus>,
}

/// None or too many primes were asked for. Nothing was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{count} primes were asked for, 1 to {MAX_MODULI} are possible")]
pub struct ModuliError {
    /// Asked for.
    pub count: usize,
}

impl Moduli {
    /// `count` primes, by the seed. About 100 us each.
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

    /// How many primes.
    #[must_use]
    pub const fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// The hashes of `bytes` under each prime. About 4 ns a byte and prime.
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> Vec<u64> {
        let all = std::iter::once(&self.first).chain(&self.others);
        all.map(|modulus| modulus.hash(bytes)).collect()
    }

    /// Whether `bytes` have the hashes `others` under all primes but the first.
    pub(super) fn others_agree(&self, bytes: &[u8], others: &[u64]) -> bool {
        let mut pairs = self.others.iter().zip(others);
        pairs.all(|(modulus, hash)| modulus.hash(bytes) == *hash)
    }

    /// What bounds the probability that two given strings of `len` bytes have the same hashes.
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

    /// q divides the difference of 0 and q: two strings that collide under the first prime by design.
    #[test]
    fn a_collision_under_one_prime_is_seen_by_the_next() {
        let moduli = Moduli::random(5, 2).unwrap();
        let (zero, prime) = ([0; 8], moduli.first().prime().to_be_bytes());
        let (a, b) = (moduli.hash(&zero), moduli.hash(&prime));
        assert_eq!(a[0], b[0], "the first prime cannot tell");
        assert_ne!(a[1], b[1]);
    }
}
