//! Values derived from the number of keys: the number of buckets, and the possible slots of each
//! key.
//!
//! The keys of a part are spread over `0..n` as their tokens are. A bucket has the keys of a short
//! stretch. Each key may go to a window of slots that begins near its own position, and a seed of 8
//! bits selects the slot: 4 bits choose one of 16 hashes of the key, 4 bits shift the whole bucket
//! by up to 15 slots.

use torc_record::Digest;

use super::hash::{GOLDEN, scale};

/// Bits of a seed that shift the bucket.
pub(super) const SHIFT_BITS: u32 = 4;
/// Twelve times the average keys per bucket. Fewer in small parts, where more keys would be bumped.
const BUCKET_KEYS_12: u64 = 52;
const SMALL_BUCKET_KEYS_12: u64 = 45;
/// Upper bound on the keys of a small part.
const SMALL: u32 = 6_000;

/// The possible slots of the keys of a part, derived from their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) keys: u32,
    /// Slots of a window without those of the shift, as a power of two.
    pub(super) window_bits: u8,
}

/// The data of a digest that is needed to place its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placing {
    /// The key's position in the part, as a fraction of 2^64.
    along: u64,
    hash: u64,
}

impl Placing {
    #[inline]
    pub(super) fn of(digest: Digest, shared_bits: u8, seed: u32) -> Self {
        Self {
            along: digest.high() << (shared_bits & 63),
            hash: digest.low() ^ u64::from(seed),
        }
    }

    /// The bucket, less than the number of buckets.
    #[inline]
    pub(super) fn bucket(self, buckets: usize) -> usize {
        scale(self.along, buckets)
    }

    /// See [`Shape::start`]; `ahead` comes from [`Shape::ahead`].
    #[inline]
    pub(super) fn start(self, keys: u32, ahead: u32) -> u32 {
        let place = scale(self.along, keys as usize) as u32;
        // As many slots after the key's own position as before it.
        let last = keys.saturating_sub(2 * ahead + 1);
        place.saturating_sub(ahead).min(last)
    }

    /// The first hash of a key, and the difference between consecutive ones: double hashing, of
    /// which the top bits are used.
    #[inline]
    pub(super) fn hashes(self) -> (u64, u64) {
        (self.hash, self.hash.wrapping_mul(GOLDEN))
    }
}

impl Shape {
    #[inline]
    pub(super) fn of(keys: u32) -> Self {
        let window_bits = match keys {
            0..=48 => 4,
            49..=128 => 5,
            129..=400 => 6,
            401..=1_200 => 7,
            1_201..=SMALL => 8,
            _ => 9,
        };
        Self { keys, window_bits }
    }

    /// Number of buckets of the part.
    #[inline]
    pub(super) fn buckets(self) -> usize {
        let bucket_keys_12 = if self.keys <= SMALL {
            SMALL_BUCKET_KEYS_12
        } else {
            BUCKET_KEYS_12
        };
        (u64::from(self.keys) * 12).div_ceil(bucket_keys_12) as usize
    }

    /// Number of slots in a window.
    #[inline]
    pub(super) fn window(self) -> u32 {
        (1 << (self.window_bits & 31)) + (1 << SHIFT_BITS) - 1
    }

    /// Slots of a window before its key's own position, and after it.
    #[inline]
    pub(super) fn ahead(self) -> u32 {
        self.window() / 2
    }

    /// The first slot of a key's window.
    #[inline]
    pub(super) fn start(self, placing: Placing) -> u32 {
        placing.start(self.keys, self.ahead())
    }

    /// The position that a hash gives its key in the window.
    #[inline]
    pub(super) fn offset(self, hash: u64) -> u32 {
        offset(hash, self.window_bits)
    }
}

/// See [`Shape::offset`].
#[inline]
pub(super) fn offset(hash: u64, window_bits: u8) -> u32 {
    (hash >> (window_bits.wrapping_neg() & 63)) as u32
}

/// The position in its window that a seed gives a key with these hashes.
#[inline]
pub(super) fn seeded_offset((first, step): (u64, u64), seed: u8, window_bits: u8) -> u32 {
    let hash = first.wrapping_add(u64::from(seed >> SHIFT_BITS).wrapping_mul(step));
    let shift = u32::from(seed) & ((1 << SHIFT_BITS) - 1);
    offset(hash, window_bits) + shift
}
