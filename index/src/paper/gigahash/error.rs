//! Why there is no GigaHash function.

use super::{MAX_BUCKET_KEYS, MAX_PREFIX_BITS, MAX_TRIES};

/// Why a function cannot be built. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GigaBuildError {
    /// A digest is smaller than the one before it. Sort them, and build again.
    #[error("digest {at} is smaller than the one before it: sort them first")]
    NotSorted {
        /// Index of the smaller digest.
        at: usize,
    },
    /// Two digests are equal, so no function can tell them apart. Remove one.
    #[error("digest {at} equals the one before it: drop one of them")]
    Duplicate {
        /// Index of the second of the two.
        at: usize,
    },
    /// More than 2^32 - 1 digests. Build several functions.
    #[error("{keys} digests are more than 2^32 - 1: build several functions")]
    TooMany {
        /// Digests given.
        keys: usize,
    },
    /// A setting is out of bounds; its documentation gives them.
    #[error("{name} is out of its bounds")]
    Setting {
        /// The setting.
        name: &'static str,
    },
    /// The digests do not share the leading bits that the settings require.
    #[error("the digests do not share their first {prefix_bits} bits (0 to {MAX_PREFIX_BITS})")]
    PrefixNotShared {
        /// Leading bits that all digests must share.
        prefix_bits: u8,
    },
    /// Keyed hashes never put so many keys into one bucket. Check how the digests are computed.
    #[error("bucket {bucket} holds {keys} keys, at most {MAX_BUCKET_KEYS} are possible")]
    BucketTooLarge {
        /// The bucket.
        bucket: u32,
        /// Its keys.
        keys: usize,
    },
    /// No seed solved a bucket. Build with another seed, or with more vertices per key.
    #[error("none of {MAX_TRIES} seeds solves bucket {bucket}: use another seed")]
    Unsolved {
        /// The bucket.
        bucket: u32,
    },
    /// The ranges are not all buckets in order, each once. Pass the outcomes of all ranges in
    /// order.
    #[error("bucket {expected} is to follow, but the next range begins at {found}")]
    Ranges {
        /// The expected next bucket.
        expected: u32,
        /// The actual one.
        found: u32,
    },
}

/// Why bytes are not a GigaHash function. Take them from a replica, or build again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GigaViewError {
    /// More or fewer bytes than the header specifies.
    #[error("{found} bytes, where the header tells of {expected}")]
    Length {
        /// Bytes that the header specifies.
        expected: u64,
        /// Bytes given.
        found: usize,
    },
    /// Another format; a newer version of Torc may read it.
    #[error("GigaHash format {found} is not known here")]
    Format {
        /// The format byte found.
        found: u8,
    },
    /// A field of the header has a value that is never written.
    #[error("the header's {name} has a value that no build writes")]
    Field {
        /// The field.
        name: &'static str,
    },
}
