//! The paper's claims.

pub(super) mod accesses;
pub(super) mod figure;
pub(super) mod proposition;
pub(super) mod table;

use torc_record::{Digest, DigestKey, NamespaceId};

use super::Sizes;
use crate::records;

/// Table 1's six values of c, with the number of zeros and the size for each.
struct PaperRow {
    c: f64,
    mphf_gb: f64,
    zeros_percent: f64,
    huffman_gb: f64,
    gain_percent: f64,
    bits: f64,
    huffman_bits: f64,
}

const fn row(c: f64, of: [f64; 6]) -> PaperRow {
    let [
        mphf_gb,
        zeros_percent,
        huffman_gb,
        gain_percent,
        bits,
        huffman_bits,
    ] = of;
    PaperRow {
        c,
        mphf_gb,
        zeros_percent,
        huffman_gb,
        gain_percent,
        bits,
        huffman_bits,
    }
}

const TABLE_1: [PaperRow; 6] = [
    row(1.15, [1.267, 22.99, 1.011, 20.12, 8.10, 8.09]),
    row(1.00, [1.114, 18.52, 0.929, 14.88, 7.59, 7.43]),
    row(0.95, [1.067, 16.26, 0.899, 13.43, 7.39, 7.19]),
    row(0.93, [1.048, 15.35, 0.885, 12.76, 7.31, 7.08]),
    row(0.90, [1.017, 14.02, 0.862, 11.92, 7.17, 6.90]),
    row(0.89, [1.008, 13.54, 0.858, 11.60, 7.13, 6.86]),
];

/// The digests of generated URLs, in order.
fn urls(keys: usize, seed: u64) -> Vec<Digest> {
    let mut cluster = DigestKey([7; 32]);
    cluster.0[..8].copy_from_slice(&seed.to_le_bytes());
    let digest = |index| Digest::of(&cluster, NamespaceId::DEFAULT, &records::key(index));
    let mut urls: Vec<Digest> = (0..keys as u64).map(digest).collect();
    urls.sort_unstable();
    urls
}
