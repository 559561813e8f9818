//! Count-min: how often was this key seen?
//!
//! *Question*: the count C of a key after N insertions. *Answer*: C <= Ĉ, and Ĉ <= C + εN with
//! probability at least 1 - δ. *Bytes*: 8 per counter, 2/ε counters per row, log2(1/δ) rows.
//! Cormode and Muthukrishnan (2005), in the form of the lecture (S. Jiang, Hash methods, 2023).
//!
//! Every row maps a key to one of its counters with its own strongly universal hash of the digest's
//! last 64 bits. Other keys with the same counter can only add to it, so the smallest counter is
//! the best answer.
//!
//! Invariants:
//! * *Linear*: the counters of a stream are the sum of the counters of its parts. Hence deletion,
//!   [`CountMin::merge`] and [`CountMin::subtract`]: a window is a later snapshot minus an earlier
//!   one, a cluster is the sum of its nodes. Conservative update and saturation are absent, because
//!   both would break this.
//! * Every row sums to [`CountMin::total`]. Bytes for which this fails are refused.
//! * Counters are `i64` modulo 2^64. Modulo 2^64, addition stays exact and reversible, so an
//!   intermediate overflow is harmless. If no key's count is negative, no counter exceeds the
//!   total, so it suffices that merging refuses a total beyond `i64`; single insertions would take
//!   centuries to reach 2^63.
//! * Only sketches of one shape and seed are combined.
//!
//! The bound requires that no key was deleted more often than inserted. Keys with the same last 64
//! digest bits count as one: among a billion keys, there is such a pair with probability 0.03.

mod codec;
mod inner_product;
mod shape;

pub use codec::DecodeError;
pub use inner_product::InnerProduct;
pub use shape::{MAX_DEPTH, MAX_WIDTH_LOG2, Shape, ShapeError};

use torc_record::{Digest, to_usize};

use crate::SeedStream;
use crate::hash::MultiplyShift;

/// A count-min sketch of keys given by their digests.
///
/// * Updates: [`CountMin::insert`], [`CountMin::delete`], [`CountMin::add`], [`CountMin::insert_and_estimate`].
/// * Combination: [`CountMin::merge`], [`CountMin::subtract`].
/// * Queries: [`CountMin::estimate`], [`CountMin::error_bound`], [`CountMin::inner_product`].
/// * Bytes: [`CountMin::encode`], [`CountMin::decode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountMin {
    shape: Shape,
    seed: u64,
    rows: Vec<MultiplyShift>,
    counters: Vec<i64>,
    total: i64,
}

/// Why two sketches were not combined. Both are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CombineError {
    /// The rows have different sizes: create both sketches with one shape.
    #[error("one sketch has {} rows of {} counters, the other {} of {}", .0.depth(), .0.width(), .1.depth(), .1.width())]
    Shape(Shape, Shape),
    /// The rows hash differently: create both sketches with one seed.
    #[error("the sketches were made from different seeds: their counters mean different keys")]
    Seed,
    /// The sum of the totals is beyond 2^63: start a new sketch.
    #[error("the sum of the totals does not fit 63 bits")]
    Overflow,
}

impl CountMin {
    /// An empty sketch. Sketches of one `shape` and `seed` can be combined.
    #[must_use]
    pub fn new(shape: Shape, seed: u64) -> Self {
        let mut seeds = SeedStream::new(seed);
        let bits = u32::from(shape.width_log2());
        let row = |_| MultiplyShift::new(&mut seeds, bits);
        // A shape has 1 to 26 bits, for which the family always has a member.
        let rows = (0..shape.depth()).map(row).filter_map(Result::ok).collect();
        Self {
            shape,
            seed,
            rows,
            counters: vec![0; shape.counters()],
            total: 0,
        }
    }

    /// Rows and counters.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// The seed of the hashes.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// N: insertions minus deletions.
    #[must_use]
    pub const fn total(&self) -> i64 {
        self.total
    }

