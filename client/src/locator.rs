//! What finds a key: its namespace and its digest.

use bytes::Bytes;
use torc_record::{Digest, NamespaceId};

/// Finds the partition of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Locator {
    pub(crate) namespace: NamespaceId,
    pub(crate) digest: Digest,
    /// As in [`Place`](crate::client::Place).
    pub(crate) is_told: bool,
}

impl Locator {
    /// The digest to send with a request.
    pub(crate) fn digest_to_wire(&self) -> Bytes {
        if self.is_told {
            digest_to_wire(&self.digest)
        } else {
            Bytes::new()
        }
    }
}

pub(crate) fn digest_to_wire(digest: &Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0)
}
