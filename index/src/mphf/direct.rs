//! A lookup but for its slow path: what answers for a key that was not bumped, which 97 of
//! 100 are.
//!
//! Nothing here branches on what a digest is. What the processor is left to foresee is what
//! never happens: a bucket outside the seeds, a slot behind the last one.

use std::hint::black_box;

use torc_record::Digest;

use super::Mphf;
use super::shape::{Placing, seeded_offset};

/// What stands for a seed where there is none.
pub(crate) const BUMPED: u8 = 0;

impl<'a> Mphf<'a> {
    /// All of a lookup that can be done before the seed is there.
    #[inline]
    pub(crate) fn ask(&self, digest: Digest) -> Asked<'a> {
        let placing = Placing::of(digest, self.shared_bits, self.seed);
        let bucket = placing.bucket(self.buckets as usize);
        let seed = match self.body.get(bucket) {
            Some(seed) => seed,
            None => no_seed(),
        };
        let start = placing.start(self.keys, u32::from(self.window));
        Asked {
            seed,
            hashes: placing.hashes(),
            start: self.first + start,
            // Nothing where there are no keys: then there are no seeds either.
            above: self.keys.wrapping_sub(start + 1),
            window_bits: self.window_bits,
        }
    }
}

/// What a part without buckets has for a seed: apart and never foreseen, so that no lookup
/// waits for the comparison.
#[cold]
fn no_seed() -> &'static u8 {
    &BUMPED
}

/// A lookup that waits for its seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The seed of the digest's bucket, where it lies.
    pub(crate) seed: &'a u8,
    hashes: (u64, u64),
    /// Where the digest's window begins.
    start: u32,
    /// Slots above that one, to the part's last.
    above: u32,
    window_bits: u8,
}

impl Asked<'_> {
    /// The slot, given the seed; if that is [`BUMPED`], any number.
    #[inline]
    pub(crate) fn answer(&self, seed: u8) -> u32 {
        let offset = seeded_offset(self.hashes, seed, self.window_bits);
        if offset > self.above {
            return self.clamped();
        }
        self.start + offset
    }

    /// The last slot, for a stranger of a part smaller than a window.
    #[cold]
    fn clamped(&self) -> u32 {
        self.start.wrapping_add(self.above)
    }

    /// The same where nothing else is done until the seed is there: the multiplication that
    /// needs no seed is kept out of the one that does.
    #[inline]
    pub(crate) fn answer_waiting(mut self, seed: u8) -> u32 {
        self.hashes.1 = black_box(self.hashes.1);
        self.answer(seed)
    }
}
