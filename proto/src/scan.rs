//! Scan cursors: the bytes of `ScanRequest.after` and `ScanResponse.cursor`.
//!
//! Eight bytes are a big-endian token to continue *at*; longer ones are the 16 bytes of
//! a digest and a key to continue *after*. In both cases the first eight bytes are the
//! token that selects the next partition.

use bytes::Bytes;
use torc_record::{DIGEST_LEN, Digest, Key};
use torc_ring::Token;

use crate::WireError;

/// A position in ring order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanPosition {
    /// At this token, inclusive.
    At(Token),
    /// After this record.
    After {
        /// The record's digest.
        digest: Digest,
        /// The record's key.
        key: Key,
    },
}

impl ScanPosition {
    const TOKEN_LEN: usize = 8;

    /// The beginning of the ring.
    pub const START: Self = Self::At(Token(0));

    /// The token at which the scan continues.
    #[must_use]
    pub fn token(&self) -> Token {
        match self {
            Self::At(token) => *token,
            Self::After { digest, .. } => Token::of(digest),
        }
    }

    /// The position as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::At(token) => Bytes::copy_from_slice(&token.0.to_be_bytes()),
            Self::After { digest, key } => [&digest.0[..], key.as_bytes()].concat().into(),
        }
    }

    /// Parses the output of [`ScanPosition::to_bytes`]; no bytes mean the start of the ring.
    ///
    /// # Errors
    /// [`WireError::Field`] for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        let misfit = WireError::Field { field: "after" };
        if bytes.is_empty() {
            return Ok(Self::START);
        }
        if bytes.len() == Self::TOKEN_LEN {
            let token = bytes.first_chunk::<8>().ok_or(misfit)?;
            return Ok(Self::At(Token(u64::from_be_bytes(*token))));
        }
        let (digest, key) = bytes.split_first_chunk::<DIGEST_LEN>().ok_or(misfit)?;
        Ok(Self::After {
            digest: Digest(*digest),
            key: Key::new(Bytes::copy_from_slice(key))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_position_survives_its_bytes_and_keeps_its_token(
            token: u64,
            digest: [u8; 16],
            key in proptest::collection::vec(any::<u8>(), 1..80),
        ) {
            let after = ScanPosition::After { digest: Digest(digest), key: Key::new(key).unwrap() };
            for position in [ScanPosition::At(Token(token)), after] {
                let bytes = position.to_bytes();
                prop_assert_eq!(&bytes[..8], &position.token().0.to_be_bytes()[..]);
                prop_assert_eq!(ScanPosition::from_bytes(&bytes), Ok(position));
            }
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        for len in [1, 7, 9, 16, 16 + 1025] {
            assert!(ScanPosition::from_bytes(&vec![0; len]).is_err(), "{len}");
        }
    }
}
