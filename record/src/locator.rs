//! Names of registers: a key of a namespace, with its digest.
//!
//! Both are hashed by the digest alone. Tables in the simulation iterate in the order of this hash, so
//! a change of it changes what seeds do.

use std::hash::{Hash, Hasher};

use crate::{Digest, Key, NamespaceId, Record};

/// A key of a namespace with the digest computed once for its operation. Cheap to clone. Ordered as
/// on the ring, so it is also the position of a record there: a scan continues after it.
///
/// `Locator<&[u8]>` borrows the bytes of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Locator<K = Key> {
    /// Digest of (namespace, key).
    pub digest: Digest,
    /// The key space.
    pub namespace: NamespaceId,
    /// The key.
    pub key: K,
}

impl Locator {
    /// The locator of a record's key.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        Self {
            namespace: record.namespace,
            digest: record.digest,
            key: record.key.clone(),
        }
    }

    /// A copy with its own key bytes.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            key: self.key.detached(),
            ..*self
        }
    }

    /// The same, with the bytes of the key borrowed.
    #[must_use]
    pub fn borrowed(&self) -> Locator<&[u8]> {
        Locator {
            digest: self.digest,
            namespace: self.namespace,
            key: self.key.as_bytes(),
        }
    }
}

impl<K> Locator<K> {
    /// The short name, without the key's bytes.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        KeyId {
            digest: self.digest,
            namespace: self.namespace,
        }
    }
}

impl Record {
    /// The locator of its key, borrowed.
    #[must_use]
    pub fn locator(&self) -> Locator<&[u8]> {
        Locator {
            digest: self.digest,
            namespace: self.namespace,
            key: self.key.as_bytes(),
        }
    }
}

/// A register's short name, ordered as on the ring. 128 bits of a keyed hash: two keys
/// of a namespace never share one in practice, and a store still compares full keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId {
    /// Digest of (namespace, key).
    pub digest: Digest,
    /// The key space.
    pub namespace: NamespaceId,
}

impl KeyId {
    /// The id of a record's key.
    #[must_use]
    pub const fn of(record: &Record) -> Self {
        Self {
            digest: record.digest,
            namespace: record.namespace,
        }
    }
}

impl Hash for KeyId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest.low() ^ u64::from(self.namespace.0));
    }
}

impl<K> Hash for Locator<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}
