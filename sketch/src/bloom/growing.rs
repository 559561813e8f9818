//! A filter for as many keys as come.
//!
//! Almeida, Baquero, Preguiça, Hutchison: Scalable Bloom Filters, 2007. Filters in a row, each for twice as many keys as
//! the one before and at half its rate: δ/2 + δ/4 + … stays below δ. A key goes into the last; a question asks all of them.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, and `as` saturates"
)]

use torc_record::Digest;

use super::{BloomFilter, BloomShape, BloomShapeError, MAX_BITS, MIN_RATE, bits_per_key};

/// A Bloom filter that grows; see the module.
///
/// n keys lie in log2(n / first) + 1 levels. A lookup asks them all, about two probes each.
#[derive(Debug, Clone, PartialEq)]
pub struct GrowingBloom {
    /// The last takes keys.
    levels: Vec<Level>,
    rate: f64,
}

#[derive(Debug, Clone, PartialEq)]
struct Level {
    filter: BloomFilter,
    /// The keys that it is made for, and the rate then.
    capacity: u64,
    rate: f64,
    /// Keys that were put in.
    keys: u64,
}

impl Level {
    /// A level for `capacity` keys, or as many as the largest filter holds.
    fn new(capacity: u64, rate: f64) -> Result<Self, BloomShapeError> {
        let rate = rate.max(MIN_RATE);
        // A filter is up to a tenth larger than by the formula.
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
    /// An empty filter that lets strangers in with probability `rate` at most, however many keys come, up to 10^9. The first level
    /// is for `first` keys, at least 64: what is expected, if anything is.
    ///
    /// # Errors
    /// [`BloomShapeError::Rate`] unless `rate` lies between twice [`MIN_RATE`] and 0.5.
    pub fn new(first: u64, rate: f64) -> Result<Self, BloomShapeError> {
        if !(2.0 * MIN_RATE..=0.5).contains(&rate) {
            return Err(BloomShapeError::Rate { rate });
        }
        Ok(Self {
            levels: vec![Level::new(first, rate / 2.0)?],
            rate,
        })
    }

    /// Puts a key in. True if it certainly was not in before; false if it may have been, and then nothing changes: the same key
    /// takes room once.
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

    /// Adds a level if the last is full. Its shape is possible: sizes are cut to what is.
    fn grow(&mut self) {
        let next = self.levels.last().filter(|last| last.keys >= last.capacity);
        let next = next.map(|last| Level::new(2 * last.capacity, last.rate / 2.0));
        self.levels.extend(next.and_then(Result::ok));
    }

    /// Whether the key may be in. False is certain.
    #[must_use]
    pub fn may_contain(&self, digest: &Digest) -> bool {
        // The last level holds half of the keys.
        let mut levels = self.levels.iter().rev();
        levels.any(|level| level.filter.may_contain(digest))
    }

    /// Takes in the keys of another filter, whatever its shape: its levels are asked too. [`GrowingBloom::rate_bound`] becomes
    /// the sum of both.
    pub fn merge(&mut self, other: &Self) {
        // Before the last, which takes keys.
        let at = self.levels.len().saturating_sub(1);
        let holding = other.levels.iter().filter(|level| level.keys > 0);
        self.levels.splice(at..at, holding.cloned());
    }

    /// The rate that was asked for.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// What the rate is at most, for strangers: the sum over levels of (share of set bits)^T. Above [`GrowingBloom::rate`] only
    /// after [`GrowingBloom::merge`]. A pass over the bits.
    #[must_use]
    pub fn rate_bound(&self) -> f64 {
        self.levels.iter().map(|level| level.filter.rate()).sum()
    }

    /// Keys put in: those for which [`GrowingBloom::insert`] said true.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.levels.iter().map(|level| level.keys).sum()
    }

    /// Filters in the row.
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
