//! The lecture's claims.

pub(super) mod balls;
pub(super) mod bloom;
pub(super) mod count_min;
pub(super) mod heavy;
pub(super) mod inner;
pub(super) mod majority;
pub(super) mod matrix;
pub(super) mod membership;
pub(super) mod positions;
pub(super) mod rabin;
pub(super) mod rehash;
pub(super) mod sizing;

use torc_record::Digest;
use torc_sketch::SeedStream;

use super::Sizes;

/// The digest that stands for a number.
fn digest(key: u64) -> Digest {
    Digest(
        SeedStream::new(key ^ 0x5bd1_e995_0000_0000)
            .next_u128()
            .to_be_bytes(),
    )
}

/// A key below `keys`; key i is about i times rarer than the first.
fn skewed(seeds: &mut SeedStream, keys: u64) -> u64 {
    let uniform = seeds.below(1 << 53) as f64 / (1_u64 << 53) as f64;
    (keys as f64).powf(uniform) as u64 - 1
}
