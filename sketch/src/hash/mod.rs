//! Families of hash functions: what "a random function" means for a sketch, and for how many coefficients.
//!
//! A single function is not universal; a family is, and a seed picks one of it.
//!
//! | family | guarantee, for x != y | coefficients | used by |
//! |---|---|---|---|
//! | [`MultiplyShift`] | strongly universal: (h(x), h(y)) uniform over pairs | two of 128 bits | rows of the sketches |
//! | [`MultiplyShift32`] | the same, of 32 bits by 64-bit arithmetic | two of 64 bits | whoever has only 32 bits |
//! | [`DigitHash`] | universal: Pr\[h(x) = h(y)\] <= 1/m, the lecture's | one a base-m digit | the lecture's theorem, beside the above |
//! | [`DoubleHash`] | probes that serve a large Bloom filter as well as independent ones | none | the idea behind the gate's; measured by `torc-bench theory` |
//!
//! All take bits of a digest that was computed once; none hashes a key.

mod digits;
mod double;
mod multiply_shift;
pub mod prime;

pub use digits::{DigitHash, ModulusTooLarge};
pub use double::{DoubleHash, Probes};
pub use multiply_shift::{HashBitsError, MultiplyShift, MultiplyShift32};
