//! The Bloom gate: answers most misses with one cache line, before the MPHF is read.
//!
//! A *blocked* Bloom filter (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom
//! Filters, 2009): each key belongs to one block of 64 bytes, and all its probes are in that block.
//! Within it they follow double hashing (Kirsch, Mitzenmacher: Less Hashing, Same Performance,
//! 2006): probe `i` is `g1 + i * g2`, from two independent 32-bit parts of the digest. The module
//! `parts` chooses these bits of the digest, and spreads the probes over the block.
//!
//! # Bytes
//! ```text
//! blocks   a bytes   blocks of 64 bytes; the last one may be shorter, down to 1 byte
//! probes   1 byte    probes a key, 1 to 24; 0 exactly when a = 0, the gate of no keys
//! format   1 byte    1
//! ```
//! The parameters are at the *end*, so that the blocks keep the alignment of the whole: place a
//! gate at a multiple of 64 bytes, and each lookup touches one cache line. The total length is
//! arbitrary; 24 keys at 1 % take 31 bytes. Bit `b` of a block is bit `b % 8` of its byte `b / 8`.
//! A key belongs to a block with a probability proportional to the block's length, so a short last
//! block is as full as the others.
//!
//! # Size
//! An unblocked filter needs `m = n log2(1/δ) / ln 2` bits. Blocks fill unevenly (their number of
//! keys is binomial), and the rate of the fullest ones dominates. [`sizing`] takes that loss into
//! account. Measured by `cargo run --release -p torc-index --example gate_rates`:
//!
//! | δ | keys | unblocked, bits per key | bits per key in total | measured rate / δ |
//! |---|---|---|---|---|
//! | 5 % | 24 | 6.24 | 7.00 | 0.98 |
//! | 5 % | 2,441 | 6.24 | 6.33 | 1.00 |
//! | 5 % | 1 M | 6.24 | 6.32 | 1.00 |
//! | 1 % | 24 | 9.59 | 10.67 | 0.88 |
//! | 1 % | 100 | 9.59 | 10.00 | 0.98 |
//! | 1 % | 2,441 | 9.59 | 9.92 | 0.99 |
//! | 1 % | 65,536 | 9.59 | 9.92 | 1.01 |
//! | 1 % | 1 M, 10 M | 9.59 | 9.92 | 1.00, 0.99 |
//! | 0.1 % | 24 | 14.38 | 15.33 | 0.91 |
//! | 0.1 % | 2,441 | 14.38 | 15.56 | 0.99 |
//! | 0.1 % | 1 M | 14.38 | 15.55 | 0.99 |
//!
//! Predicted: a rate of 1 and, at 1 %, at most 10.6 bits. The rate of a single gate of 10 M keys
//! deviates from its expectation far less than the sample of 4 M non-members does (0.5 % of δ at 1
//! %). On a shared two-core machine, building took 8 to 40 ns per key, plus the time to compute the
//! size, and a query took 10 to 40 ns; from 10 M keys on, that is a cache miss.
//!
//! Invariants:
//! * No false negatives: every key given to [`Gate::build`] passes.
//! * The bytes depend on the digests and δ alone: neither on their order nor on the host.
//! * A view over any bytes answers without panic in `O(probes)`; the answer is only meaningful for
//!   bytes from [`Gate::build`].
//!
//! Absent on purpose: deletion and growth (a sealed slice has neither), and the number of keys (the
//! slice has it).

mod build;
mod error;
mod parts;
pub mod sizing;

pub use error::GateError;
use parts::Parts;
use sizing::{BLOCK_BYTES, GateSize};
use torc_record::Digest;

/// Limit on the probes per key.
pub const MAX_PROBES: u32 = 24;
/// Smallest false positive rate of a gate.
pub const MIN_RATE: f64 = 1e-6;
/// Largest false positive rate of a gate.
pub const MAX_RATE: f64 = 0.5;
/// Bytes after the blocks: probes, format.
const TRAILER_BYTES: usize = 2;
/// The only format.
const FORMAT: u8 = 1;

/// A blocked Bloom filter over borrowed bytes; see the [module](self).
///
/// Building: [`Gate::build`], [`Gate::size_bytes`]. Queries: [`Gate::may_contain`],
/// [`Gate::prefetch`]. A copy is a pointer, a length and the number of probes.
#[derive(Debug, Clone, Copy)]
pub struct Gate<'a> {
    blocks: &'a [u8],
    probes: u32,
}

impl<'a> Gate<'a> {
    /// Builds the gate of `digests` with this false positive rate (0.01 is 1 %). Duplicates are
    /// harmless. Takes about 10 ns per key while the gate fits the cache, plus 5 to 30 us for the
    /// size.
    ///
    /// # Errors
    /// [`GateError::Rate`] and [`GateError::TooMany`]; nothing was built.
    pub fn build(digests: &[Digest], false_positive_rate: f64) -> Result<Vec<u8>, GateError> {
        let size = GateSize::for_keys(digests.len(), false_positive_rate)?;
        Ok(build::build(digests, size))
    }

