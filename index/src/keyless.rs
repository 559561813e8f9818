//! A table of a known set of keys that does not store the keys.
//!
//! The conclusion of the discussion of D. Lemire's essay ("hash tables without storing the keys"):
//! if the set is known in advance, a perfect hash function gives each key its own slot, and a few
//! bits of another hash in that slot tell members from others. A member is always found; f bits
//! give a false positive rate of 2^-f. That takes 2.1 + f bits per key: at 1/256, 10.1 bits, where
//! a Bloom filter takes 11.5, and each member also has a number that can index data.
//!
//! # Bytes
//! All numbers are little-endian.
//!
//! ```text
//! 0   u8   format, 1
//! 1   u8   f, bits of a fingerprint, 1 to 32
//! 2   u64  bytes of the function
//! 10       the function, an [`Mphf`]
//!          the fingerprints in the order of slots, f bits each, lowest bit first, without gaps
//! ```
//!
//! Invariants: every member is found; any bytes are refused or answer without panic.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a fingerprint has at most 32 bits, and usize has 64"
)]

use torc_record::Digest;

use crate::mphf::mix;
use crate::{BuildError, Mphf, ViewError};

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 10;
const MAX_FINGERPRINT_BITS: u32 = 32;

/// Why a set was not built. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeylessError {
    /// The function of the digests could not be built.
    #[error(transparent)]
    Function(#[from] BuildError),
    /// No bits per fingerprint, or too many.
    #[error("fingerprints of {bits} bits, 1 to {MAX_FINGERPRINT_BITS} are possible")]
    Bits {
        /// The requested number of bits.
        bits: u32,
    },
}

/// Why bytes are not a set. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeylessViewError {
    /// Made by another version, or not a set.
    #[error("the bytes are no keyless set of format {FORMAT}")]
    Format,
    /// The function in it is not readable.
    #[error(transparent)]
    Function(#[from] ViewError),
    /// The fingerprints do not match the function.
    #[error("{found} bytes of fingerprints, {expected} belong to the function")]
    Fingerprints {
        /// Bytes for the function's keys.
        expected: u64,
        /// Actual bytes.
        found: usize,
    },
}

/// A set of digests over borrowed bytes; see the [crate's](crate) examples `boilerplate` and `dense_ids`.
///
/// Building: [`KeylessSet::build`]. Queries: [`KeylessSet::find`], [`KeylessSet::contains`].
#[derive(Debug, Clone, Copy)]
pub struct KeylessSet<'a> {
    function: Mphf<'a>,
    fingerprints: &'a [u8],
    bits: u32,
}

/// Bits of a digest that are independent of the function's slot.
fn fingerprint(digest: &Digest, bits: u32) -> u32 {
    let mixed = mix(digest.high().rotate_left(32) ^ digest.low());
    (mixed >> (u64::BITS - bits)) as u32
}

const fn fingerprint_bytes(keys: usize, bits: u32) -> u64 {
    (keys as u64 * bits as u64).div_ceil(8)
}

impl<'a> KeylessSet<'a> {
    /// Encodes the set of some digests in ascending order, with fingerprints of `bits` bits: the
    /// false positive rate is 2^-`bits`. Takes about 150 ns per key. The same digests, bits and
    /// seed give the same bytes on every host.
    ///
    /// # Errors
    /// [`KeylessError`]: as [`Mphf::build`], or the number of bits is out of range.
    pub fn build(digests: &[Digest], bits: u32, seed: u64) -> Result<Vec<u8>, KeylessError> {
        if !(1..=MAX_FINGERPRINT_BITS).contains(&bits) {
            return Err(KeylessError::Bits { bits });
        }
        let function = Mphf::build(digests, seed)?;
        let mut out = vec![FORMAT, bits as u8];
        out.extend((function.len() as u64).to_le_bytes());
        out.extend_from_slice(&function);
        // Always succeeds for a function that was just built.
        if let Ok(function) = Mphf::view(&function) {
            out.extend(Self::fingerprints(function, digests, bits)?);
        }
        Ok(out)
    }

