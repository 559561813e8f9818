//! Keys and their namespaces.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Longest key, in bytes.
pub const MAX_KEY_LEN: usize = 1024;

/// A named key space with its own settings. The topology group assigns ids and never reuses them;
/// id 1 is the namespace `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamespaceId(pub u32);

impl NamespaceId {
    /// The namespace every cluster starts with.
    pub const DEFAULT: Self = Self(1);
    /// Ids of one layer: 2^28 namespaces, and as many generations.
    pub const MAX_NUMBER: u32 = Self::GENERATION - 1;

    const NUMBER_BITS: u32 = u32::BITS - Layer::BITS;
    const GENERATION: u32 = 1 << (Self::NUMBER_BITS - 1);

    /// The id with this number in a layer; excess bits of the number are cut off.
    #[must_use]
    pub const fn in_layer(layer: Layer, number: u32) -> Self {
        Self(((layer.0 as u32) << Self::NUMBER_BITS) | (number & Self::MAX_NUMBER))
    }

    /// The id under which records of a generation of a static namespace are stored.
    #[must_use]
    pub const fn generation(layer: Layer, number: u32) -> Self {
        Self(Self::in_layer(layer, number).0 | Self::GENERATION)
    }

    /// Whether it is the id of a generation, whose records are immutable and replaced as a whole.
    #[must_use]
    pub const fn is_generation(self) -> bool {
        self.0 & Self::GENERATION != 0
    }

    /// Its number in its layer.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 & Self::MAX_NUMBER
    }

    /// The layer whose partitions hold the namespace: its first three bits.
    #[must_use]
    pub const fn layer(self) -> Layer {
        Layer((self.0 >> Self::NUMBER_BITS) as u8)
    }
}

/// A layer of partitions on the circle: 0 to 7.
///
/// Every layer cuts the same circle into the same arcs; the partitions of each layer have their own
/// number of replicas, which the topology knows.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "u8", into = "u8")]
pub struct Layer(u8);

/// A number that is not a layer. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{number} is not a layer: use 0 to 7")]
pub struct LayerError {
    /// The number.
    pub number: u8,
}

impl TryFrom<u8> for Layer {
    type Error = LayerError;

    fn try_from(number: u8) -> Result<Self, LayerError> {
        Self::new(number).ok_or(LayerError { number })
    }
}

impl From<Layer> for u8 {
    fn from(layer: Layer) -> Self {
        layer.0
    }
}

impl Layer {
    /// The layer of the namespace that every cluster starts with.
    pub const BASE: Self = Self(0);
    /// The number of layers.
    pub const COUNT: usize = 1 << Self::BITS;

    const BITS: u32 = 3;

    /// The layer of this number; `None` if there is no such layer.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Its number, below [`Layer::COUNT`].
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// As an index into a table with one entry per layer.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All of them, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..1 << Self::BITS).map(Self)
    }
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
    #[error("the key has {len} bytes, but at most {MAX_KEY_LEN} are allowed")]
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

    /// A copy with its own bytes, which keeps no longer buffer in memory.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
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
    fn a_namespace_lies_in_the_layer_it_was_given_its_id_in() {
        assert_eq!(NamespaceId::DEFAULT.layer(), Layer::BASE);
        for layer in Layer::all() {
            let id = NamespaceId::in_layer(layer, 77);
            assert_eq!((id.layer(), id.number()), (layer, 77));
            let generation = NamespaceId::generation(layer, 77);
            assert_eq!((generation.layer(), generation.number()), (layer, 77));
            assert!(generation.is_generation() && !id.is_generation());
        }
        assert_eq!(NamespaceId::in_layer(Layer::BASE, 77), NamespaceId(77));
        assert_eq!(Layer::new(8), None);
    }

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
