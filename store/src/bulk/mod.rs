//! Slice files outside of a store: a bulk build writes them, and nodes copy slices from them.
//!
//! A file has the layout of a segment (`store/src/segment`) with number and salt zero.
//!
//! Invariants:
//! * The bytes depend on the records alone: every build of the same records gives the same file.
//!   So files are named by their [digest](SliceFileInfo::digest).
//! * A slice of such a file is an ordinary slice, which a node can
//!   [ingest](crate::Store::ingest) byte for byte.
//! * A file is written once. Readers check every length before they allocate memory for it.
//!
//! Not here: the meaning of a set of such files, which is in the builder's manifest.

mod file;
mod loose;
mod writer;

pub use file::SliceFile;
pub use loose::{LooseSlice, MergedRecords};
pub use writer::{Placed, SliceFileInfo, SliceFileWriter};

use torc_record::{Ballot, Digest, NamespaceId, Record, RecordError};

use crate::packed::{Packed, PackedRef};
pub use crate::slice::KeylessLayout;

/// A record in its stored form, borrowed: see [`pack`].
#[derive(Clone, Copy)]
pub struct PackedRecord<'a>(PackedRef<'a>);

impl std::fmt::Debug for PackedRecord<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PackedRecord").field(&self.digest()).finish()
    }
}

impl<'a> PackedRecord<'a> {
    /// The record at the start of `bytes`, which may be longer.
    ///
    /// # Errors
    /// The problem with the bytes.
    pub fn at_start_of(bytes: &'a [u8]) -> Result<Self, &'static str> {
        PackedRef::at_start_of(bytes).map(Self)
    }

    /// The length of the record that starts with these 44 bytes.
    ///
    /// # Errors
    /// No record starts with these bytes.
    pub fn len_by_head(head: &[u8]) -> Result<usize, &'static str> {
        Packed::len_by_head(head)
    }

    /// Its stored form.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0.bytes()
    }

    /// The digest of its key.
    #[must_use]
    pub fn digest(self) -> Digest {
        self.0.digest()
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(self) -> NamespaceId {
        self.0.namespace()
    }

    /// Its key.
    #[must_use]
    pub fn key(self) -> &'a [u8] {
        self.0.key()
    }

    /// Its version.
    #[must_use]
    pub fn ballot(self) -> Ballot {
        self.0.ballot()
    }

    /// Bytes of its key and value.
    #[must_use]
    pub fn payload_len(self) -> usize {
        self.0.payload_len()
    }

    /// What it adds to [`PartitionSummary::fingerprint`](crate::PartitionSummary::fingerprint).
    #[must_use]
    pub fn fingerprint(self) -> u128 {
        self.0.fingerprint()
    }
}

/// Appends a record in its stored form: 44 bytes, 8 more if it expires, its key and its value.
///
/// # Errors
/// The value is too long; nothing was appended.
pub fn pack(record: &Record, into: &mut Vec<u8>) -> Result<(), RecordError> {
    Packed::append(record, into)
}

#[cfg(test)]
mod tests;
