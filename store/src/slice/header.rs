//! The first 128 bytes of a slice.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `TSLC` |
//! | 4 | 4 | version, 2 |
//! | 8 | 8 | length of the slice |
//! | 16 | 4 | partition |
//! | 20 | 4 | number of partitions |
//! | 24 | 4 | keys, at least 1 |
//! | 28 | 4 | salt |
//! | 32 | 4 | length of the gate |
//! | 36 | 4 | length of the MPHF |
//! | 40 | 4 | length of the offsets |
//! | 44 | 4 | length of the order |
//! | 48 | 8 | length of the records |
//! | 56 | 4 | tombstones among the keys |
//! | 60 | 4 | id of the generation that all records are of; zero if they are of none |
//! | 64 | 8 | bytes of keys and values |
//! | 72 | 16 | fingerprint: sum of the records' fingerprints |
//! | 88 | 8 | highest hybrid time |
//! | 96 | 4 | CRC32C of the order |
//! | 100 | 4 | CRC32C of the header without these 4 bytes, the gate, the MPHF and the offsets |
//! | 104 | 8 | epoch of the highest ballot |
//! | 112 | 8 | its hybrid time |
//! | 120 | 2 | its node slot |
//! | 122 | 1 | layer, see [`SliceHeader::layer`] |
//! | 123 | 1 | bits of the length of the longest record, see [`SizeClass`] |
//! | 124 | 4 | keys that a collection may drop: tombstones, and values that expire |

use std::num::NonZeroU32;

use torc_record::{Ballot, HybridTime, MAX_KEY_LEN, MAX_VALUE_LEN, NamespaceId};
use torc_ring::{Partition, Partitions};

use super::{Damage, order};
use crate::PartitionSummary;
use crate::format::{BALLOT_LEN, array, ballot_at, u32_at, u64_at};

pub(crate) const SLICE_HEADER_LEN: usize = 128;
pub(crate) const SLICE_DIGEST_LEN: usize = 32;
const MAGIC: [u8; 4] = *b"TSLC";
const VERSION: u32 = 2;
const INDEX_CRC_AT: usize = 100;
const BALLOT_AT: usize = 104;
const LAYER_AT: usize = 122;
const LONGEST_AT: usize = 123;
const COLLECTABLE_AT: usize = 124;
const MAX_PAYLOAD_LEN: usize = MAX_KEY_LEN + MAX_VALUE_LEN;
const MAX_KEYS: u32 = 1 << 30;
/// Stored in place of the number of tombstones.
const GENERATION: u32 = u32::MAX;
const IMPOSSIBLE: Damage = "the header of a slice is impossible";

/// The header of a slice. Memory holds one for every slice, so its fields are as narrow as
/// possible, and none repeats what follows from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SliceHeader {
    pub(crate) partition: Partition,
    pub(crate) partitions: Partitions,
    pub(crate) salt: u32,
    pub(crate) gate_len: u32,
    pub(crate) mphf_len: u32,
    pub(crate) offsets_len: u32,
    pub(crate) records_len: u64,
    pub(crate) contents: Contents,
    pub(crate) highest_time: HybridTime,
    /// The highest ballot of its records: damage cannot affect a key with a higher one.
    pub(crate) highest: [u8; BALLOT_LEN],
    /// Number of tombstones and expiring values; for a slice of a generation, which has neither,
    /// its id.
    pub(super) collectable: u32,
    pub(crate) order_crc: u32,
    /// A slice holds each digest once. Several keys can have one digest only if a caller supplied a
    /// wrong digest. The first such key is in a slice of layer 0, the next in one of layer 1, and
    /// so on. Slices of one layer are compacted together.
    pub(crate) layer: u8,
}

/// The sum of a slice's records, whatever other slices hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents {
    keys: NonZeroU32,
    /// [`GENERATION`] for a slice of a generation, which has no tombstones.
    tombstones: u32,
    payload_bytes: u64,
    /// Lower half, upper half.
    fingerprint: [u64; 2],
}

