//! The minimal perfect hash function of one partition.

#![expect(
    clippy::cast_possible_truncation,
    reason = "fewer than 2^32 keys, so as many slots and buckets; hashes are cut to 32 bits; usize has 64"
)]

pub(crate) mod batch;
mod build;
pub(crate) mod direct;
mod error;
mod hash;
mod header;
mod occupancy;
mod search;
mod shape;
mod tail;

use torc_record::Digest;

use crate::{PerfectHash, prefetch};
use batch::Parts;
use direct::{BUMPED, Direct};
pub use error::{BuildError, ViewError};
pub(crate) use hash::mix;
use header::Header;
pub use header::MphfHead;
use shape::{Placing, seeded_offset};
use tail::Tail;

/// Limit on the digests of a function.
pub(crate) const MAX_KEYS: usize = 1 << 30;

/// A minimal perfect hash function over the digests of one partition, read in place.
///
/// Creation: [`build`](Self::build), [`view`](Self::view), [`MphfHead::over`]. Properties:
/// [`len`](Self::len), [`is_empty`](Self::is_empty), [`head`](Self::head). Lookups:
/// [`slot`](Self::slot), [`slots`](Self::slots), [`prefetch`](Self::prefetch).
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Mphf<'a> {
    pub(crate) direct: Direct<'a>,
    /// The seeds, then the tail.
    body: &'a [u8],
    buckets: u32,
    bumped: u32,
    window_bits: u8,
    attempt: u8,
    low_bits: u8,
}

impl<'a> Mphf<'a> {
    /// Encodes the function of digests in ascending order (token order) that share the leading bits
    /// of their partition.
    ///
    /// The same digests and seed give the same bytes on every host.
    ///
    /// # Errors
    /// The digests are unsorted, not distinct, or too many; nothing else can happen to digests that
    /// are keyed hashes.
    pub fn build(digests: &[Digest], seed: u64) -> Result<Vec<u8>, BuildError> {
        build::build(digests, seed)
    }

    /// Opens an encoded function in constant time: checks its header against the number of bytes,
    /// which must be exact, and parses or allocates nothing.
    ///
    /// # Errors
    /// The header does not match the bytes.
    pub fn view(bytes: &'a [u8]) -> Result<Self, ViewError> {
        let head = Header::read(bytes)?;
        Ok(Self::new(&head, bytes))
    }

    #[inline]
    fn new(head: &Header, bytes: &'a [u8]) -> Self {
        let body = bytes.get(head.len()..).unwrap_or_default();
        Self {
            direct: Direct::new(head.shape, head.shared_bits, head.seed, body),
            body,
            buckets: head.shape.buckets() as u32,
            bumped: head.bumped,
            window_bits: head.shape.window_bits,
            attempt: head.attempt,
            low_bits: head.low_bits,
        }
    }

    /// The head from which [`MphfHead::over`] restores this function.
    #[must_use]
    pub fn head(&self) -> MphfHead {
        MphfHead {
            bumped: self.bumped,
            seed: self.direct.seed,
            window_bits: self.window_bits,
            shared_bits: self.direct.shared_bits,
            attempt: self.attempt,
            low_bits: self.low_bits,
        }
    }

    /// Number of digests that the function was built from, which is the number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.direct.keys as usize
    }

    /// Whether the function was built from no digests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of a digest, less than [`len`](Self::len) even for digests it was not built from; 0
    /// if there are no slots. Never panics, whatever the bytes.
    #[must_use]
    #[inline]
    pub fn slot(&self, digest: &Digest) -> usize {
        match self.direct.slot(self.direct.along(*digest), *digest) {
            Some(slot) => slot as usize,
            None => self.slow_slot(*digest) as usize,
        }
    }

    /// The slot of a key without a seed in [`Direct`]: the key was bumped, or the part is smaller
    /// than a window. The digest is passed by value, so that it stays in registers.
    #[cold]
    #[inline(never)]
    pub(crate) fn slow_slot(&self, digest: Digest) -> u32 {
        let (seeds, tail) = self
            .body
            .split_at_checked(self.buckets as usize)
            .unwrap_or_default();
        // A short tail is a few adjacent lines: prefetches all of them, rather than loading one
        // after another.
        prefetch(tail, 64);
        prefetch(tail, 128);
        let slot = if self.direct.is_empty() {
            self.tiny_slot(digest, seeds)
        } else {
            None
        };
        let slot = slot.or_else(|| Tail::view(self, tail)?.slot(digest));
        let last = self.direct.keys.saturating_sub(1);
        self.direct.first() + (slot.unwrap_or(0) as u32).min(last)
    }

    /// The slot that a seed gives a key in a part smaller than a window.
    #[cold]
    fn tiny_slot(&self, digest: Digest, seeds: &[u8]) -> Option<usize> {
        let placing = Placing::of(digest, self.direct.shared_bits, self.direct.seed);
        let seed = *seeds.get(placing.bucket(seeds.len()))?;
        let offset = seeded_offset(placing.hashes(), seed, self.window_bits);
        (seed != BUMPED).then_some(offset as usize)
    }

    /// Appends the slot of each digest in order. The cache misses of the lookups overlap.
    pub fn slots(&self, digests: &[Digest], out: &mut Vec<u32>) {
        batch::slots(self, digests, out);
    }

    /// Prefetches the bytes that [`slot`](Self::slot) will read for this digest.
    #[inline]
    pub fn prefetch(&self, digest: &Digest) {
        self.direct.prefetch(self.direct.along(*digest));
    }
}

impl Parts for Mphf<'_> {
    #[inline]
    fn place(&self, digest: Digest) -> (u32, u64) {
        (0, self.direct.along(digest))
    }

    #[inline]
    fn part(&self, _: u32) -> &Direct<'_> {
        &self.direct
    }

    fn slow_slot(&self, digest: Digest) -> u32 {
        self.slow_slot(digest)
    }
}

impl PerfectHash for Mphf<'_> {
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn slot(&self, digest: &Digest) -> usize {
        self.slot(digest)
    }

    fn slots(&self, digests: &[Digest], out: &mut Vec<u32>) {
        self.slots(digests, out);
    }
}
