//! The position of a scan, for callers.
//!
//! It has the layout of the wire ([`ScanPosition`]): a bare token, or digest and key.
//! So byte order is ring order within a namespace; a bare token, as a prefix, comes
//! before the records of the token.

use std::fmt;

use bytes::Bytes;
use torc_proto::ScanPosition;
use torc_record::{Digest, Key};
use torc_ring::Token;

use crate::{Error, ErrorKind};

/// A position in a scan, from [`Scan::cursor`](crate::Scan::cursor). Valid for its
/// cluster and namespace, however the topology changes. In a static namespace, valid for the generation that the scan
/// reads: after a promotion, begin again.
///
/// You may store its bytes and pass them to another process.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScanCursor(Bytes);

impl ScanCursor {
    /// The start of the ring.
    pub const START: Self = Self(Bytes::from_static(&[0; 8]));

    /// Restores a cursor from [`ScanCursor::as_bytes`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let position = ScanPosition::from_bytes(bytes).map_err(|_| {
            let len = bytes.len();
            let message =
                format!("these {len} bytes are not a scan's cursor: pass a cursor unchanged");
            Error::new(ErrorKind::Invalid, message)
        })?;
        Ok(Self(position.to_bytes()))
    }

    /// The position as bytes: 8, or 17 to 1,040.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The position after a record.
    pub(crate) fn behind(digest: Digest, key: Key) -> Self {
        Self(ScanPosition::After { digest, key }.to_bytes())
    }

    pub(crate) fn to_wire(&self) -> Bytes {
        self.0.clone()
    }

    /// The token at which the scan continues: the first part of every position.
    pub(crate) fn token(&self) -> Token {
        let head = self.0.first_chunk().copied().unwrap_or_default();
        Token(u64::from_be_bytes(head))
    }
}

impl Default for ScanCursor {
    fn default() -> Self {
        Self::START
    }
}

impl fmt::Debug for ScanCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScanCursor({:x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use torc_record::{DigestKey, NamespaceId};

    fn at(token: u64) -> ScanCursor {
        ScanCursor::from_bytes(&token.to_be_bytes()).unwrap()
    }

    fn behind(digest: Digest, key: &[u8]) -> ScanCursor {
        ScanCursor::behind(digest, Key::new(key.to_vec()).unwrap())
    }

    #[test]
    fn the_start_is_the_first_token() {
        assert_eq!(ScanCursor::START, at(0));
        assert_eq!(ScanCursor::from_bytes(b""), Ok(ScanCursor::START));
        assert_eq!(ScanCursor::START.token(), Token::MIN);
    }

    #[test]
    fn bytes_that_are_no_position_are_refused() {
        for len in [1, 7, 9, 16, 16 + 1025] {
            let refused = ScanCursor::from_bytes(&vec![0; len]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{len}");
        }
    }

    proptest! {
        #[test]
        fn positions_compare_in_ring_order(
            a in proptest::collection::vec(any::<u8>(), 1..40),
            b in proptest::collection::vec(any::<u8>(), 1..40),
        ) {
            let place = |key: &[u8]| {
                let digest = Digest::of(&DigestKey([9; 32]), NamespaceId(3), key);
                (digest, behind(digest, key))
            };
            let ((digest_a, cursor_a), (digest_b, cursor_b)) = (place(&a), place(&b));
            prop_assert_eq!(cursor_a.cmp(&cursor_b), (digest_a, &a).cmp(&(digest_b, &b)));
            prop_assert_eq!(cursor_a.token(), Token::of(&digest_a));
            prop_assert_eq!(ScanCursor::from_bytes(cursor_a.as_bytes()), Ok(cursor_a));
        }

        #[test]
        fn a_token_is_in_front_of_its_records_and_behind_all_before(
            token: u64,
            digest: [u8; 16],
        ) {
            let record = behind(Digest(digest), b"k");
            let in_front = record.token() >= Token(token);
            prop_assert_eq!(at(token) < record, in_front);
        }
    }
}
