//! What the fuzz targets share: keys to ask for.

use torc_record::Digest;

/// SplitMix64 (Steele, Lea, Flood 2014): the digests of a seed.
pub fn digests(seed: u64) -> impl Iterator<Item = Digest> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    std::iter::repeat_with(move || {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&next().to_be_bytes());
        bytes[8..].copy_from_slice(&next().to_be_bytes());
        Digest(bytes)
    })
}

/// A handful of digests to ask hostile bytes for: spread ones, and those of the corners.
pub fn asked() -> Vec<Digest> {
    let corners = [Digest([0; 16]), Digest([0xff; 16]), Digest([0x80; 16])];
    corners.into_iter().chain(digests(1).take(29)).collect()
}
