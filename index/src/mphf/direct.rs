//! A lookup but for its slow path: what answers for a key that was not bumped, which 97 of
//! 100 are.
//!
//! Nothing here branches on what a digest is. What the processor is left to foresee is what
//! never happens: a bucket outside the seeds.

use std::hint::black_box;

use torc_record::Digest;

use super::hash::{GOLDEN, scale};
use super::shape::{SHIFT_BITS, Shape};
use crate::prefetch;

/// What stands for a seed where there is none.
pub(crate) const BUMPED: u8 = 0;

/// What each seed multiplies the first hash of a key by, to get the one that its upper bits
/// choose: `hash + chosen * (hash * GOLDEN)` in one multiplication. All seeds, so that a seed
/// need not be taken apart first: 2 KB, of which what is asked often stays near.
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

/// What a lookup needs of a part unless its key was bumped: half a cache line.
///
/// It has seeds only if the part has as many slots as a window at least. Then no seed leads
/// beyond the last slot, and no answer needs to be compared with it.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Direct<'a> {
    /// One a bucket.
    seeds: &'a [u8],
    pub(super) keys: u32,
    pub(super) seed: u32,
    /// Added to every slot: the slots of the parts before this one, less `ahead`.
    base: u32,
    /// Slots of a window before its key's own place.
    ahead: u16,
    /// How far a hash is shifted to leave the place in its window.
    hash_shift: u8,
    pub(super) shared_bits: u8,
}

impl<'a> Direct<'a> {
    /// `body` begins with the seeds. If they are too few, or the slots fewer than a window,
    /// there are none.
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

    /// The slots of the parts before this one.
    #[inline]
    pub(crate) fn first(&self) -> u32 {
        self.base.wrapping_add(u32::from(self.ahead))
    }

    /// Adds to every slot.
    pub(crate) fn set_first(&mut self, first: u32) {
        self.base = first.wrapping_sub(u32::from(self.ahead));
    }

    /// The key's place among all of the part, as a fraction of 2^64.
    #[inline]
    pub(crate) fn along(&self, digest: Digest) -> u64 {
        digest.high() << (self.shared_bits & 63)
    }

    /// Whether every lookup is one for the slow path.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.seeds.is_empty()
    }

    /// The same, but every lookup is one for the slow path unless all keys share so many bits.
    pub(crate) fn only_of(self, shared_bits: u32) -> Self {
        let fits = u32::from(self.shared_bits) == shared_bits;
        Self {
            seeds: if fits { self.seeds } else { &[] },
            ..self
        }
    }

    /// The bucket of a key; there are less than 2^32.
    #[inline]
    fn bucket(&self, along: u64) -> usize {
        scale(along, self.seeds.len())
    }

    /// Starts loading the seed of a key's bucket.
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

    /// Where the window of a key begins.
    #[inline]
    fn start(&self, along: u64) -> u32 {
        // As `Shape::start`, of at least as many slots as a window has.
        let ahead = u32::from(self.ahead);
        let place = scale(along, self.keys as usize) as u32;
        let last = self.keys.wrapping_add(!ahead);
        self.base.wrapping_add(place.max(ahead).min(last))
    }

    /// The slot of a key that has a seed, as one of many: it takes the fewest instructions.
    #[inline]
    pub(crate) fn slot_in_batch(&self, along: u64, digest: Digest) -> Option<u32> {
        let seed = self.seed_at(self.bucket(along));
        if seed == BUMPED {
            return None;
        }
        let hash = self.hash(digest).wrapping_mul(FACTORS[usize::from(seed)]);
        Some(self.start(along).wrapping_add(self.shifted(hash, seed)))
    }

    /// The slot of a key that has a seed, where nothing else is done until the seed is there.
    #[inline]
    pub(crate) fn slot(&self, along: u64, digest: Digest) -> Option<u32> {
        let seed = self.seed_at(self.bucket(along));
        if seed == BUMPED {
            return None;
        }
        let hash = self.hash(digest);
        // The multiplication that needs no seed is kept out of the one that does.
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

/// What a part without buckets has for a seed: apart and never foreseen, so that no lookup
/// waits for the comparison.
#[cold]
fn no_seed() -> u8 {
    BUMPED
}
