//! Has this key been seen? Bloom filters that are filled key by key.
//!
//! *Question*: is the key in the set? *Answer*: "no" is certain; "yes" is wrong with probability δ.
//! *Bits*: 1.44 log2(1/δ) per key, whatever the keys are (Bloom 1970, in the form of the lecture:
//! S. Jiang, Hash methods, 2023).
//!
//! | type | does | bits per key at 1 % |
//! |---|---|---|
//! | [`BloomFilter`] | insert, query, union, intersection, estimate of the number of keys; bytes to send | 9.6 |
//! | [`GrowingBloom`] | the same for any number of keys; no intersection | 11 to 34, by the fill of the last level |
//! | [`CountingBloom`] | also deletion, the lecture's (i, ±1) | 38.3 |
//!
//! The gate in front of a slice, [`torc_index::Gate`], is different: blocked, for one cache miss
//! per lookup, and built at once.
//!
//! n keys in m bits with T probes each have a false positive rate of (1 - e^(-nT/m))^T, which is
//! lowest at T = (m/n) ln 2; so m = n log2(1/δ) / ln 2 and T = log2(1/δ) for the rate δ.
//! [`torc_index::gate::sizing`] has that arithmetic, and is re-exported here. A filter needs bits
//! in proportion to the keys, unlike count-min, whose error of εN would be useless for membership.
//!
//! Invariants:
//! * No false "no", whatever was inserted, merged or intersected; for [`CountingBloom`], only if
//!   deleted keys were inserted before.
//! * Filters of one shape are combined bit by bit: the union is bit for bit the filter of both
//!   sets.
//! * Probes derive from the digest's last 64 bits, by SplitMix64, and behave as if independent: no
//!   key is hashed again. Two hashes ([`crate::hash::DoubleHash`]) suffice only for large filters:
//!   another key shares a key's whole progression of bits with probability n/m², and most of it
//!   with a multiple of that, which shows in a small filter or at a small δ (`torc-bench theory
//!   --only bloom`).
//!
//! Absent on purpose: blocks (the gate has them), seeds (a digest is keyed already), and time:
//! replace a filter that should forget by a new one, as `examples/one_hit_wonders.rs` does.

mod counting;
mod filter;
mod growing;
mod probes;
mod shape;
#[cfg(test)]
mod tests;

pub use counting::{CountingBloom, NotInserted};
pub use filter::{BloomDecodeError, BloomFilter, ShapesDiffer};
pub use growing::GrowingBloom;
pub use shape::{BloomShape, BloomShapeError, MAX_BITS, MAX_PROBES, MIN_RATE};
pub use torc_index::gate::sizing::{best_probes, bits_per_key, classic_rate};
