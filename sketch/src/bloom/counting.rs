//! A filter with deletion: the operations (i, ±1) of the lecture.
//!
//! Fan, Cao, Almeida, Broder: Summary Cache, 2000. A counter of 4 bits in place of every bit. A
//! counter that reaches 15 stays there, because it no longer knows how many keys it counts: so a
//! key that is still in the set is never lost. At the usual fill, one of the m counters reaches 15
//! with probability 1.4e-15 m.

use torc_record::Digest;

use super::probes::BloomProbes;
use super::{BloomFilter, BloomShape, ShapesDiffer};

/// Counters per word.
const PER_WORD: usize = 16;
const FULL: u64 = 15;
/// The lowest bit of each counter of a word.
const LOWEST: u64 = 0x1111_1111_1111_1111;

/// A Bloom filter with deletion; see the module. Takes 4 bits per counter, four times a
/// [`BloomFilter`].
///
/// A set, or a multiset with up to 14 of each key. Deleting a false positive removes bits of other
/// keys: delete only keys that you know are in the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountingBloom {
    shape: BloomShape,
    words: Vec<u64>,
}

/// The key to delete is certainly not in the filter. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key is not in the filter, so it was not deleted")]
pub struct NotInserted;

impl CountingBloom {
    /// An empty filter.
    #[must_use]
    pub fn new(shape: BloomShape) -> Self {
        Self {
            shape,
            words: vec![0; shape.bits() as usize / PER_WORD],
        }
    }

    /// Counters (as many as a plain filter has bits) and probes.
    #[must_use]
    pub const fn shape(&self) -> BloomShape {
        self.shape
    }

    fn probes(&self, digest: &Digest) -> impl Iterator<Item = (usize, usize)> + use<> {
        let probes = BloomProbes::of(digest, self.shape);
        probes.map(|at| (at as usize / PER_WORD, at as usize % PER_WORD * 4))
    }

    fn counter(&self, (word, shift): (usize, usize)) -> u64 {
        self.words[word] >> shift & FULL
    }

    /// Increments the key's count.
    pub fn insert(&mut self, digest: &Digest) {
        for at in self.probes(digest) {
            if self.counter(at) < FULL {
                self.words[at.0] += 1 << at.1;
            }
        }
    }

    /// Decrements the key's count.
    ///
    /// # Errors
    /// [`NotInserted`]; nothing was changed.
    pub fn delete(&mut self, digest: &Digest) -> Result<(), NotInserted> {
        if !self.may_contain(digest) {
            return Err(NotInserted);
        }
        for at in self.probes(digest) {
            // 0 only if a key hits a counter twice that was incremented once: the key was never
            // inserted.
            if (1..FULL).contains(&self.counter(at)) {
                self.words[at.0] -= 1 << at.1;
            }
        }
        Ok(())
    }

    /// Whether the key may be in the filter. `false` is certain.
    #[must_use]
    pub fn may_contain(&self, digest: &Digest) -> bool {
        self.probes(digest).all(|at| self.counter(at) > 0)
    }

    /// Adds the other filter's keys, each with its count.
    ///
    /// # Errors
    /// [`ShapesDiffer`]; nothing was added.
    pub fn merge(&mut self, other: &Self) -> Result<(), ShapesDiffer> {
        if self.shape != other.shape {
            return Err(ShapesDiffer(self.shape, other.shape));
        }
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            let sum = |shift: usize| (*own >> shift & FULL) + (*other >> shift & FULL);
            let counters = (0..64)
                .step_by(4)
                .map(|shift| sum(shift).min(FULL) << shift);
            *own = counters.fold(0, |word, counter| word | counter);
        }
        Ok(())
    }

    /// The plain filter of the current keys, for sending: a quarter of the size.
    #[must_use]
    pub fn to_filter(&self) -> BloomFilter {
        let words = self.words.chunks_exact(64 / PER_WORD).map(|words| {
            let bits = words.iter().map(|word| non_zero(*word));
            bits.rev().fold(0, |all, bits| all << PER_WORD | bits)
        });
        BloomFilter::of_words(self.shape, words.collect())
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + 8 * self.words.len()
    }
}

/// A bit for each counter of a word that is not 0, the lowest first.
fn non_zero(word: u64) -> u64 {
    let spread = (word | word >> 1 | word >> 2 | word >> 3) & LOWEST;
    (0..PER_WORD).fold(0, |bits, at| bits | (spread >> (4 * at) & 1) << at)
}