impl Contents {
    /// # Errors
    /// No slice can hold such a sum.
    pub(super) fn of(
        held: &PartitionSummary,
        generation: Option<NamespaceId>,
    ) -> Result<Self, Damage> {
        let tombstones = match generation {
            None => u32::try_from(held.tombstones)
                .ok()
                .filter(|count| *count <= MAX_KEYS),
            Some(_) => (held.tombstones == 0).then_some(GENERATION),
        };
        let keys = u32::try_from(held.records)
            .ok()
            .filter(|keys| *keys <= MAX_KEYS);
        Ok(Self {
            keys: keys.and_then(NonZeroU32::new).ok_or(IMPOSSIBLE)?,
            tombstones: tombstones.ok_or(IMPOSSIBLE)?,
            payload_bytes: held.payload_bytes,
            fingerprint: [
                (held.fingerprint << 64 >> 64) as u64,
                (held.fingerprint >> 64) as u64,
            ],
        })
    }
}

impl SliceHeader {
    pub(crate) fn keys(&self) -> usize {
        self.contents.keys.get() as usize
    }

    pub(crate) fn held(&self) -> PartitionSummary {
        let Contents {
            keys,
            payload_bytes,
            fingerprint: [low, high],
            ..
        } = self.contents;
        PartitionSummary {
            records: u64::from(keys.get()),
            tombstones: u64::from(self.tombstones()),
            payload_bytes,
            fingerprint: u128::from(high) << 64 | u128::from(low),
        }
    }

    /// The generation of all its records, if they are of one.
    pub(crate) fn generation(&self) -> Option<NamespaceId> {
        self.is_generation()
            .then_some(NamespaceId(self.collectable))
    }

    const fn is_generation(&self) -> bool {
        self.contents.tombstones == GENERATION
    }

    const fn tombstones(&self) -> u32 {
        if self.is_generation() {
            0
        } else {
            self.contents.tombstones
        }
    }

    /// Number of tombstones and expiring values.
    pub(crate) const fn collectable(&self) -> u32 {
        if self.is_generation() {
            0
        } else {
            self.collectable
        }
    }

    /// The highest ballot of its records.
    pub(crate) fn highest(&self) -> Ballot {
        ballot_at(&self.highest, 0)
    }

    pub(crate) fn order_len(&self) -> usize {
        order::order_len(self.keys())
    }

    /// Header, gate, MPHF and offsets.
    pub(crate) fn index_len(&self) -> usize {
        SLICE_HEADER_LEN
            + self.gate_len as usize
            + self.mphf_len as usize
            + self.offsets_len as usize
    }

    /// Gate, MPHF and offsets, which stay in memory.
    pub(crate) fn lookup_len(&self) -> usize {
        self.index_len() - SLICE_HEADER_LEN
    }

    /// Offset of the records.
    pub(crate) fn records_at(&self) -> usize {
        self.index_len() + self.order_len()
    }

    /// Length of the slice, its digest included.
    pub(crate) fn len(&self) -> u64 {
        self.records_at() as u64 + self.records_len + SLICE_DIGEST_LEN as u64
    }

