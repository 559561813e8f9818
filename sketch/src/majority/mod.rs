//! Majority: which key has more than half of the stream, if any?
//!
//! *Answer*: one key. If some key has more than half of the stream, it is that one; otherwise the
//! answer is meaningless, and a count (exact or from a sketch) tells which case holds.
//! Deterministic, without ε or δ. Both algorithms are from the lecture: [`MajorityCounter`] needs
//! 32 bytes and one comparison, [`MajorityBits`] one count per digest bit, 1,032 bytes, but it is
//! linear and so allows deletion and subtraction.

mod bits;
mod counter;

pub use bits::MajorityBits;
pub use counter::MajorityCounter;