    /// εN rounded up: an estimate exceeds the truth by more with probability at most δ; 0 if N is
    /// negative.
    #[must_use]
    pub fn error_bound(&self) -> u64 {
        let total = self.total.max(0).unsigned_abs();
        // ε is 2 / width.
        let half_width = 1 << (self.shape.width_log2() - 1);
        total.div_ceil(half_width)
    }

    /// Increments the key's count. 1 to 2 ns per row while the counters are cached.
    #[inline]
    pub fn insert(&mut self, digest: &Digest) {
        self.add(digest, 1);
    }

    /// Decrements the key's count.
    #[inline]
    pub fn delete(&mut self, digest: &Digest) {
        self.add(digest, -1);
    }

    /// Adds `count` to the key's count.
    #[inline]
    pub fn add(&mut self, digest: &Digest, count: i64) {
        let key = digest.low();
        for (row, hash) in self
            .counters
            .chunks_exact_mut(self.shape.width())
            .zip(&self.rows)
        {
            let counter = &mut row[to_usize(hash.hash(key))];
            *counter = counter.wrapping_add(count);
        }
        self.total = self.total.wrapping_add(count);
    }

    /// [`CountMin::add`] followed by [`CountMin::estimate`], for the price of one.
    #[inline]
    pub fn insert_and_estimate(&mut self, digest: &Digest, count: i64) -> i64 {
        let key = digest.low();
        let mut smallest = i64::MAX;
        for (row, hash) in self
            .counters
            .chunks_exact_mut(self.shape.width())
            .zip(&self.rows)
        {
            let counter = &mut row[to_usize(hash.hash(key))];
            *counter = counter.wrapping_add(count);
            smallest = smallest.min(*counter);
        }
        self.total = self.total.wrapping_add(count);
        smallest
    }

    /// Ĉ: the smallest counter of the key. Negative only if a key was deleted more often than
    /// inserted.
    #[inline]
    #[must_use]
    pub fn estimate(&self, digest: &Digest) -> i64 {
        let key = digest.low();
        let rows = self
            .counters
            .chunks_exact(self.shape.width())
            .zip(&self.rows);
        let counters = rows.map(|(row, hash)| row[to_usize(hash.hash(key))]);
        counters.min().unwrap_or(0)
    }

    /// Adds the counters of `other`: the sketch of both streams. About 0.5 ns per counter.
    ///
    /// # Errors
    /// [`CombineError`]; nothing was added.
    pub fn merge(&mut self, other: &Self) -> Result<(), CombineError> {
        let total = self.total.checked_add(other.total);
        self.combine(other, total, i64::wrapping_add)
    }

    /// Subtracts the counters of `other`: the sketch of what this stream has in addition to that
    /// one.
    ///
    /// # Errors
    /// [`CombineError`]; nothing was subtracted.
    pub fn subtract(&mut self, other: &Self) -> Result<(), CombineError> {
        let total = self.total.checked_sub(other.total);
        self.combine(other, total, i64::wrapping_sub)
    }

    fn combine(
        &mut self,
        other: &Self,
        total: Option<i64>,
        of: impl Fn(i64, i64) -> i64,
    ) -> Result<(), CombineError> {
        self.check_combines_with(other)?;
        self.total = total.ok_or(CombineError::Overflow)?;
        for (counter, other) in self.counters.iter_mut().zip(&other.counters) {
            *counter = of(*counter, *other);
        }
        Ok(())
    }

    /// Whether the counters of both sketches mean the same keys.
    ///
    /// # Errors
    /// [`CombineError::Shape`] or [`CombineError::Seed`].
    pub fn check_combines_with(&self, other: &Self) -> Result<(), CombineError> {
        if self.shape != other.shape {
            return Err(CombineError::Shape(self.shape, other.shape));
        }
        if self.seed != other.seed {
            return Err(CombineError::Seed);
        }
        Ok(())
    }

    /// An empty sketch of the same shape and seed.
    #[must_use]
    pub fn empty(&self) -> Self {
        Self {
            shape: self.shape,
            seed: self.seed,
            rows: self.rows.clone(),
            counters: vec![0; self.counters.len()],
            total: 0,
        }
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shape.bytes() + self.rows.len() * size_of::<MultiplyShift>() + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests;
