//! Tables of registers, in an order that does not depend on the process.

use std::hash::{BuildHasherDefault, Hasher};

use torc_record::{KeyId, Locator};

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
