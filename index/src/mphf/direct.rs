//! Lookups without the slow path, which suffices for a key that was not bumped: 97 of 100.
//!
//! Nothing here branches on the content of a digest. The only branch left to prediction is one that
//! is never taken: a bucket outside the seeds.

use std::hint::black_box;

use torc_record::Digest;

use super::hash::{GOLDEN, scale};
use super::shape::{SHIFT_BITS, Shape};
use crate::prefetch;

/// The value in place of a seed if there is none.
pub(crate) const BUMPED: u8 = 0;

/// For each seed, the factor of a key's first hash that gives the hash which the seed's upper bits
/// choose: `hash + chosen * (hash * GOLDEN)` in one multiplication. Has an entry for every seed, so
/// that a seed need not be taken apart: 2 KB, whose used part stays in the cache.
static FACTORS: [u64; 1 << u8::BITS] = {
    let mut factors = [1; 1 << u8::BITS];
    let mut seed = 0;
    while seed < factors.len() {
        factors[seed] = GOLDEN
            .wrapping_mul(seed as u64 >> SHIFT_BITS)
            .wrapping_add(1);
        seed += 1;
    }
    factors
};

/// The data of a part that a lookup needs unless its key was bumped: half a cache line.
///
/// Has seeds only if the part has at least as many slots as a window. Then no seed leads beyond the
/// last slot, and no answer needs a bounds check.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Direct<'a> {
    /// One per bucket.
    seeds: &'a [u8],
    pub(super) keys: u32,
    pub(super) seed: u32,
    /// Added to every slot: the number of slots in earlier parts minus `ahead`.
    base: u32,
    /// Slots of a window before the key's own position.
    ahead: u16,
    /// Shift that leaves the position in the window of a hash.
    hash_shift: u8,
    pub(super) shared_bits: u8,
}

impl<'a> Direct<'a> {
    /// `body` begins with the seeds. There are none if `body` is too short, or if there are fewer
    /// slots than in a window.
    #[inline]
    pub(super) fn new(shape: Shape, shared_bits: u8, seed: u32, body: &'a [u8]) -> Self {
        let seeds = body.get(..shape.buckets()).unwrap_or_default();
        Self {
            seeds: if shape.keys < shape.window() {
                &[]
            } else {
                seeds
            },
            keys: shape.keys,
            seed,
            base: shape.ahead().wrapping_neg(),
            ahead: shape.ahead() as u16,
            hash_shift: 64 - shape.window_bits,
            shared_bits,
        }
    }

    /// The number of slots in earlier parts.
    #[inline]
    pub(crate) fn first(&self) -> u32 {
        self.base.wrapping_add(u32::from(self.ahead))
    }

    /// Sets the number of slots in earlier parts.
    pub(crate) fn set_first(&mut self, first: u32) {
        self.base = first.wrapping_sub(u32::from(self.ahead));
    }

    /// The key's position in the part, as a fraction of 2^64.
    #[inline]
    pub(crate) fn along(&self, digest: Digest) -> u64 {
        digest.high() << (self.shared_bits & 63)
    }

    /// Whether every lookup takes the slow path.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.seeds.is_empty()
    }

    /// Returns the same, but every lookup takes the slow path unless all keys share `shared_bits`
    /// bits.
    pub(crate) fn only_of(self, shared_bits: u32) -> Self {
        let fits = u32::from(self.shared_bits) == shared_bits;
        Self {
            seeds: if fits { self.seeds } else { &[] },
            ..self
        }
    }

    /// The bucket of a key, less than 2^32.
    #[inline]
    fn bucket(&self, along: u64) -> usize {
        scale(along, self.seeds.len())
    }

    /// Prefetches the seed of a key's bucket.
    #[inline]
    pub(crate) fn prefetch(&self, along: u64) {
        prefetch(self.seeds, self.bucket(along));
    }

    /// The seed of a bucket.
    #[inline]
    fn seed_at(&self, bucket: usize) -> u8 {
        match self.seeds.get(bucket) {
            Some(seed) => *seed,
            None => no_seed(),
        }
    }

    /// The first slot of a key's window.
    #[inline]
    fn start(&self, along: u64) -> u32 {
        // As `Shape::start`, for at least as many slots as a window has.
        let ahead = u32::from(self.ahead);
        let place = scale(along, self.keys as usize) as u32;
        let last = self.keys.wrapping_add(!ahead);
        self.base.wrapping_add(place.max(ahead).min(last))
    }

    /// The slot of a key with a seed, for batches: takes the fewest instructions.
    #[inline]
    pub(crate) fn slot_in_batch(&self, along: u64, digest: Digest) -> Option<u32> {
        let seed = self.seed_at(self.bucket(along));
        if seed == BUMPED {
            return None;
        }
        let hash = self.hash(digest).wrapping_mul(FACTORS[usize::from(seed)]);
        Some(self.start(along).wrapping_add(self.shifted(hash, seed)))
    }

    /// The slot of a key with a seed, for single lookups that wait for the seed.
    #[inline]
    pub(crate) fn slot(&self, along: u64, digest: Digest) -> Option<u32> {
        let seed = self.seed_at(self.bucket(along));
        if seed == BUMPED {
            return None;
        }
        let hash = self.hash(digest);
        // Keeps the multiplication that needs no seed out of the one that does.
        let step = black_box(hash.wrapping_mul(GOLDEN));
        let chosen = u64::from(seed >> SHIFT_BITS);
        let offset = self.shifted(hash.wrapping_add(chosen.wrapping_mul(step)), seed);
        Some(self.start(along).wrapping_add(offset))
    }

    #[inline]
    fn hash(&self, digest: Digest) -> u64 {
        digest.low() ^ u64::from(self.seed)
    }

    #[inline]
    fn shifted(&self, hash: u64, seed: u8) -> u32 {
        let shift = u32::from(seed) & ((1 << SHIFT_BITS) - 1);
        (hash >> (self.hash_shift & 63)) as u32 + shift
    }
}

/// The seed of a part without buckets: out of line and cold, so that no lookup waits for the
/// comparison.
#[cold]
fn no_seed() -> u8 {
    BUMPED
}
