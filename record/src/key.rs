//! Keys and the namespaces they live in.

use bytes::Bytes;

/// Longest key, in bytes.
pub const MAX_KEY_LEN: usize = 1024;

/// A named key space with its own settings. Ids are given by the topology group
/// and never reused; id 1 is the namespace `default`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct NamespaceId(pub u32);

impl NamespaceId {
    /// The namespace every cluster starts with.
    pub const DEFAULT: Self = Self(1);
}

/// A key: 1 to [`MAX_KEY_LEN`] bytes of any value. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

/// Why bytes are not a key. Nothing was changed; send a key of 1 to 1,024 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The empty string is not a key.
    #[error("a key has at least 1 byte")]
    Empty,
    /// Longer than [`MAX_KEY_LEN`].
    #[error("the key has {len} bytes, at most {MAX_KEY_LEN} are allowed")]
    TooLong {
        /// Length of the refused key, bytes.
        len: usize,
    },
}

impl Key {
    /// Checks the length and wraps the bytes without copying them.
    ///
    /// # Errors
    /// [`KeyError`] when `bytes` is empty or longer than [`MAX_KEY_LEN`].
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, KeyError> {
        let bytes = bytes.into();
        match bytes.len() {
            0 => Err(KeyError::Empty),
            1..=MAX_KEY_LEN => Ok(Self(bytes)),
            len => Err(KeyError::TooLong { len }),
        }
    }

    /// The bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The shared buffer behind the key; cheap to clone.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_1_to_1024_bytes() {
        assert_eq!(Key::new(&b""[..]), Err(KeyError::Empty));
        assert!(Key::new(vec![0; 1]).is_ok());
        assert!(Key::new(vec![0; MAX_KEY_LEN]).is_ok());
        assert_eq!(
            Key::new(vec![0; 1025]),
            Err(KeyError::TooLong { len: 1025 })
        );
    }
}
