//! GigaHash: minimal perfect hashing with a random graph in each of many small buckets.
//!
//! A second implementation of [`PerfectHash`](crate::PerfectHash), built as in its paper, to
//! reproduce the paper's Table 1 and for comparison. Slices use [`Mphf`](crate::Mphf), which is
//! three times smaller and many times faster to look up. The paper: Chellapilla, Mityagin, Charles,
//! "GigaHash: Scalable Minimal Perfect Hashing for Billions of URLs", WWW 2007, section 2.
//!
//! # How it works
//! The keys are divided into buckets of 160 to 180 on average, here by the token, so that buckets
//! are in ring order. In a bucket of `n` keys, each key is an edge between two of `c n` vertices,
//! chosen by hashes of its digest and of the number of a try (`hash`). Vertices get values `g` such
//! that `(g(a) + g(b)) mod n` differs for all edges (a, b): that is the key's slot in its bucket.
//! * The peeled part of the graph can always be labelled. The 2-core, 49 to 73 % of the edges at c
//!   = 1.15 to 0.89, is labelled first and may fail (`graph`, `solve`); then the next try draws
//!   another graph.
//! * With c = 2.09, a graph may have no 2-core at all, which is the paper's baseline:
//!   [`Settings::acyclic`].
//! * Two parallel edges never get different labels. A graph has none with probability
//!   `exp(-1/c^2)`: 47 % at 1.15, 28 % at 0.89. Other tries end while the graph is drawn.
//! * Vertices take the smallest possible values, so many are 0 (as are unused vertices), and small
//!   ones are frequent. A bit vector of zeros, a Huffman code, or both encode them ([`Encoding`]).
//!
//! Huffman codes allow no random access: a lookup decodes from the start of its bucket, 100 codes
//! on average.
//!
//! # Jobs
//! This crate has no threads. [`BuildPlan::build_range`] solves any range of buckets on the
//! caller's thread; [`BuildPlan::assemble`] joins the outcomes. The bytes do not depend on the
//! ranges.
//!
//! # Measured
//! `cargo bench-suite index --gigahash` measures the paper's Table 1 on
//! 10 million generated URLs (the paper: one billion crawled ones). Bits per key are those of the whole
//! function, including 0.25 for offsets. "Predicted" is an earlier implementation without offsets.
//!
//! | c | zeros: paper | predicted | ours | bit-vector: paper | predicted | ours | Huffman: paper | predicted | ours | both, ours | tries a bucket (most) |
//! |---|---|---|---|---|---|---|---|---|---|---|---|
//! | 1.15 | 22.99 % | 22.5 | 22.5 | 8.10 | 8.30 | 8.58 | 8.09 | 7.49 | 7.56 | 7.81 | 9.8 (110) |
//! | 1.00 | 18.52 % | 16.9 | 16.9 | 7.59 | 7.65 | 7.92 | 7.43 | 6.91 | 6.89 | 7.22 | 14.6 (152) |
//! | 0.95 | 16.26 % | | 15.3 | 7.39 | | 7.69 | 7.19 | | 6.65 | 7.01 | 16.7 (182) |
//! | 0.93 | 15.35 % | 14.6 | 14.6 | 7.31 | 7.31 | 7.58 | 7.08 | 6.60 | 6.54 | 6.91 | 17.6 (262) |
//! | 0.90 | 14.02 % | | 13.6 | 7.17 | | 7.42 | 6.90 | | 6.38 | 6.77 | 19.6 (218) |
//! | 0.89 | 13.54 % | 13.3 | 13.3 | 7.13 | 7.09 | 7.36 | 6.86 | 6.40 | 6.32 | 6.72 | 20.2 (205) |
//!
//! * Zeros: unused vertices are `exp(-2/c)` of all, 10.6 % at 0.89 and 17.6 % at 1.15; the others are the first
//!   vertices of components and of the 2-core. The paper does not say how it chooses among possible values, which
//!   affects the share.
//! * Bit vector: `c (1 - p0) 8 + c` bits by the encoding, plus offsets; the paper's figures are within 0.07 of
//!   `c (1 - p0) 8 + 1`, without offsets.
//! * Huffman is 0.5 bits better than the paper: vertices take the smallest possible value, in trees as well, so small
//!   values are frequent. It is also 0.2 to 0.3 better than predicted: zeros agree, the other values are more skewed.
//! * Time with 1 M keys and one thread on an idle two-core machine: 209 to 270 ns per key to build; a dependent lookup
//!   takes 65 to 72 ns with the bit vector and 420 to 590 ns with the Huffman code, a batched one 50 to 55 and 390 to
//!   560 ns. With two thirds of the machine busy otherwise: 360 to 460 ns per key, and no gain from a second thread,
//!   because there was no second core.
//! * A billion keys at c = 0.89: 0.79 GB (paper 0.86); 250 to 400 s on one thread by these figures (paper: 234 s on two
//!   processors of 2006); 19.4 GB of memory to build at once: 16 for digests, 1.8 for values, and twice the function.
//!   Lookups take 50 to 130 s with the bit vector and 390 to 840 s with the Huffman code (paper: 23.7 s, without saying
//!   for which).
//!
//! Invariants:
//! * A permutation of `0..n` on the digests that it was built from; below `n` for all others.
//! * The bytes depend on the digests (sorted, without duplicates) and the settings alone: neither on the jobs nor on
//!   the host. `layout` defines them.
//! * A view over any bytes answers within its bounds, without panic, in time bounded by a bucket.
//!
//! Absent on purpose: reading and splitting text, the paper's own 64-bit fingerprints (digests come in), and threads.

#![expect(
    clippy::cast_possible_truncation,
    reason = "fewer than 2^32 keys, at most 511 of them and 1,073 vertices in a bucket, codes of at most 13 bits; usize has 64"
)]

mod assemble;
mod bits;
mod error;
mod graph;
mod hash;
mod huffman;
mod layout;
mod plan;
mod settings;
mod solve;
mod solved;
mod view;

pub use error::{GigaBuildError, GigaViewError};
pub use plan::BuildPlan;
pub use settings::{Encoding, Settings, VERTICES_PER_1024_KEYS};
pub use solved::{SolvedGraph, SolvedRange};
pub use view::{Footprint, GigaHash};

use torc_record::Digest;

/// Limit on the keys of a bucket. The mean is 160 to 180, so keyed hashes never come near it.
pub const MAX_BUCKET_KEYS: usize = 511;
/// Limit on the leading bits that all digests share: those of a partition's number.
pub const MAX_PREFIX_BITS: u8 = 24;
/// Limit on the seeds tried for a bucket.
pub const MAX_TRIES: u16 = 1_024;

impl GigaHash<'_> {
    /// Builds the function of sorted digests in one job. [`BuildPlan`] uses several.
    ///
    /// # Errors
    /// As [`BuildPlan::new`] and [`BuildPlan::build_range`].
    pub fn build(digests: &[Digest], settings: Settings) -> Result<Vec<u8>, GigaBuildError> {
        let plan = BuildPlan::new(digests, settings)?;
        let all = plan.build_range(0..plan.buckets())?;
        plan.assemble(&[all])
    }
}