    /// The header as bytes, with the checksum of the index.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a slice has at most MAX_KEYS records"
    )]
    pub(super) fn encode(&self, longest: SizeClass, index: &[&[u8]]) -> [u8; SLICE_HEADER_LEN] {
        let mut out = [0; SLICE_HEADER_LEN];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(4, &VERSION.to_le_bytes());
        put(8, &self.len().to_le_bytes());
        put(16, &self.partition.0.to_le_bytes());
        put(20, &self.partitions.count().to_le_bytes());
        let held = self.held();
        put(24, &(held.records as u32).to_le_bytes());
        put(28, &self.salt.to_le_bytes());
        put(32, &self.gate_len.to_le_bytes());
        put(36, &self.mphf_len.to_le_bytes());
        put(40, &self.offsets_len.to_le_bytes());
        put(44, &(self.order_len() as u32).to_le_bytes());
        put(48, &self.records_len.to_le_bytes());
        put(56, &self.tombstones().to_le_bytes());
        put(60, &self.generation().map_or(0, |id| id.0).to_le_bytes());
        put(64, &held.payload_bytes.to_le_bytes());
        put(72, &held.fingerprint.to_le_bytes());
        put(88, &self.highest_time.0.to_le_bytes());
        put(96, &self.order_crc.to_le_bytes());
        put(BALLOT_AT, &self.highest);
        put(LAYER_AT, &[self.layer]);
        put(LONGEST_AT, &[longest.0]);
        put(COLLECTABLE_AT, &self.collectable().to_le_bytes());
        let crc = index.iter().fold(header_crc(&out), |crc, part| {
            crc32c::crc32c_append(crc, part)
        });
        out[INDEX_CRC_AT..BALLOT_AT].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header, and checks that its lengths are consistent. Its checksum covers the whole
    /// index: see [`SliceHeader::fits`].
    ///
    /// # Errors
    /// The problem with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let bytes: &[u8; SLICE_HEADER_LEN] = bytes
            .first_chunk()
            .ok_or("the header of a slice is cut off")?;
        if bytes[..4] != MAGIC {
            return Err("no slice where one should start");
        }
        if u32_at(bytes, 4) != VERSION {
            return Err("a slice of another version");
        }
        let held = PartitionSummary {
            records: u64::from(u32_at(bytes, 24)),
            tombstones: u64::from(u32_at(bytes, 56)),
            payload_bytes: u64_at(bytes, 64),
            fingerprint: u128::from_le_bytes(array(bytes, 72)),
        };
        let collectable = u32_at(bytes, COLLECTABLE_AT);
        let generation = match NamespaceId(u32_at(bytes, 60)) {
            NamespaceId(0) => None,
            id => Some(id),
        };
        let header = Self {
            partition: Partition(u32_at(bytes, 16)),
            partitions: Partitions::new(u32_at(bytes, 20)).map_err(|_| IMPOSSIBLE)?,
            salt: u32_at(bytes, 28),
            gate_len: u32_at(bytes, 32),
            mphf_len: u32_at(bytes, 36),
            offsets_len: u32_at(bytes, 40),
            records_len: u64_at(bytes, 48),
            contents: Contents::of(&held, generation)?,
            highest_time: HybridTime(u64_at(bytes, 88)),
            highest: array(bytes, BALLOT_AT),
            collectable: generation.map_or(collectable, |id| id.0),
            order_crc: u32_at(bytes, 96),
            layer: bytes[LAYER_AT],
        };
        let is_possible = header.records_len < 1 << 48
            && header.order_len() == u32_at(bytes, 44) as usize
            && header.partitions.contains(header.partition)
            && (held.tombstones..=held.records).contains(&u64::from(collectable))
            && generation.is_none_or(|id| id.is_generation() && collectable == 0)
            && bytes[LONGEST_AT] <= SizeClass::of(MAX_PAYLOAD_LEN).0;
        if !is_possible || header.len() != u64_at(bytes, 8) {
            return Err(IMPOSSIBLE);
        }
        Ok(header)
    }

    /// Whether an index, header included, is as written, by its checksum.
    pub(crate) fn fits(&self, index: &[u8]) -> bool {
        let Some((header, parts)) = index.split_first_chunk::<SLICE_HEADER_LEN>() else {
            return false;
        };
        index.len() == self.index_len()
            && crc32c::crc32c_append(header_crc(header), parts) == u32_at(header, INDEX_CRC_AT)
    }
}

/// The length of the longest record of a slice, key and value together: the bits that it takes.
/// Zero: the slice does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeClass(u8);

impl SizeClass {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a length has at most 64 bits"
    )]
    pub(super) const fn of(longest: usize) -> Self {
        Self((usize::BITS - longest.leading_zeros()) as u8)
    }

    /// Of a slice whose header was decoded.
    pub(super) fn read(header: &[u8]) -> Self {
        Self(header.get(LONGEST_AT).copied().unwrap_or(0))
    }

    /// No record is longer.
    pub(crate) fn bound(self) -> usize {
        match self.0 {
            0 => MAX_PAYLOAD_LEN,
            bits => MAX_PAYLOAD_LEN.min((1 << bits) - 1),
        }
    }
}

fn header_crc(bytes: &[u8; SLICE_HEADER_LEN]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..INDEX_CRC_AT]), &bytes[BALLOT_AT..])
}