    /// As [`Gate::build`], with a size computed before, for many gates of about as many keys.
    /// `size` is that of [`GateSize::for_keys`] for at least as many keys: with a smaller one, the
    /// gate still holds every key, but its false positive rate is higher.
    #[must_use]
    pub fn build_sized(digests: &[Digest], mut size: GateSize) -> Vec<u8> {
        if !digests.is_empty() {
            // Without blocks or probes, the gate would exclude every key or none.
            size.block_bytes = size.block_bytes.max(1);
            size.probes = size.probes.clamp(1, MAX_PROBES);
        }
        build::build(digests, size)
    }

    /// Length of the gate that [`Gate::build`] makes for `n` keys, bytes.
    ///
    /// # Errors
    /// As [`Gate::build`].
    pub fn size_bytes(n: usize, false_positive_rate: f64) -> Result<usize, GateError> {
        let size = GateSize::for_keys(n, false_positive_rate)?;
        Ok(size.block_bytes + TRAILER_BYTES)
    }

    /// Views bytes as a gate: the whole of `bytes`, whose length gives the number of blocks.
    /// Constant time; parses and copies nothing.
    ///
    /// # Errors
    /// [`GateError::Truncated`], [`GateError::Format`], [`GateError::Probes`] and
    /// [`GateError::TooMany`] if [`Gate::build`] cannot have made these bytes.
    pub fn view(bytes: &'a [u8]) -> Result<Self, GateError> {
        let Some((blocks, &[probes, format])) = bytes.split_last_chunk::<TRAILER_BYTES>() else {
            return Err(GateError::Truncated { len: bytes.len() });
        };
        if format != FORMAT {
            return Err(GateError::Format { found: format });
        }
        let probes = u32::from(probes);
        if probes > MAX_PROBES || (probes == 0) != blocks.is_empty() {
            return Err(GateError::Probes { found: probes });
        }
        if blocks.len() as u64 > sizing::MAX_BLOCK_BYTES {
            return Err(GateError::TooMany);
        }
        Ok(Self { blocks, probes })
    }

    /// Bytes after the blocks of an encoded gate.
    pub const TRAILER_BYTES: usize = TRAILER_BYTES;

    /// The gate with these blocks, which are all bytes of a valid gate without the last
    /// [`Gate::TRAILER_BYTES`]: lets lookups touch a single cache line, and lets the caller align
    /// the blocks to cache lines. Any bytes are safe.
    #[inline]
    #[must_use]
    pub fn over(blocks: &'a [u8], probes: u32) -> Self {
        Self {
            blocks,
            probes: if probes > MAX_PROBES {
                MAX_PROBES
            } else {
                probes
            },
        }
    }

    /// Whether the gate may contain the key. `false` is certain; `true` is wrong at the false
    /// positive rate. Reads one cache line.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, digest: &Digest) -> bool {
        let parts = Parts::of(digest);
        let block = self.block(&parts);
        if let Ok(line) = <&[u8; BLOCK_BYTES]>::try_from(block) {
            holds_all(line, self.probes, parts)
        } else if block.is_empty() {
            false
        } else {
            holds_all(block, self.probes, parts)
        }
    }

    /// Prefetches the cache line that [`Gate::may_contain`] will read. Worthwhile before several
    /// queries in a row.
    #[inline]
    pub fn prefetch(&self, digest: &Digest) {
        crate::prefetch(
            self.blocks,
            Parts::of(digest).block_start(self.blocks.len()),
        );
    }

    /// Bytes in memory and on disk.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.blocks.len() + TRAILER_BYTES
    }

    /// Probes per key.
    #[must_use]
    pub const fn probes(&self) -> u32 {
        self.probes
    }

    #[inline]
    fn block(&self, parts: &Parts) -> &'a [u8] {
        let start = parts.block_start(self.blocks.len());
        let rest = self.blocks.get(start..).unwrap_or_default();
        &rest[..rest.len().min(BLOCK_BYTES)]
    }
}

/// Reads all probes without an early exit: at half-full blocks, an early exit is a mispredicted
/// branch for nearly every non-member, which costs more than the probes that it saves.
#[inline]
fn holds_all<B: AsRef<[u8]> + ?Sized>(block: &B, probes: u32, parts: Parts) -> bool {
    let block = block.as_ref();
    let mut all = 1;
    for bit in parts.probes(probes, block.len()) {
        all &= block[bit / 8] >> (bit % 8);
    }
    all & 1 == 1
}
