//! Settings of a GigaHash function.

use super::MAX_PREFIX_BITS;
use super::error::GigaBuildError;

/// Bounds of the vertices per key, in 1/1024. The paper uses 0.89 to 1.15, and compares with 2.09.
pub const VERTICES_PER_1024_KEYS: std::ops::RangeInclusive<u16> = 870..=2_150;
/// Fewest vertices per key for acyclic graphs, in 1/1024: below 2 there are practically none (Erdős
/// and Rényi).
const LEAST_ACYCLIC: u16 = 2_048;

/// How the values of the vertices are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// One bit per vertex marks zeros; the others have a fixed width. Random access to any value.
    BitVector,
    /// One Huffman code for all values, including zero. A lookup decodes from the start of its
    /// bucket.
    Huffman,
    /// One bit per vertex marks zeros; the others have a Huffman code.
    BitVectorHuffman,
}

impl Encoding {
    pub(super) const fn has_bit_vector(self) -> bool {
        matches!(self, Self::BitVector | Self::BitVectorHuffman)
    }

    pub(super) const fn has_code(self) -> bool {
        matches!(self, Self::Huffman | Self::BitVectorHuffman)
    }

    pub(super) const fn to_byte(self) -> u8 {
        self.has_bit_vector() as u8 | (self.has_code() as u8) << 1
    }

    pub(super) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::BitVector),
            2 => Some(Self::Huffman),
            3 => Some(Self::BitVectorHuffman),
            _ => None,
        }
    }
}

/// The settings of a build. [`Settings::default`] is the smallest of the paper: c = 0.89, Huffman.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The same digests and seed give the same bytes.
    pub seed: u64,
    /// The paper's `c` in 1/1024: vertices per key of a bucket's graph, within
    /// [`VERTICES_PER_1024_KEYS`].
    pub vertices_per_1024_keys: u16,
    /// Mean number of keys per bucket, 160 to 180.
    pub keys_per_bucket: u16,
    /// Leading bits that all digests share, 0 to [`MAX_PREFIX_BITS`]. They do not help to choose a
    /// bucket.
    pub prefix_bits: u8,
    /// The encoding of values.
    pub encoding: Encoding,
    /// Accepts only graphs without cycles, as Czech, Havas and Majewski do, instead of labelling
    /// 2-cores: the paper's baseline, with 2,140 vertices per 1,024 keys (c = 2.09), at least
    /// 2,048. Affects how a function is built, not how it is read.
    pub acyclic: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            vertices_per_1024_keys: 911,
            keys_per_bucket: 170,
            prefix_bits: 0,
            encoding: Encoding::Huffman,
            acyclic: false,
        }
    }
}

impl Settings {
    /// The paper's baseline: acyclic graphs with c = 2.09.
    #[must_use]
    pub fn acyclic() -> Self {
        Self {
            acyclic: true,
            ..Self::default().with_vertices_per_key(2.09)
        }
    }

    /// The paper's `c` as a number, rounded to 1/1024.
    #[must_use]
    #[expect(
        clippy::cast_sign_loss,
        reason = "`as` saturates, and `check` refuses the bounds"
    )]
    pub fn with_vertices_per_key(self, c: f64) -> Self {
        Self {
            vertices_per_1024_keys: (c * 1024.0).round() as u16,
            ..self
        }
    }

    pub(super) fn check(&self) -> Result<(), GigaBuildError> {
        let bounds = [
            (
                "vertices_per_1024_keys",
                VERTICES_PER_1024_KEYS.contains(&self.vertices_per_1024_keys),
            ),
            (
                "keys_per_bucket",
                (160..=180).contains(&self.keys_per_bucket),
            ),
            ("prefix_bits", self.prefix_bits <= MAX_PREFIX_BITS),
            (
                "acyclic",
                !self.acyclic || self.vertices_per_1024_keys >= LEAST_ACYCLIC,
            ),
        ];
        match bounds.into_iter().find(|(_, within)| !within) {
            Some((name, _)) => Err(GigaBuildError::Setting { name }),
            None => Ok(()),
        }
    }
}

/// Vertices of the graph of a bucket of `keys` keys.
///
/// Small graphs get two more: with only `c * keys`, the two edges of two keys would always be
/// parallel.
pub(super) const fn vertices(keys: usize, per_1024_keys: u16) -> usize {
    let scaled = (keys * per_1024_keys as usize).div_ceil(1024);
    if keys < 32 { scaled + 2 } else { scaled }
}
