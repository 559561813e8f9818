//! Why there is no GigaHash function.

use super::settings::{MAX_BUCKET_KEYS, MAX_PREFIX_BITS, MAX_TRIES};

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
    /// A digest equals the one before it: no function tells them apart. Drop one.
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
    /// Settings out of their bounds. The documentation of each gives them.
    #[error("{name} is out of its bounds")]
    Setting {
        /// The setting.
        name: &'static str,
    },
    /// The digests do not share the bits that the settings say they share.
    #[error("the digests do not share their first {prefix_bits} bits (0 to {MAX_PREFIX_BITS})")]
    PrefixNotShared {
        /// Leading bits that the settings say all digests share.
        prefix_bits: u8,
    },
    /// So many keys in one bucket do not happen to keyed hashes. Check how the digests are made.
    #[error("bucket {bucket} holds {keys} keys, at most {MAX_BUCKET_KEYS} are possible")]
    BucketTooLarge {
        /// The bucket.
        bucket: u32,
        /// Its keys.
        keys: usize,
    },
    /// No seed solved a bucket. Build with another seed, or with more vertices a key.
    #[error("none of {MAX_TRIES} seeds solves bucket {bucket}: use another seed")]
    Unsolved {
        /// The bucket.
        bucket: u32,
    },
    /// The ranges given are not all buckets once, in order. Pass each range's outcome, in order.
    #[error("bucket {expected} is to follow, but the next range begins at {found}")]
    Ranges {
        /// The bucket that must come next.
        expected: u32,
        /// The one that came.
        found: u32,
    },
}

/// Why bytes are not a GigaHash function. Take them from a replica, or build again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GigaViewError {
    /// Fewer or more bytes than the header tells of.
    #[error("{found} bytes, where the header tells of {expected}")]
    Length {
        /// Bytes the header tells of.
        expected: u64,
        /// Bytes given.
        found: usize,
    },
    /// Written in another format; a newer version of Torc may read it.
    #[error("GigaHash format {found} is not known here")]
    Format {
        /// The format byte found.
        found: u8,
    },
    /// A field of the header has a value that no build writes.
    #[error("the header's {name} has a value that no build writes")]
    Field {
        /// The field.
        name: &'static str,
    },
}
