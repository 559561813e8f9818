//! The byte layout of an encoded function.
//!
//! Little-endian. Fields have two bytes each where the number of keys allows (the narrow
//! form), four otherwise (the wide form).
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version in bits 0 to 2, wide form in bit 3, the tail's attempt in bits 4 to 7 |
//! | 1 | leading bits of the token that all keys share |
//! | 0 or 2 | zero, in the wide form only |
//! | 2 or 4 | number of keys, `n` |
//! | 2 or 4 | number of bumped keys, `m` |
//! | 2 or 4 | seed |
//! | `Shape::buckets` | the seed of each bucket, 0 if its keys are bumped |
//! | `Tail::bytes` | the function of the bumped keys |
//!
//! Everything else follows from `n` and `m`, so the header determines the length.

use super::shape::Shape;
use super::tail::Tail;
use super::{Mphf, ViewError};

const VERSION: u8 = 1;
const WIDE: u8 = 1 << 3;
const NARROW_LEN: usize = 8;
const WIDE_LEN: usize = 16;

/// The header of an encoded function without its number of keys, for frequent queries of the same
/// function: 12 bytes that can be kept beside the function's own, so that a lookup need not read
/// the header.
///
/// Creation: [`Mphf::head`]. Use: [`over`](Self::over).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MphfHead {
    pub(super) bumped: u32,
    pub(super) seed: u32,
    pub(super) window_bits: u8,
    pub(super) shared_bits: u8,
    pub(super) attempt: u8,
    pub(super) low_bits: u8,
}

impl MphfHead {
    /// The function in the bytes that this was read from, with this number of keys. Takes a few
    /// instructions and reads nothing. Safe over any other bytes, or for another number of keys,
    /// but then the answers mean nothing.
    #[must_use]
    #[inline]
    pub fn over<'a>(&self, bytes: &'a [u8], keys: u32) -> Mphf<'a> {
        let window_bits = self.window_bits;
        let header = Header {
            shape: Shape { keys, window_bits },
            bumped: self.bumped,
            seed: self.seed,
            shared_bits: self.shared_bits,
            attempt: self.attempt,
            low_bits: self.low_bits,
        };
        Mphf::new(&header, bytes)
    }
}

/// The header of an encoded function, and values derived from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) shape: Shape,
    pub(super) bumped: u32,
    pub(super) seed: u32,
    /// Leading bits of the token that all keys share, less than 64.
    pub(super) shared_bits: u8,
    /// The seed that the tail was built with.
    pub(super) attempt: u8,
    /// Lower bits of the tail's table, derived from the rest by a division.
    pub(super) low_bits: u8,
}

impl Header {
    /// Reads the header of an encoded function, and checks it against the number of bytes, which
    /// must be exact. Constant time.
    ///
    /// # Errors
    /// The header does not fit the bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ViewError> {
        let (mut head, len) = Self::fields(bytes)?;
        if head.bumped > head.keys() {
            let field = "number of bumped keys";
            return Err(ViewError::Field { field });
        }
        let (tail, low_bits) = Tail::bytes(head.keys(), head.bumped, head.attempt);
        head.low_bits = low_bits;
        let expected = len + head.shape.buckets() + tail;
        if bytes.len() == expected {
            return Ok(head);
        }
        Err(ViewError::Length {
            bytes: bytes.len(),
            expected: expected as u64,
        })
    }

    pub(super) fn keys(&self) -> u32 {
        self.shape.keys
    }

    /// Bytes of the header itself.
    #[inline]
    pub(super) fn len(&self) -> usize {
        if is_wide(self.keys()) {
            WIDE_LEN
        } else {
            NARROW_LEN
        }
    }

    /// The part of the seed that a function with this many keys stores.
    pub(super) fn seed_kept(seed: u64, keys: u32) -> u32 {
        let folded = (seed ^ (seed >> 32)) as u32;
        if is_wide(keys) {
            folded
        } else {
            (folded ^ (folded >> 16)) & 0xffff
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let wide = is_wide(self.keys());
        let tag = VERSION | if wide { WIDE } else { 0 } | self.attempt << 4;
        out.extend_from_slice(&[tag, self.shared_bits]);
        let fields = [self.keys(), self.bumped, self.seed];
        if wide {
            out.extend_from_slice(&[0, 0]);
            out.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        } else {
            out.extend(
                fields
                    .iter()
                    .flat_map(|field| (*field as u16).to_le_bytes()),
            );
        }
    }

    /// The fields, and their length in bytes.
    fn fields(bytes: &[u8]) -> Result<(Self, usize), ViewError> {
        let truncated = ViewError::Truncated { bytes: bytes.len() };
        let narrow = bytes.first_chunk::<NARROW_LEN>().ok_or(truncated)?;
        let [tag, shared_bits, n @ .., s0, s1] = *narrow;
        let version = tag & (WIDE - 1);
        if version != VERSION {
            return Err(ViewError::Version { version });
        }
        if shared_bits >= 64 {
            let field = "number of shared bits";
            return Err(ViewError::Field { field });
        }
        let head = |keys, bumped, seed| Self {
            shape: Shape::of(keys),
            bumped,
            seed,
            shared_bits,
            attempt: tag >> 4,
            low_bits: 0,
        };
        if tag & WIDE == 0 {
            let half = |low, high| u32::from(u16::from_le_bytes([low, high]));
            let head = head(half(n[0], n[1]), half(n[2], n[3]), half(s0, s1));
            return Ok((head, NARROW_LEN));
        }
        let wide = bytes.first_chunk::<WIDE_LEN>().ok_or(truncated)?;
        let word =
            |at: usize| u32::from_le_bytes([wide[at], wide[at + 1], wide[at + 2], wide[at + 3]]);
        let keys = word(4);
        if wide[2..4] != [0; 2] || !is_wide(keys) || keys as usize > super::MAX_KEYS {
            let field = "number of keys";
            return Err(ViewError::Field { field });
        }
        Ok((head(keys, word(8), word(12)), WIDE_LEN))
    }
}

/// Whether this many keys need the wide form.
fn is_wide(keys: u32) -> bool {
    keys > u32::from(u16::MAX)
}
