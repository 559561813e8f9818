//! Names of registers: a key of a namespace, with its digest.

use std::hash::{BuildHasherDefault, Hash, Hasher};

use torc_record::{Digest, Key, NamespaceId, Record};

/// A key of a namespace with the digest computed once for its operation. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locator {
    /// The key space.
    pub namespace: NamespaceId,
    /// Digest of (namespace, key).
    pub digest: Digest,
    /// The key.
    pub key: Key,
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

    /// A copy with its own key bytes, which keeps no longer buffer in memory.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            key: self.key.detached(),
            ..*self
        }
    }

    /// The short name, without the key's bytes.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId {
            digest: self.digest,
            namespace: self.namespace,
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

/// Uses the digest as the hash: it is already one, keyed against adversaries.
#[derive(Debug, Clone, Copy, Default)]
pub struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 ^= word;
    }
}

impl Hash for Locator {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

/// A table of keys. Two keys with the same digest, which a record with a wrong digest can
/// cause, have an entry each.
pub(crate) type LocatorTable<V> =
    std::collections::HashMap<Locator, V, BuildHasherDefault<DigestHasher>>;

/// A table of registers whose order does not depend on the process.
pub(crate) type KeyTable<V> = std::collections::HashMap<KeyId, V, BuildHasherDefault<DigestHasher>>;

/// A hasher for numbers that no outsider can choose.
#[derive(Debug, Clone, Copy, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    /// Moves the high bits, which depend on all bits of the number, to the front.
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A table by operation or partition.
pub type NumberTable<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<NumberHasher>>;
