//! Was this key ever seen? Bloom filters that are filled one key at a time.
//!
//! *Question*: is the key in the set? *Answer*: "no" is certain; "yes" is wrong for a stranger with probability δ. *Bits*:
//! 1.44 log2(1/δ) a key, whatever the keys are (Bloom 1970, in the form of the lecture: S. Jiang, Hash methods, 2023).
//!
//! | type | does | bits a key at 1 % |
//! |---|---|---|
//! | [`BloomFilter`] | insert, ask, union, intersection, estimate of the number of keys; bytes to send | 9.6 |
//! | [`GrowingBloom`] | the same without knowing how many keys will come; no intersection | 11 to 34, by how full the last level is |
//! | [`CountingBloom`] | deletion too, the lecture's (i, ±1) | 38.3 |
//!
//! The gate in front of a slice, [`torc_index::Gate`], is another: blocked, for one cache miss a lookup, and built at once.
//!
//! n keys in m bits with T probes each let a stranger in with probability (1 - e^(-nT/m))^T, least at T = (m/n) ln 2; so m = n
//! log2(1/δ) / ln 2 and T = log2(1/δ) for the rate δ. That arithmetic has one place, [`torc_index::gate::sizing`], which is
//! exported here. A filter needs bits in proportion to the keys, unlike count-min, which allows an error of εN that would
//! make nonsense of membership.
//!
//! Invariants:
//! * No false "no", whatever was inserted, merged or intersected; for [`CountingBloom`] as long as only what was inserted is deleted.
//! * Filters of one shape are combined bit by bit: the union is the filter of both sets, to the bit.
//! * Probes derive from the digest's last 64 bits, by SplitMix64, and are as good as independent: no key is hashed again. Two hashes
//!   ([`crate::hash::DoubleHash`]) are enough for large filters only: a stranger shares a key's whole progression of bits with probability n/m², and most of it with a
//!   multiple of that, which a small filter or a small δ shows (`torc-bench theory --only bloom`).
//!
//! Absent on purpose: blocks (the gate has them), seeds (a digest is keyed already), and time: a filter that should forget is
//! replaced by a new one, as `examples/one_hit_wonders.rs` does.

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
