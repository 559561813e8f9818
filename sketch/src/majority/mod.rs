//! Majority: which key has more than half of the stream, if one has?
//!
//! *Answer*: one key. If some key has more than half of the stream, it is that one; if none has, the answer means
//! nothing, and a count (exact or from a sketch) tells which. Deterministic, without ε or δ. Both
//! algorithms are in the lecture: [`MajorityCounter`] needs 32 bytes and one comparison, [`MajorityBits`] a count a
//! digest bit, 1,032 bytes, but it is linear and so allows deletion and subtraction.

mod bits;
mod counter;

pub use bits::MajorityBits;
pub use counter::MajorityCounter;
