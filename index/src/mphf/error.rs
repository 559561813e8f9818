//! Why a function was not built or opened.

/// Why no function was built. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The digests are not in ascending order. Sort them.
    #[error("digest {at} is smaller than the one before it: sort them first")]
    NotSorted {
        /// Index of the first digest that is out of order.
        at: usize,
    },
    /// A digest occurs twice; no function can give it two slots. Keep one of the records.
    #[error("digest {at} is the same as the one before it: keep one of the two")]
    Duplicate {
        /// Index of the second of the two.
        at: usize,
    },
    /// More digests than slots can be numbered for. Use more partitions.
    #[error(
        "{digests} digests in one part, at most {} are possible: use more partitions",
        super::MAX_KEYS
    )]
    TooMany {
        /// Digests given.
        digests: usize,
    },
    /// No tried seed separates the digests, which never happens to digests that are keyed hashes.
    /// Build with another seed.
    #[error("no function found in {tries} tries: build with another seed")]
    NoSeed {
        /// Seeds tried.
        tries: u32,
    },
}

/// Why bytes are not an encoded function. Nothing was changed; their slice is corrupt or from a
/// newer version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// Fewer bytes than a header.
    #[error("{bytes} bytes are fewer than a header has: the function is cut off")]
    Truncated {
        /// Bytes given.
        bytes: usize,
    },
    /// The header gives another number of bytes.
    #[error("the header asks for {expected} bytes, there are {bytes}: the function is corrupt")]
    Length {
        /// Bytes given.
        bytes: usize,
        /// Bytes according to the header.
        expected: u64,
    },
    /// This program does not know the version. Use a newer program.
    #[error(
        "format version {version} is unknown: the function is corrupt, or from a newer version"
    )]
    Version {
        /// The version in the header.
        version: u8,
    },
    /// A field of the header has a value that is never written.
    #[error("the header's {field} is impossible: the function is corrupt")]
    Field {
        /// Name of the field.
        field: &'static str,
    },
}
