//! Reads a partition page by page.
//!
//! A scan proceeds in (digest, namespace, key) order, which is ring order. It is not a snapshot:
//! each page shows the records at the time of reading. A change behind the cursor has a sequence
//! number above the [`last_seq`](crate::Store::last_seq) read before the scan began, so
//! [`scan_since`](crate::Store::scan_since) finds it.

use std::collections::BTreeSet;

use bytes::Bytes;
use torc_record::{DIGEST_LEN, Digest, Epoch, Key, MAX_KEY_LEN, NamespaceId, PageSum, Record};

/// Position of one record in ring order: a scan continues after it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Digest of (namespace, key).
    pub digest: Digest,
    /// The key space.
    pub namespace: NamespaceId,
    /// The key.
    pub key: Key,
}

/// These bytes are not a cursor. Start the scan again, or pass an unchanged cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CursorError {
    /// Too short or too long.
    #[error(
        "a cursor has {} to {} bytes, not {len}",
        Cursor::MIN_LEN,
        Cursor::MAX_LEN
    )]
    Length {
        /// Length of the refused bytes.
        len: usize,
    },
    /// The layout is unknown to this release.
    #[error("unknown cursor layout {found}: restart the scan")]
    Layout {
        /// Its first byte.
        found: u8,
    },
}

impl Cursor {
    const LAYOUT: u8 = 1;
    const HEAD_LEN: usize = 1 + DIGEST_LEN + 4;
    /// Length of the shortest cursor, bytes.
    pub const MIN_LEN: usize = Self::HEAD_LEN + 1;
    /// Length of the longest cursor, bytes.
    pub const MAX_LEN: usize = Self::HEAD_LEN + MAX_KEY_LEN;

    /// The position of a record.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        Self {
            digest: record.digest,
            namespace: record.namespace,
            key: record.key.clone(),
        }
    }

    /// The cursor as bytes: layout 1, digest, namespace (little-endian), key.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let key = self.key.as_bytes();
        let mut out = Vec::with_capacity(Self::HEAD_LEN + key.len());
        out.push(Self::LAYOUT);
        out.extend_from_slice(&self.digest.0);
        out.extend_from_slice(&self.namespace.0.to_le_bytes());
        out.extend_from_slice(key);
        out
    }

    /// Reads what [`Cursor::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`CursorError`] for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CursorError> {
        let refused = CursorError::Length { len: bytes.len() };
        let (layout, rest) = bytes.split_first().ok_or(refused)?;
        if *layout != Self::LAYOUT {
            return Err(CursorError::Layout { found: *layout });
        }
        let (digest, rest) = rest.split_first_chunk::<DIGEST_LEN>().ok_or(refused)?;
        let (namespace, key) = rest.split_first_chunk::<4>().ok_or(refused)?;
        Ok(Self {
            digest: Digest(*digest),
            namespace: NamespaceId(u32::from_le_bytes(*namespace)),
            key: Key::new(Bytes::copy_from_slice(key)).map_err(|_| refused)?,
        })
    }
}

/// Limits of one page of a scan. A page has at least one record if there is one, so a scan always
/// makes progress. A page never ends between two keys of one digest, even if that exceeds its
/// limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimits {
    /// Limit on the records.
    pub records: usize,
    /// Limit on the bytes of the records as stored.
    pub bytes: usize,
}

impl Default for ScanLimits {
    /// 1,024 records and 1 MiB.
    fn default() -> Self {
        Self {
            records: 1024,
            bytes: 1 << 20,
        }
    }
}

/// One page of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPage {
    /// Records in ring order, tombstones included.
    pub records: Vec<Record>,
    /// Where to continue; `None` when `done`.
    pub next: Option<Cursor>,
    /// Whether the end of the partition was reached.
    pub done: bool,
}

/// The records of a page that a filter kept, and the sum of all records of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilteredPage {
    /// As from [`Store::scan`](crate::Store::scan), without the records that the filter dropped.
    pub page: ScanPage,
    /// The sum of all its records, dropped ones included.
    pub sum: PageSum,
    /// The epochs in the ballots of the dropped records.
    pub left_out: BTreeSet<Epoch>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_that_are_not_a_cursor_are_refused() {
        assert_eq!(Cursor::from_bytes(&[]), Err(CursorError::Length { len: 0 }));
        let mut unknown = vec![1; 40];
        unknown[0] = 2;
        assert_eq!(
            Cursor::from_bytes(&unknown),
            Err(CursorError::Layout { found: 2 })
        );
        for len in [1, 20, 21, Cursor::MAX_LEN + 1] {
            assert_eq!(
                Cursor::from_bytes(&vec![1; len]),
                Err(CursorError::Length { len })
            );
        }
    }

    proptest! {
        #[test]
        fn a_cursor_survives_its_bytes(
            digest: [u8; 16],
            namespace: u32,
            key in proptest::collection::vec(any::<u8>(), 1..=MAX_KEY_LEN),
        ) {
            let cursor = Cursor {
                digest: Digest(digest),
                namespace: NamespaceId(namespace),
                key: Key::new(key).unwrap(),
            };
            prop_assert_eq!(Cursor::from_bytes(&cursor.to_bytes()), Ok(cursor));
        }
    }
}
