//! The bytes of a function: header, decoding table, offsets.
//!
//! All numbers are little-endian.
//!
//! ```text
//! header, 32 bytes
//!    0  u8   format, 1
//!    1  u8   encoding: 1 bit-vector, 2 Huffman, 3 both
//!    2  u8   bits that all digests share
//!    3  u8   with Huffman: bits of the longest code, 1 to 12; else: width of a value, 1 to 9
//!    4  u32  buckets
//!    8  u32  keys
//!   12  u16  vertices per 1,024 keys
//!   14  u16  0
//!   16  u64  seed
//!   24  u64  bytes of data
//! table     with Huffman: 2^(longest code) u16, length << 12 | symbol
//! offsets   of each bucket and of the end, in groups of 32:
//!             u32 first slot and u64 first data byte of the group, then an entry each of 5 bytes:
//!             14 bits slots and 16 bits data bytes since the group's, 10 bits try
//! data      of each bucket, from a whole byte on: with bit-vector: a bit a vertex, 1 for a value
//!           that is not 0; then the values (with bit-vector: those that are not 0)
//! ```
//! Bits are numbered from the lowest of the first byte. The offsets cost 43 bits per bucket, 0.25
//! bits per key.

use super::MAX_PREFIX_BITS;
use super::error::GigaViewError;
use super::huffman::MAX_CODE_BITS;
use super::settings::{Encoding, VERTICES_PER_1024_KEYS};

pub(super) const HEADER_BYTES: usize = 32;
const FORMAT: u8 = 1;
/// Buckets per group of offsets.
pub(super) const GROUP: usize = 32;
const GROUP_HEAD: usize = 12;
const ENTRY_BYTES: usize = 5;
const GROUP_BYTES: usize = GROUP_HEAD + GROUP * ENTRY_BYTES;
const SLOT_BITS: u32 = 14;
const DATA_BITS: u32 = 16;

/// The fields of the header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) encoding: Encoding,
    pub(super) prefix_bits: u8,
    pub(super) width: u8,
    pub(super) buckets: u32,
    pub(super) keys: u32,
    pub(super) vertices_per_1024_keys: u16,
    pub(super) seed: u64,
    pub(super) data_bytes: u64,
}

impl Header {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend([
            FORMAT,
            self.encoding.to_byte(),
            self.prefix_bits,
            self.width,
        ]);
        out.extend(self.buckets.to_le_bytes());
        out.extend(self.keys.to_le_bytes());
        out.extend(self.vertices_per_1024_keys.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.seed.to_le_bytes());
        out.extend(self.data_bytes.to_le_bytes());
    }

    /// Reads the header, and checks the bounds of each field and the total length.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, GigaViewError> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            let (expected, found) = (HEADER_BYTES as u64, bytes.len());
            return Err(GigaViewError::Length { expected, found });
        };
        if head[0] != FORMAT {
            return Err(GigaViewError::Format { found: head[0] });
        }
        let field = |name| GigaViewError::Field { name };
        let header = Self {
            encoding: Encoding::from_byte(head[1]).ok_or(field("encoding"))?,
            prefix_bits: head[2],
            width: head[3],
            buckets: number(head, 4, 4) as u32,
            keys: number(head, 8, 4) as u32,
            vertices_per_1024_keys: number(head, 12, 2) as u16,
            seed: number(head, 16, 8),
            data_bytes: number(head, 24, 8),
        };
        let bounds = [
            ("shared bits", header.prefix_bits <= MAX_PREFIX_BITS),
            ("width", u32::from(header.width) <= MAX_CODE_BITS),
            ("buckets", (header.buckets == 0) == (header.keys == 0)),
            (
                "vertices",
                VERTICES_PER_1024_KEYS.contains(&header.vertices_per_1024_keys),
            ),
            ("padding", number(head, 14, 2) == 0),
        ];
        if let Some((name, _)) = bounds.into_iter().find(|(_, within)| !within) {
            return Err(field(name));
        }
        let expected = (header.data_start() as u64).saturating_add(header.data_bytes);
        if expected != bytes.len() as u64 {
            let found = bytes.len();
            return Err(GigaViewError::Length { expected, found });
        }
        Ok(header)
    }

    /// Bytes of the decoding table.
    pub(super) fn table_bytes(&self) -> usize {
        if self.encoding.has_code() {
            2 << self.width
        } else {
            0
        }
    }

    /// Where the offsets begin.
    pub(super) fn offsets_start(&self) -> usize {
        HEADER_BYTES + self.table_bytes()
    }

    /// Where the data begin.
    pub(super) fn data_start(&self) -> usize {
        let entries = self.buckets as usize + 1;
        let groups = entries.div_ceil(GROUP);
        self.offsets_start() + groups * GROUP_HEAD + entries * ENTRY_BYTES
    }
}

/// The offset of a bucket, and the try that solved it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset {
    pub(super) slot: u64,
    pub(super) data: u64,
    pub(super) attempt: u16,
}

/// Writes the offsets in order.
#[derive(Debug, Default)]
pub(super) struct OffsetWriter {
    bytes: Vec<u8>,
    count: usize,
    group: (u64, u64),
}

impl OffsetWriter {
    /// Appends an offset. Within a group, slots and data grow by less than 2^14 and 2^16: at most
    /// 32 buckets of 511 keys and 1,744 bytes (1,073 vertices of 13 bits).
    pub(super) fn push(&mut self, offset: Offset) {
        if self.count.is_multiple_of(GROUP) {
            self.group = (offset.slot, offset.data);
            self.bytes.extend((offset.slot as u32).to_le_bytes());
            self.bytes.extend(offset.data.to_le_bytes());
        }
        let slot = offset.slot - self.group.0;
        let data = offset.data - self.group.1;
        let entry = slot | data << SLOT_BITS | u64::from(offset.attempt) << (SLOT_BITS + DATA_BITS);
        self.bytes.extend(&entry.to_le_bytes()[..ENTRY_BYTES]);
        self.count += 1;
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Position of a bucket's group within the offsets.
#[inline]
pub(super) const fn group_start(bucket: usize) -> usize {
    bucket / GROUP * GROUP_BYTES
}

/// Reads the offset of a bucket; zeros after the end.
#[inline]
pub(super) fn read_offset(offsets: &[u8], bucket: usize) -> Offset {
    let start = group_start(bucket);
    let entry_start = start + GROUP_HEAD + bucket % GROUP * ENTRY_BYTES;
    let entry = number(offsets, entry_start, ENTRY_BYTES);
    Offset {
        slot: number(offsets, start, 4) + (entry & ((1 << SLOT_BITS) - 1)),
        data: number(offsets, start + 4, 8)
            .wrapping_add(entry >> SLOT_BITS & ((1 << DATA_BITS) - 1)),
        attempt: (entry >> (SLOT_BITS + DATA_BITS)) as u16,
    }
}

/// The bytes that [`read_offset`] reads.
pub(super) fn offset_bytes(bucket: usize) -> impl Iterator<Item = usize> {
    let start = group_start(bucket);
    let entry = start + GROUP_HEAD + bucket % GROUP * ENTRY_BYTES;
    (start..start + GROUP_HEAD).chain(entry..entry + ENTRY_BYTES)
}

/// The little-endian number of `len` bytes from `at` on, at most 8; 0 after the end.
#[inline]
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let Some(field) = bytes.get(at..at + len) else {
        return 0;
    };
    let mut word = [0; 8];
    word[..len].copy_from_slice(field);
    u64::from_le_bytes(word)
}
