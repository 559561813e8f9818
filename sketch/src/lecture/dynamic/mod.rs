//! A string under insertion and deletion, with the hash of any substring at any time.
//!
//! The lecture's "dynamic string matching": fingerprints form a monoid (the hash of S || T follows
//! from those of S and T), so a balanced tree over pieces of the string stores one per subtree. The
//! tree is a treap (Aragon and Seidel 1989) with priorities from the seed. Its nodes hold up to 64
//! bytes, and two neighbours more than 64 together, so that edits do not fragment it.
//!
//! | operation | expected time |
//! |---|---|
//! | insert, delete k bytes; split, append | O(log n), and O(k) for the bytes |
//! | hash of a substring | O(log n) |
//! | common prefix, order | O(log² n): a binary search with hashes |
//!
//! Each comparison of two different substrings by hash is wrong with probability at most
//! [`Modulus::collision_bound`] of the length. The author of the strings must not know the seed.

mod tree;

use std::cmp::Ordering;
use std::ops::Range;

use crate::SeedStream;
use crate::rolling::{Fingerprint, Modulus};
use tree::{Link, Treap};

/// A string that can be edited and compared by hash; see the module. About 4 bytes of memory per
/// byte.
///
/// * Edits: [`DynamicString::insert`], [`DynamicString::delete`], [`DynamicString::append`], [`DynamicString::split_off`].
/// * Bytes: [`DynamicString::len`], [`DynamicString::byte`], [`DynamicString::bytes`].
/// * Hashes: [`DynamicString::fingerprint`], [`DynamicString::common_prefix`], [`DynamicString::compare`].
#[derive(Debug, Clone)]
pub struct DynamicString {
    treap: Treap,
    root: Link,
}

/// Why a string was not edited or compared. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DynamicStringError {
    /// A position beyond the end, or a range that ends before it starts.
    #[error("bytes {start} to {end} of a string of {len}")]
    OutOfBounds {
        /// The requested start.
        start: usize,
        /// The requested end.
        end: usize,
        /// Length of the string, bytes.
        len: usize,
    },
    /// The strings are hashed modulo different primes: create both with one modulus.
    #[error("the strings have different moduli: their hashes cannot be compared")]
    Moduli,
}

impl DynamicString {
    /// The empty string. `seed` determines the shape of the tree, not the hashes: it need not be
    /// that of the modulus.
    #[must_use]
    pub const fn new(modulus: &Modulus, seed: u64) -> Self {
        Self {
            treap: Treap::new(*modulus, SeedStream::new(seed)),
            root: None,
        }
    }

    /// The string with these bytes. About 10 ns per byte.
    #[must_use]
    pub fn of(modulus: &Modulus, seed: u64, bytes: &[u8]) -> Self {
        let mut string = Self::new(modulus, seed);
        string.root = string.treap.build(bytes);
        string
    }

    /// Length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        tree::len(&self.root)
    }

    /// Whether the string is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    fn checked(&self, range: &Range<usize>) -> Result<(), DynamicStringError> {
        let (start, end, len) = (range.start, range.end, self.len());
        if start > end || end > len {
            return Err(DynamicStringError::OutOfBounds { start, end, len });
        }
        Ok(())
    }

    /// Inserts `bytes` before the byte at `at`, or at the end.
    ///
    /// # Errors
    /// [`DynamicStringError::OutOfBounds`] beyond the end.
    pub fn insert(&mut self, at: usize, bytes: &[u8]) -> Result<(), DynamicStringError> {
        self.checked(&(at..at))?;
        let (before, after) = self.treap.split(self.root.take(), at);
        let inserted = self.treap.build(bytes);
        let before = self.treap.join(before, inserted);
        self.root = self.treap.join(before, after);
        Ok(())
    }

    /// Deletes the bytes in `range`.
    ///
    /// # Errors
    /// [`DynamicStringError::OutOfBounds`] beyond the end.
    pub fn delete(&mut self, range: Range<usize>) -> Result<(), DynamicStringError> {
        self.checked(&range)?;
        let (before, rest) = self.treap.split(self.root.take(), range.start);
        let (_, after) = self.treap.split(rest, range.len());
        self.root = self.treap.join(before, after);
        Ok(())
    }

    /// Appends the other string. O(log n), whatever the lengths.
    ///
    /// # Errors
    /// [`DynamicStringError::Moduli`] if the moduli differ.
    pub fn append(&mut self, other: Self) -> Result<(), DynamicStringError> {
        self.check_modulus(&other)?;
        self.root = self.treap.join(self.root.take(), other.root);
        Ok(())
    }

    /// Keeps the first `at` bytes and returns the others.
    ///
    /// # Errors
    /// [`DynamicStringError::OutOfBounds`] beyond the end.
    pub fn split_off(&mut self, at: usize) -> Result<Self, DynamicStringError> {
        self.checked(&(at..at))?;
        let (before, after) = self.treap.split(self.root.take(), at);
        let mut treap = self.treap.fork();
        // Cutting may have left short pieces at the ends.
        let after = treap.join(None, after);
        self.root = self.treap.join(before, None);
        Ok(Self { treap, root: after })
    }

    /// The byte at a position.
    #[must_use]
    pub fn byte(&self, at: usize) -> Option<u8> {
        tree::byte(&self.root, at)
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        tree::collect(&self.root, &mut out);
        out
    }

    /// The fingerprint of a substring, equal to that of [`Fingerprint::of`]. `None` beyond the end.
    /// About 1 us at 1 MiB.
    #[must_use]
    pub fn fingerprint(&self, range: Range<usize>) -> Option<Fingerprint> {
        self.checked(&range).ok()?;
        let until = self.treap.prefix(&self.root, range.end);
        let before = self.treap.prefix(&self.root, range.start);
        until.without_prefix(self.treap.modulus(), &before)
    }

    fn check_modulus(&self, other: &Self) -> Result<(), DynamicStringError> {
        if self.treap.modulus() == other.treap.modulus() {
            Ok(())
        } else {
            Err(DynamicStringError::Moduli)
        }
    }

    /// The number of equal bytes from `at` on and from `other_at` on in `other`. Too high with the
    /// probability stated in the module's documentation, never too low.
    ///
    /// # Errors
    /// [`DynamicStringError::Moduli`] if the moduli differ, [`DynamicStringError::OutOfBounds`] if
    /// a position is beyond an end.
    pub fn common_prefix(
        &self,
        at: usize,
        other: &Self,
        other_at: usize,
    ) -> Result<usize, DynamicStringError> {
        self.check_modulus(other)?;
        self.checked(&(at..at))?;
        other.checked(&(other_at..other_at))?;
        let same = |len: usize| {
            self.fingerprint(at..at + len) == other.fingerprint(other_at..other_at + len)
        };
        let (mut least, mut most) = (0, (self.len() - at).min(other.len() - other_at));
        while least < most {
            let middle = least + (most - least).div_ceil(2);
            if same(middle) {
                least = middle;
            } else {
                most = middle - 1;
            }
        }
        Ok(least)
    }

    /// The order of the strings, byte by byte as for slices.
    ///
    /// # Errors
    /// [`DynamicStringError::Moduli`] if the moduli differ.
    pub fn compare(&self, other: &Self) -> Result<Ordering, DynamicStringError> {
        let common = self.common_prefix(0, other, 0)?;
        Ok(self.byte(common).cmp(&other.byte(common)))
    }
}

#[cfg(test)]
mod tests;
