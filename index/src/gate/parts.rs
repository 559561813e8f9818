//! Which bits of a digest the gate uses.
//!
//! | part | bits | selects |
//! |---|---|---|
//! | `block` | the upper 32 of [`Digest::low`] | the block |
//! | `g1` | the lower 32 of [`Digest::low`] | first probe |
//! | `g2` | the lower 32 of [`Digest::high`] | step |
//!
//! The three are disjoint, so independent. The keys of one partition share the upper bits of
//! [`Digest::high`] (up to 24 of them), which are not used here. `g1` and `g2` come from different
//! halves, so even a digest with one poor half keeps one good part.
//!
//! The MPHF may use the same bits of the digest: it is read only for keys that pass the gate, and
//! its answer for a non-member is checked against the stored key, so a shared bit costs nothing. A
//! *fingerprint* checked after the gate must be derived by mixing all 128 bits, not cut from the 96
//! used here.
//!
//! Taken modulo the 512 bits of a block, double hashing has only 2^17 different sequences. With
//! about 50 keys per block, sequences that are equal, or differ in one probe, add a fifth to the
//! rate at 1 % and double it at 0.1 %. So `g1 + i * g2` ranges over all 32 bits, as in the paper,
//! and each member is then scattered over the block.

use super::sizing::BLOCK_BYTES;
use torc_record::Digest;

/// 2^32 over the golden ratio, odd: multiples spread evenly (Knuth, volume 3, 6.4).
const GOLDEN: u32 = 0x9e37_79b9;

/// The three independent parts of a digest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    block: u32,
    g1: u32,
    g2: u32,
}

impl Parts {
    #[inline]
    pub(super) fn of(digest: &Digest) -> Self {
        let low = digest.low();
        Self {
            block: (low >> 32) as u32,
            g1: (low & 0xffff_ffff) as u32,
            g2: (digest.high() & 0xffff_ffff) as u32,
        }
    }

    /// Offset of the key's block among `len` bytes of blocks. Less than `len`, if that is between 1
    /// and 2^32.
    #[inline]
    pub(super) fn block_start(self, len: usize) -> usize {
        let byte = (u64::from(self.block) * len as u64) >> 32;
        byte as usize & !(BLOCK_BYTES - 1)
    }

    /// The probed bits of a block of `block_len` bytes, each less than `8 * block_len`.
    #[inline]
    pub(super) fn probes(self, count: u32, block_len: usize) -> impl Iterator<Item = usize> {
        let bits = 8 * block_len as u64;
        (0..count).map(move |i| {
            let member = self.g1.wrapping_add(i.wrapping_mul(self.g2));
            ((u64::from(scatter(member)) * bits) >> 32) as usize
        })
    }
}

/// Breaks up the arithmetic progression; the upper bits of the result are used.
#[inline]
fn scatter(member: u32) -> u32 {
    (member ^ (member >> 15)).wrapping_mul(GOLDEN)
}
