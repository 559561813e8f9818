//! Positions in ring order.
//!
//! A position is one of two, and its layout is the wire's:
//! * behind a record: its digest (16 bytes), namespace id (4 bytes, big-endian), key;
//! * at a token (8 bytes, big-endian), where an arc of the ring begins: in front of
//!   every record of this token.
//!
//! Both begin with the token, and comparing positions of one namespace byte by byte
//! is comparing them in ring order; a bare token, being a prefix, comes before the
//! records it stands in front of.

use bytes::{BufMut as _, Bytes, BytesMut};
use torc_record::{DIGEST_LEN, Digest, MAX_KEY_LEN, NamespaceId};
use torc_ring::Token;

use crate::{Error, ErrorKind};

const TOKEN_LEN: usize = 8;
const NAMESPACE_LEN: usize = 4;
const HEAD_LEN: usize = DIGEST_LEN + NAMESPACE_LEN;

/// A position in a scan, from [`Scan::cursor`](crate::Scan::cursor). Valid for the
/// cluster and namespace it came from, whatever happens to the topology meanwhile.
///
/// Its bytes may be stored and handed to another process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScanCursor(Bytes);

impl ScanCursor {
    /// Takes bytes that [`ScanCursor::as_bytes`] gave.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what cannot be one by its length.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self, Error> {
        let bytes = bytes.into();
        let key_len = bytes.len().saturating_sub(HEAD_LEN);
        if bytes.len() == TOKEN_LEN || (1..=MAX_KEY_LEN).contains(&key_len) {
            return Ok(Self(bytes));
        }
        let message = format!(
            "a scan's cursor of {} bytes: pass one as it was given, or start anew",
            bytes.len()
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// The position as bytes: 8, or 21 to 1,044.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The position behind a record.
    pub(crate) fn behind(digest: &Digest, namespace: NamespaceId, key: &[u8]) -> Self {
        let mut bytes = BytesMut::with_capacity(HEAD_LEN + key.len());
        bytes.put_slice(&digest.0);
        bytes.put_u32(namespace.0);
        bytes.put_slice(key);
        Self(bytes.freeze())
    }

    pub(crate) fn to_wire(&self) -> Bytes {
        self.0.clone()
    }

    /// Where on the ring the scan goes on.
    pub(crate) fn token(&self) -> Token {
        let mut head = [0; TOKEN_LEN];
        head.copy_from_slice(&self.0[..TOKEN_LEN]);
        Token(u64::from_be_bytes(head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use torc_record::DigestKey;

    const NAMESPACE: NamespaceId = NamespaceId(3);

    fn arc_start(token: u64) -> ScanCursor {
        ScanCursor::from_bytes(token.to_be_bytes().to_vec()).unwrap()
    }

    #[test]
    fn lengths_that_no_position_has_are_refused() {
        for len in [0, 1, 7, 9, 16, 20, 20 + MAX_KEY_LEN + 1] {
            let refused = ScanCursor::from_bytes(vec![0; len]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{len}");
        }
        for len in [8, 21, 20 + MAX_KEY_LEN] {
            assert!(ScanCursor::from_bytes(vec![0; len]).is_ok(), "{len}");
        }
    }

    #[test]
    fn the_layout_is_digest_namespace_key() {
        let digest = Digest([7; 16]);
        let cursor = ScanCursor::behind(&digest, NamespaceId(0x0102_0304), b"key");
        let expected = [&[7; 16][..], &[1, 2, 3, 4], b"key"].concat();
        assert_eq!(cursor.as_bytes(), expected);
        assert_eq!(cursor.token(), Token(0x0707_0707_0707_0707));
    }

    proptest! {
        #[test]
        fn positions_compare_in_ring_order(
            a in proptest::collection::vec(any::<u8>(), 1..40),
            b in proptest::collection::vec(any::<u8>(), 1..40),
        ) {
            let place = |key: &[u8]| {
                let digest = Digest::of(&DigestKey([9; 32]), NAMESPACE, key);
                (digest, ScanCursor::behind(&digest, NAMESPACE, key))
            };
            let ((digest_a, cursor_a), (digest_b, cursor_b)) = (place(&a), place(&b));
            prop_assert_eq!(cursor_a.cmp(&cursor_b), (digest_a, &a).cmp(&(digest_b, &b)));
            prop_assert_eq!(cursor_a.token(), Token::of(&digest_a));
        }

        #[test]
        fn an_arc_start_is_in_front_of_its_token_and_behind_all_before(
            token: u64,
            digest: [u8; 16],
        ) {
            let record = ScanCursor::behind(&Digest(digest), NAMESPACE, b"k");
            let in_front = record.token() >= Token(token);
            prop_assert_eq!(arc_start(token) < record, in_front);
        }
    }
}
