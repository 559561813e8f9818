//! Maps a digest to its bucket, and to the two vertices of its edge.

use torc_record::Digest;

/// The bucket: the token's position on its arc, scaled. Buckets are in ring order.
#[inline]
pub(super) fn bucket(digest: &Digest, prefix_bits: u8, buckets: u32) -> u32 {
    let place = digest.high() << prefix_bits;
    ((u128::from(place) * u128::from(buckets)) >> 64) as u32
}

/// The hash function of one try at a bucket.
///
/// A digest is already uniform; a try must only make its edges independent of those of another try.
/// Multiplying both halves and folding the product does that (as in wyhash), and distinguishes all
/// different digests.
#[derive(Debug, Clone, Copy)]
pub(super) struct EdgeHash {
    low: u64,
    high: u64,
}

impl EdgeHash {
    #[inline]
    pub(super) fn new(seed: u64, attempt: u16) -> Self {
        // SplitMix64's finalizer (Steele, Lea, Flood 2014).
        let z = seed.wrapping_add((u64::from(attempt) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = z ^ (z >> 31);
        Self {
            low: z,
            high: z.rotate_left(32),
        }
    }

    /// Two different vertices below `vertices`, which is at least 2.
    #[inline]
    pub(super) fn edge(self, digest: &Digest, vertices: usize) -> (usize, usize) {
        let product = u128::from(digest.low() ^ self.low) * u128::from(digest.high() ^ self.high);
        let word = (product >> 64) as u64 ^ product as u64;
        let vertices = vertices as u64;
        let first = ((word >> 32) * vertices) >> 32;
        let second = ((word & 0xffff_ffff) * (vertices - 1)) >> 32;
        // A loop would make its key's sum even, so the first vertex is skipped.
        let second = second + u64::from(second >= first);
        (first as usize, second as usize)
    }
}
