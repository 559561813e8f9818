//! What every minimal perfect hash function of this crate answers.
//!
//! A function over `n` digests maps each of them to its own slot below `n`. A digest it was
//! not built on (a stranger) gets some slot below `n` too: whoever asks compares the key, or
//! asks the Bloom gate first.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a function has fewer than 2^32 slots"
)]

use torc_record::Digest;

/// A minimal perfect hash function over digests.
///
/// Questions: [`len`](Self::len), [`is_empty`](Self::is_empty). Lookups:
/// [`slot`](Self::slot), [`slots`](Self::slots).
pub trait PerfectHash {
    /// Number of digests the function was built on, which is the number of slots.
    fn len(&self) -> usize;

    /// Whether the function was built on nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of a digest, below [`len`](Self::len) for strangers too; 0 if there are no
    /// slots. Never panics, whatever bytes the function was read from.
    fn slot(&self, digest: &Digest) -> usize;

    /// Appends the slot of each digest, in order: the same as [`slot`](Self::slot), but the
    /// lookups' cache misses overlap.
    fn slots(&self, digests: &[Digest], out: &mut Vec<u32>) {
        out.extend(digests.iter().map(|digest| self.slot(digest) as u32));
    }
}
