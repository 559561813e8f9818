//! The mixing functions, from which everything derived from a digest comes.

use torc_record::Digest;

/// An odd constant without structure: 2^64 divided by the golden ratio.
pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number below `range`, proportional to `fraction` of 2^64.
#[inline]
pub(super) fn scale(fraction: u64, range: usize) -> usize {
    // The upper half of the product.
    ((u128::from(fraction) * range as u128) >> 64) as usize
}

/// A bijection of 64 bits whose every output bit depends on every input bit (the finalizer
/// of `SplitMix64`: Steele, Lea and Flood 2014).
#[inline]
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64 bits that depend on the whole digest, different for every seed and attempt.
#[inline]
pub(super) fn whole(digest: Digest, seed: u32, attempt: u8) -> u64 {
    let seed = u64::from(seed) << 9 | u64::from(attempt) << 1;
    mix(digest.low() ^ digest.high().wrapping_mul(GOLDEN ^ seed))
}

/// Hashes the same key differently for every pilot: multiplies by an odd number. Callers use the top
/// bits.
#[inline]
pub(super) fn piloted(hash: u64, pilot: u8) -> u64 {
    hash.wrapping_mul(GOLDEN ^ u64::from(pilot) << 1)
}
