//! Families of hash functions: what "a random function" means for a sketch, and how many
//! coefficients it takes.
//!
//! A single function is not universal; a family is, and a seed selects one of its functions.
//!
//! | family | guarantee, for x != y | coefficients | used by |
//! |---|---|---|---|
//! | [`MultiplyShift`] | strongly universal: (h(x), h(y)) uniform over pairs | two of 128 bits | rows of the sketches |
//! | [`MultiplyShift32`] | the same for 32 bits, with 64-bit arithmetic | two of 64 bits | callers with only 32 bits |
//! | [`DigitHash`](crate::lecture::DigitHash) | universal: Pr\[h(x) = h(y)\] <= 1/m, the lecture's | one per base-m digit | the lecture's theorem |
//! | [`DoubleHash`] | probes that serve a large Bloom filter as well as independent ones | none | the idea behind the gate's; measured by `torc-bench theory` |
//!
//! All use bits of a digest that was computed once; none hashes a key.

mod double;
mod multiply_shift;
pub mod prime;

pub use double::{DoubleHash, Probes};
pub use multiply_shift::{HashBitsError, MultiplyShift, MultiplyShift32};
