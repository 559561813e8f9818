//! Structures of the lecture that no node uses: for the examples and `torc-bench theory`.
//!
//! | type | use |
//! |---|---|
//! | [`MajorityBits`] | the key with more than half of a stream, one count per bit of a digest; [`MajorityCounter`](crate::MajorityCounter) is what nodes use |
//! | [`DigitHash`] | the lecture's universal family, by digits to the base m |
//! | [`MatrixHashes`], [`find_in_matrix`] | a rectangle in a rectangle, by rolling hashes |
//! | [`DynamicString`] | a string under insertion and deletion: the hash of any substring in O(log n), order in O(log² n) |

mod digit_hash;
mod dynamic;
mod majority_bits;
mod matrix;

pub use digit_hash::{DigitHash, ModulusTooLarge};
pub use dynamic::{DynamicString, DynamicStringError};
pub use majority_bits::MajorityBits;
pub use matrix::{Matrix, MatrixError, MatrixHashes, find_in_matrix};
