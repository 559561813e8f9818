//! A slice: the sealed records of one partition with their index, in one run of bytes.
//!
//! It contains no file name and no offset in a file, so it can be copied to another segment or
//! another node byte for byte. All numbers are little-endian; the header's fields are in
//! [`header`].
//!
//! | part | holds |
//! |---|---|
//! | header | 128 bytes |
//! | gate | Bloom gate of the digests (`torc_index::Gate`) |
//! | MPHF | slot of each digest (`torc_index::Mphf`) |
//! | offsets | where the record of each slot starts among the records, in units of the alignment (`torc_index::Offsets`) |
//! | order | the slots in ring order, packed to the bits that the highest needs |
//! | records | in the order of their slots, each aligned: CRC32C (4 bytes), packed record, zeros |
//! | digest | 32 bytes of BLAKE3 of everything before |
//!
//! A *keyless* slice has no gate and no order, fingerprints of the keys in place of the offsets, and
//! payloads of one length in place of the records: see [`keyless`].
//!
//! The first four parts are the *index*: they are read once, checked, and kept in memory, so an
//! index page that rots later cannot make an existing key look absent. The rest is read from the
//! file on demand, and each record is checked before use.
//!
//! Invariants:
//! * A slice holds each digest once, and at least one. Further keys of a digest are in slices
//!   of higher layers, see [`SliceHeader::layer`].
//! * The checksum of a record continues from the slice's salt plus its slot: a record that is
//!   whole but in the wrong place fails.
//! * A view over any bytes returns data or reports damage; it never panics, and allocates nothing
//!   but the record that it returns.

mod builder;
mod cursor;
mod header;
mod keyless;
mod order;
mod payloads;
mod rest;
mod salvage;
mod view;

pub(crate) use builder::{BuiltSlice, GateRates, LAST_LAYER, SliceInput};
pub(crate) use cursor::OrderedRecords;
pub(crate) use header::{Kind, SLICE_DIGEST_LEN, SLICE_HEADER_LEN, SliceHeader};
pub(crate) use keyless::KeylessInput;
pub use payloads::KeylessLayout;
pub(crate) use rest::{Reader, Reading, Rest, read_file};
pub(crate) use salvage::salvage;
pub(crate) use view::{Found, Heads, IndexParts, SliceView};

use crate::packed::Packed;

/// Bytes of the checksum before each record.
pub(crate) const RECORD_CRC_LEN: usize = 4;

/// The checksum of a record in a slot.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a slice has at most MAX_KEYS slots"
)]
fn record_crc(salt: u32, slot: usize, packed: &[u8]) -> u32 {
    crc32c::crc32c_append(salt.wrapping_add(slot as u32), packed)
}

/// The problem with a slice.
pub(crate) type Damage = &'static str;

/// A checked copy of a record.
pub(crate) type Checked = Result<Packed, Damage>;
