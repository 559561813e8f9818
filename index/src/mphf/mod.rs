//! The minimal perfect hash function of one partition.

pub(crate) mod batch;
mod build;
mod direct;
mod error;
mod hash;
mod header;
mod occupancy;
mod search;
mod shape;
mod tail;

use torc_record::Digest;

use crate::prefetch::prefetch_byte;
use crate::{PerfectHash, prefetch};
use direct::BUMPED;
pub use error::{BuildError, ViewError};
use header::Header;
pub use header::MphfHead;
use tail::Tail;

/// Most digests of one function.
pub(crate) const MAX_KEYS: usize = 1 << 30;

/// A minimal perfect hash function over the digests of one partition, read in place.
///
/// Making: [`build`](Self::build), [`view`](Self::view), [`MphfHead::over`]. Questions:
/// [`len`](Self::len), [`is_empty`](Self::is_empty), [`head`](Self::head). Lookups: [`slot`](Self::slot),
/// [`slots`](Self::slots), [`prefetch`](Self::prefetch).
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Mphf<'a> {
    /// The seeds, then the tail.
    body: &'a [u8],
    buckets: u32,
    keys: u32,
    seed: u32,
    /// Added to every slot: the slots of the parts before this one.
    pub(crate) first: u32,
    bumped: u32,
    window: u16,
    window_bits: u8,
    shared_bits: u8,
    attempt: u8,
    low_bits: u8,
}

impl<'a> Mphf<'a> {
    /// Encodes the function of some digests, which are in ascending order (token order) and
    /// share the leading bits that name their partition.
    ///
    /// The same digests and seed give the same bytes on every host.
    ///
    /// # Errors
    /// The digests are unsorted, not distinct, or too many; nothing else happens to digests
    /// that are keyed hashes.
    pub fn build(digests: &[Digest], seed: u64) -> Result<Vec<u8>, BuildError> {
        build::build(digests, seed)
    }

    /// Opens an encoded function, in constant time: its header is checked against the number
    /// of bytes, which must be exact; nothing is parsed or allocated.
    ///
    /// # Errors
    /// The header does not fit the bytes.
    pub fn view(bytes: &'a [u8]) -> Result<Self, ViewError> {
        let head = Header::read(bytes)?;
        Ok(Self::new(&head, bytes))
    }

    #[inline]
    fn new(head: &Header, bytes: &'a [u8]) -> Self {
        Self {
            body: bytes.get(head.len()..).unwrap_or_default(),
            buckets: head.shape.buckets() as u32,
            keys: head.shape.keys,
            seed: head.seed,
            first: 0,
            bumped: head.bumped,
            window: head.shape.window() as u16,
            window_bits: head.shape.window_bits,
            shared_bits: head.shared_bits,
            attempt: head.attempt,
            low_bits: head.low_bits,
        }
    }

    /// What [`MphfHead::over`] makes this function of again.
    #[must_use]
    pub fn head(&self) -> MphfHead {
        MphfHead {
            bumped: self.bumped,
            seed: self.seed,
            window_bits: self.window_bits,
            shared_bits: self.shared_bits,
            attempt: self.attempt,
            low_bits: self.low_bits,
        }
    }

    /// Number of digests the function was built on, which is the number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys as usize
    }

    /// Whether the function was built on nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of a digest, below [`len`](Self::len) for strangers too; 0 if there are no
    /// slots. Never panics, whatever bytes were viewed.
    #[must_use]
    #[inline]
    pub fn slot(&self, digest: &Digest) -> usize {
        let asked = self.ask(*digest);
        let seed = *asked.seed;
        if seed == BUMPED {
            return self.bumped_slot(*digest) as usize;
        }
        asked.answer_waiting(seed) as usize
    }

    /// The slot of a key that was bumped. The digest comes by value: it stays in registers.
    #[cold]
    #[inline(never)]
    pub(crate) fn bumped_slot(&self, digest: Digest) -> u32 {
        let (_, tail) = self
            .body
            .split_at_checked(self.buckets as usize)
            .unwrap_or_default();
        // A short tail is a few lines side by side: asking for them now, not one after
        // another as they turn out to be needed.
        prefetch(tail, 64);
        prefetch(tail, 128);
        let tail = Tail::view(self, tail);
        let slot = tail.and_then(|tail| tail.slot(digest)).unwrap_or(0);
        self.first + slot.min(self.keys.saturating_sub(1) as usize) as u32
    }

    /// Appends the slot of each digest, in order, with the cache misses of the lookups
    /// overlapping.
    pub fn slots(&self, digests: &[Digest], out: &mut Vec<u32>) {
        batch::slots(digests, out, |_| self);
    }

    /// Starts loading what [`slot`](Self::slot) will read for this digest.
    #[inline]
    pub fn prefetch(&self, digest: &Digest) {
        prefetch_byte(self.ask(*digest).seed);
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
