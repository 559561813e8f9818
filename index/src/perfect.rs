//! The interface of every minimal perfect hash function in this crate.
//!
//! A function over `n` digests maps each of them to its own slot below `n`. It also gives a slot
//! below `n` to a digest that it was not built from (a stranger): the caller compares the key, or
//! checks the Bloom gate first.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a function has fewer than 2^32 slots"
)]

use torc_record::Digest;

/// A minimal perfect hash function over digests.
///
/// Properties: [`len`](Self::len), [`is_empty`](Self::is_empty). Lookups: [`slot`](Self::slot),
/// [`slots`](Self::slots).
pub trait PerfectHash {
    /// Number of digests that the function was built from, which is the number of slots.
    fn len(&self) -> usize;

    /// Whether the function was built from no digests.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of a digest, less than [`len`](Self::len) even for a stranger; 0 if there are no
    /// slots. Never panics, whatever bytes the function was read from.
    fn slot(&self, digest: &Digest) -> usize;

    /// Appends the slot of each digest in order: the same as [`slot`](Self::slot), but the cache
    /// misses of the lookups overlap.
    fn slots(&self, digests: &[Digest], out: &mut Vec<u32>) {
        out.extend(digests.iter().map(|digest| self.slot(digest) as u32));
    }
}