    /// The fingerprints of a function's digests, for a caller that stores function and fingerprints
    /// in its own way; [`KeylessSet::of`] reads them.
    ///
    /// # Errors
    /// [`KeylessError::Bits`].
    pub fn fingerprints(
        function: Mphf<'_>,
        digests: &[Digest],
        bits: u32,
    ) -> Result<Vec<u8>, KeylessError> {
        if !(1..=MAX_FINGERPRINT_BITS).contains(&bits) {
            return Err(KeylessError::Bits { bits });
        }
        let mut out = vec![0; fingerprint_bytes(function.len(), bits) as usize];
        for digest in digests {
            let fingerprint = fingerprint(digest, bits);
            write(&mut out, function.slot(digest), bits, fingerprint);
        }
        Ok(out)
    }

    /// Views all of `bytes` as a set. Constant time; parses and copies nothing.
    ///
    /// # Errors
    /// [`KeylessViewError`] if no [`KeylessSet::build`] can have made these bytes.
    pub fn view(bytes: &'a [u8]) -> Result<Self, KeylessViewError> {
        let header = bytes.split_first_chunk::<HEADER_BYTES>();
        let (header, rest) = header.ok_or(KeylessViewError::Format)?;
        let [format, bits, len @ ..] = *header;
        let bits = u32::from(bits);
        if format != FORMAT {
            return Err(KeylessViewError::Format);
        }
        let len = usize::try_from(u64::from_le_bytes(len)).unwrap_or(usize::MAX);
        let split = rest.split_at_checked(len);
        let (function, fingerprints) = split.ok_or(KeylessViewError::Format)?;
        Self::of(Mphf::view(function)?, fingerprints, bits)
    }

    /// The set of a function and its fingerprints. Constant time.
    ///
    /// # Errors
    /// [`KeylessViewError`] if they do not fit each other.
    pub fn of(
        function: Mphf<'a>,
        fingerprints: &'a [u8],
        bits: u32,
    ) -> Result<Self, KeylessViewError> {
        if !(1..=MAX_FINGERPRINT_BITS).contains(&bits) {
            return Err(KeylessViewError::Format);
        }
        let expected = fingerprint_bytes(function.len(), bits);
        let found = fingerprints.len();
        if expected != found as u64 {
            return Err(KeylessViewError::Fingerprints { expected, found });
        }
        Ok(Self {
            function,
            fingerprints,
            bits,
        })
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.function.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.function.is_empty()
    }

    /// The false positive rate, 2^-f.
    #[must_use]
    pub fn rate(&self) -> f64 {
        0.5_f64.powi(self.bits.cast_signed())
    }

    /// The member's own number below [`KeylessSet::len`], which can index data about it. `None` for
    /// other digests, except for false positives. Takes two cache misses.
    #[must_use]
    pub fn find(&self, digest: &Digest) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let slot = self.function.slot(digest);
        let is_same = read(self.fingerprints, slot, self.bits) == fingerprint(digest, self.bits);
        is_same.then_some(slot)
    }

    /// Whether the digest is a member. `false` is certain; `true` is wrong at the rate
    /// [`KeylessSet::rate`].
    #[must_use]
    pub fn contains(&self, digest: &Digest) -> bool {
        self.find(digest).is_some()
    }
}

/// Writes field `index` of `bits` bits, whose old value must be zero.
fn write(fields: &mut [u8], index: usize, bits: u32, value: u32) {
    for bit in 0..bits {
        let at = index * bits as usize + bit as usize;
        if let Some(byte) = fields.get_mut(at / 8) {
            *byte |= ((value >> bit & 1) as u8) << (at % 8);
        }
    }
}

/// Reads field `index` of `bits` bits; zeros after the end.
fn read(fields: &[u8], index: usize, bits: u32) -> u32 {
    let at = index * bits as usize;
    let mut word = [0; 8];
    let rest = fields.get(at / 8..).unwrap_or_default();
    let len = rest.len().min(word.len());
    word[..len].copy_from_slice(&rest[..len]);
    let mask = (1_u64 << bits) - 1;
    (u64::from_le_bytes(word) >> (at % 8) & mask) as u32
}
