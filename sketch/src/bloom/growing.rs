//! A filter for any number of keys.
//!
//! Almeida, Baquero, Preguiça, Hutchison: Scalable Bloom Filters, 2007. A sequence of filters, each
//! for twice as many keys as the one before and at half its rate: δ/2 + δ/4 + … stays below δ. A
//! key is inserted into the last one; a query reads all of them.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, and `as` saturates"
)]

use torc_record::Digest;

use super::{BloomFilter, BloomShape, BloomShapeError, MAX_BITS, MIN_RATE, bits_per_key};

/// A Bloom filter that grows; see the module.
///
/// n keys take log2(n / first) + 1 levels. A lookup reads all of them, with about two probes each.
#[derive(Debug, Clone, PartialEq)]
pub struct GrowingBloom {
    /// New keys go to the last one.
    levels: Vec<Level>,
    rate: f64,
}

#[derive(Debug, Clone, PartialEq)]
struct Level {
    filter: BloomFilter,
    /// The number of keys that it is for, and its rate then.
    capacity: u64,
    rate: f64,
    /// Keys inserted.
    keys: u64,
}

impl Level {
    /// A level for `capacity` keys, or as many as the largest filter can hold.
    fn new(capacity: u64, rate: f64) -> Result<Self, BloomShapeError> {
        let rate = rate.max(MIN_RATE);
        // A filter is up to a tenth larger than the formula gives.
        let most = (f64::from(MAX_BITS) / (1.1 * bits_per_key(rate))) as u64;
        let capacity = capacity.clamp(64, most);
        Ok(Self {
            filter: BloomFilter::new(BloomShape::for_keys(capacity, rate)?),
            capacity,
            rate,
            keys: 0,
        })
    }
}

impl GrowingBloom {
    /// An empty filter whose false positive rate stays at most `rate` for any number of keys up to
    /// 10^9. The first level is for `first` keys, at least 64: the expected number, if known.
    ///
    /// # Errors
    /// [`BloomShapeError::Rate`] unless `rate` is between twice [`MIN_RATE`] and 0.5.
    pub fn new(first: u64, rate: f64) -> Result<Self, BloomShapeError> {
        if !(2.0 * MIN_RATE..=0.5).contains(&rate) {
            return Err(BloomShapeError::Rate { rate });
        }
        Ok(Self {
            levels: vec![Level::new(first, rate / 2.0)?],
            rate,
        })
    }

    /// Inserts a key. Returns true if it certainly was not in the filter before; otherwise nothing
    /// changes, so a repeated key takes space once.
    pub fn insert(&mut self, digest: &Digest) -> bool {
        if self.may_contain(digest) {
            return false;
        }
        self.grow();
        if let Some(last) = self.levels.last_mut() {
            last.filter.insert(digest);
            last.keys += 1;
        }
        true
    }

    /// Adds a level if the last one is full. Its shape is always valid, because sizes are clamped.
    fn grow(&mut self) {
        let next = self.levels.last().filter(|last| last.keys >= last.capacity);
        let next = next.map(|last| Level::new(2 * last.capacity, last.rate / 2.0));
        self.levels.extend(next.and_then(Result::ok));
    }

    /// Whether the key may be in the filter. `false` is certain.
    #[must_use]
    pub fn may_contain(&self, digest: &Digest) -> bool {
        // Starts with the last level, which holds half of the keys.
        let mut levels = self.levels.iter().rev();
        levels.any(|level| level.filter.may_contain(digest))
    }

    /// Adds the keys of another filter, whatever its shape, by adding its levels.
    /// [`GrowingBloom::rate_bound`] becomes the sum of both.
    pub fn merge(&mut self, other: &Self) {
        // Inserted before the last level, which takes new keys.
        let at = self.levels.len().saturating_sub(1);
        let holding = other.levels.iter().filter(|level| level.keys > 0);
        self.levels.splice(at..at, holding.cloned());
    }

    /// The requested rate.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// An upper bound of the false positive rate: the sum over levels of (fraction of set bits)^T.
    /// Exceeds [`GrowingBloom::rate`] only after [`GrowingBloom::merge`]. Takes one pass over the
    /// bits.
    #[must_use]
    pub fn rate_bound(&self) -> f64 {
        self.levels.iter().map(|level| level.filter.rate()).sum()
    }

    /// Keys inserted: those for which [`GrowingBloom::insert`] returned true.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.levels.iter().map(|level| level.keys).sum()
    }

    /// Number of filters in the sequence.
    #[must_use]
    pub const fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let levels = self.levels.iter().map(|level| level.filter.bytes());
        size_of::<Self>() + levels.sum::<usize>()
    }
}
