//! The plain filter: bits, and T probes per key.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "probes are at most MAX_PROBES, and a fill is an estimate"
)]

use torc_record::Digest;

use super::BloomShape;
use super::probes::BloomProbes;
use crate::bytes::Reader;

const FORMAT: u8 = 1;

/// A Bloom filter over digests; see the [module](super).
///
/// * Updates: [`BloomFilter::insert`].
/// * Queries: [`BloomFilter::may_contain`], [`BloomFilter::estimated_keys`], [`BloomFilter::rate`].
/// * Combination: [`BloomFilter::union`], [`BloomFilter::intersect`].
/// * Bytes: [`BloomFilter::encode`], [`BloomFilter::decode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BloomFilter {
    shape: BloomShape,
    words: Vec<u64>,
}

/// Filters of different shapes cannot be combined. Both are unchanged: create both with one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("one filter has {} bits and {} probes, the other {} and {}: make both of one shape", .0.bits(), .0.probes(), .1.bits(), .1.probes())]
pub struct ShapesDiffer(pub BloomShape, pub BloomShape);

/// Why bytes are not a filter. Nothing was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BloomDecodeError {
    /// Made by another version, or not a filter.
    #[error("the bytes are no Bloom filter of format {FORMAT}")]
    Format,
    /// More bits than the caller accepts.
    #[error("a filter of {bits} bits, at most {most} are allowed here")]
    TooLarge {
        /// Bits of the filter.
        bits: u32,
        /// The caller's limit.
        most: u32,
    },
    /// The header does not match the bits.
    #[error("the filter's shape does not fit its length")]
    Shape,
}

impl BloomFilter {
    /// An empty filter.
    #[must_use]
    pub fn new(shape: BloomShape) -> Self {
        Self {
            shape,
            words: vec![0; shape.words()],
        }
    }

    /// The filter with these bits; as many words as the shape requires.
    pub(super) fn of_words(shape: BloomShape, words: Vec<u64>) -> Self {
        debug_assert_eq!(words.len(), shape.words());
        Self { shape, words }
    }

    /// Bits and probes.
    #[must_use]
    pub const fn shape(&self) -> BloomShape {
        self.shape
    }

    /// Inserts a key. Returns true if it certainly was not in the filter before. At most T cache
    /// misses.
    pub fn insert(&mut self, digest: &Digest) -> bool {
        let mut is_new = false;
        for bit in BloomProbes::of(digest, self.shape) {
            let word = &mut self.words[bit as usize / 64];
            let mask = 1 << (bit % 64);
            is_new |= *word & mask == 0;
            *word |= mask;
        }
        is_new
    }

    /// Whether the key may be in the filter. `false` is certain; `true` is wrong at
    /// [`BloomFilter::rate`]. In a half-full filter, a missing key takes two probes on average, a
    /// present one T.
    #[must_use]
    pub fn may_contain(&self, digest: &Digest) -> bool {
        let mut probes = BloomProbes::of(digest, self.shape);
        probes.all(|bit| self.words[bit as usize / 64] >> (bit % 64) & 1 == 1)
    }

    /// Adds the other filter's keys. The result is bit for bit the filter of the union.
    ///
    /// # Errors
    /// [`ShapesDiffer`]; nothing was added.
    pub fn union(&mut self, other: &Self) -> Result<(), ShapesDiffer> {
        self.combine(other, |own, other| own | other)
    }

    /// Keeps the keys that both filters may contain. Every key of both sets stays; the rate is at
    /// most that of either filter, but may be above that of a filter with only the common keys.
    ///
    /// # Errors
    /// [`ShapesDiffer`]; nothing was removed.
    pub fn intersect(&mut self, other: &Self) -> Result<(), ShapesDiffer> {
        self.combine(other, |own, other| own & other)
    }

    fn combine(&mut self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Result<(), ShapesDiffer> {
        if self.shape != other.shape {
            return Err(ShapesDiffer(self.shape, other.shape));
        }
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            *own = of(*own, *other);
        }
        Ok(())
    }

    /// Whether nothing was ever inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The fraction of set bits. Takes one pass over the bits.
    #[must_use]
    pub fn fill(&self) -> f64 {
        let set: u64 = self.words.iter().map(|w| u64::from(w.count_ones())).sum();
        set as f64 / f64::from(self.shape.bits())
    }

    /// The current false positive rate, fill^T. Takes one pass over the bits.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.fill().powi(self.shape.probes().cast_signed())
    }

    /// The approximate number of different keys inserted: `-(m/T) ln(1 - fill)` (Swamidass and
    /// Baldi 2007). Takes one pass over the bits. For two filters, |A| + |B| - |A union B|
    /// estimates the number of common keys.
    #[must_use]
    pub fn estimated_keys(&self) -> f64 {
        self.shape.keys_at(self.fill())
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + 8 * self.words.len()
    }

    /// The filter as bytes, 6 in addition to its bits:
    ///
    /// ```text
    /// 0  u8   format, 1
    /// 1  u8   probes
    /// 2  u32  bits, little-endian, a multiple of 64
    /// 6       bits / 8 bytes; bit b is bit b % 8 of byte b / 8
    /// ```
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(6 + 8 * self.words.len());
        out.extend([FORMAT, self.shape.probes() as u8]);
        out.extend(self.shape.bits().to_le_bytes());
        out.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        out
    }

    /// The inverse of [`BloomFilter::encode`]. Allocates no more than the length of the bytes, and
    /// refuses a filter with more than `most_bits`.
    ///
    /// # Errors
    /// [`BloomDecodeError`].
    pub fn decode(bytes: &[u8], most_bits: u32) -> Result<Self, BloomDecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8() != Some(FORMAT) {
            return Err(BloomDecodeError::Format);
        }
        let header = reader.u8().zip(reader.u32());
        let (probes, bits) = header.ok_or(BloomDecodeError::Shape)?;
        if bits > most_bits {
            let most = most_bits;
            return Err(BloomDecodeError::TooLarge { bits, most });
        }
        let shape = BloomShape::new(bits.into(), probes.into());
        let shape = shape.map_err(|_| BloomDecodeError::Shape)?;
        let body = reader.take(bits as usize / 8);
        let body = body.filter(|_| reader.is_empty() && shape.bits() == bits);
        let words = body.ok_or(BloomDecodeError::Shape)?.chunks_exact(8);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        Ok(Self::of_words(shape, words.map(word).collect()))
    }
}
