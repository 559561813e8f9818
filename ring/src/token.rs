//! Positions on the hash circle.
//!
//! The circle is the whole of `u64`: the successor of `u64::MAX` is 0.

use std::fmt;

use serde::{Deserialize, Serialize};
use torc_record::Digest;

/// The first 64 bits of a digest: a position on the ring.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Token(pub u64);

impl Token {
    /// The first position.
    pub const MIN: Self = Self(0);
    /// The last position; its successor is [`Token::MIN`].
    pub const MAX: Self = Self(u64::MAX);

    /// The position of a key, from the digest computed once for its operation.
    #[must_use]
    pub fn of(digest: &Digest) -> Self {
        Self(digest.high())
    }
}

/// Sixteen hexadecimal digits, so that tokens sort as text too.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::Digest;

    #[test]
    fn a_token_is_the_big_endian_head_of_the_digest() {
        let digest = Digest([1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9, 9, 9, 9]);
        assert_eq!(Token::of(&digest), Token(0x0102_0304_0506_0708));
        assert_eq!(Token::of(&digest).to_string(), "0102030405060708");
    }
}
