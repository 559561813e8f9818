//! The first 128 bytes of a slice.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic: the [`Kind`] of the slice |
//! | 4 | 4 | version, 3 |
//! | 8 | 8 | length of the slice |
//! | 16 | 4 | partition |
//! | 20 | 4 | number of partitions |
//! | 24 | 4 | keys, at least 1 |
//! | 28 | 4 | salt |
//! | 32 | 4 | length of the gate |
//! | 36 | 4 | length of the MPHF |
//! | 40 | 4 | length of the offsets; keyless: of the fingerprints |
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
//!
//! A keyless slice has no gate, no order and no layers. Its "records" are payloads, its fingerprint
//! is the sum of the digests, and bytes 124 and 125 are the bits of a key's fingerprint and the
//! bytes of a payload.

use std::num::NonZeroU32;

use torc_record::{Ballot, HybridTime, MAX_KEY_LEN, MAX_VALUE_LEN, NamespaceId};
use torc_ring::{Partition, Partitions};

use super::payloads::{KeylessLayout, payloads_len};
use super::{Damage, RECORD_CRC_LEN, order};
use crate::PartitionSummary;
use crate::format::{BALLOT_LEN, array, ballot_at, u32_at, u64_at};
use crate::packed::HEAD_LEN;

pub(crate) const SLICE_HEADER_LEN: usize = 128;
pub(crate) const SLICE_DIGEST_LEN: usize = 32;
const VERSION: u32 = 3;
const INDEX_CRC_AT: usize = 100;
const BALLOT_AT: usize = 104;
const LAYER_AT: usize = 122;
const LONGEST_AT: usize = 123;
const COLLECTABLE_AT: usize = 124;
const MAX_PAYLOAD_LEN: usize = MAX_KEY_LEN + MAX_VALUE_LEN;
const MAX_KEYS: u32 = 1 << 30;
const IMPOSSIBLE: Damage = "the header of a slice is impossible";

/// What a slice stores of each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A record. Magic `TSLC`.
    Records,
    /// A record without a value; lookups give its slot as the value. Magic `TSLN`.
    Numbered,
    /// A fingerprint and a payload. Magic `TSLK`.
    Keyless(KeylessLayout),
}

impl Kind {
    const fn magic(self) -> [u8; 4] {
        match self {
            Self::Records => *b"TSLC",
            Self::Numbered => *b"TSLN",
            Self::Keyless(_) => *b"TSLK",
        }
    }

    fn read(header: &[u8; SLICE_HEADER_LEN]) -> Result<Self, Damage> {
        match &header[..4] {
            b"TSLC" => Ok(Self::Records),
            b"TSLN" => Ok(Self::Numbered),
            b"TSLK" => {
                let [fingerprint_bits, payload_bytes] = array(header, COLLECTABLE_AT);
                let layout = KeylessLayout {
                    fingerprint_bits,
                    payload_bytes,
                };
                let is_possible = layout.is_possible() && header[COLLECTABLE_AT + 2..] == [0; 2];
                is_possible
                    .then_some(Self::Keyless(layout))
                    .ok_or(IMPOSSIBLE)
            }
            _ => Err("no slice where one should start"),
        }
    }
}

/// The header of a slice. Memory holds one for every slice, so its fields are as narrow as
/// possible, and none repeats what follows from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SliceHeader {
    pub(crate) partition: Partition,
    pub(crate) partitions: Partitions,
    pub(crate) salt: u32,
    pub(crate) gate_len: u32,
    pub(crate) mphf_len: u32,
    /// Of a keyless slice: of the fingerprints.
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
    marks: Marks,
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
        kind: Kind,
    ) -> Result<Self, Damage> {
        let tombstones = u32::try_from(held.tombstones);
        let tombstones = tombstones.map_err(|_| IMPOSSIBLE)?;
        let marks = Marks::of(tombstones, generation.is_some(), kind);
        let keys = u32::try_from(held.records)
            .ok()
            .filter(|keys| *keys <= MAX_KEYS);
        Ok(Self {
            keys: keys.and_then(NonZeroU32::new).ok_or(IMPOSSIBLE)?,
            marks: marks.ok_or(IMPOSSIBLE)?,
            payload_bytes: held.payload_bytes,
            fingerprint: [
                (held.fingerprint << 64 >> 64) as u64,
                (held.fingerprint >> 64) as u64,
            ],
        })
    }
}

/// The number of tombstones of an ordinary slice. Slices of generations, and those of another kind
/// than records, have no tombstones; [`Marks::SPECIAL`] marks them, and other bits say what they
/// are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks(u32);

impl Marks {
    const SPECIAL: u32 = 1 << 31;
    const GENERATION: u32 = 1 << 30;
    const NUMBERED: u32 = 1 << 29;
    const KEYLESS: u32 = 1 << 28;

    /// `None` if no such slice exists.
    fn of(tombstones: u32, is_generation: bool, kind: Kind) -> Option<Self> {
        if kind == Kind::Records && !is_generation {
            return (tombstones <= MAX_KEYS).then_some(Self(tombstones));
        }
        let generation = if is_generation { Self::GENERATION } else { 0 };
        let kind = match kind {
            Kind::Records => 0,
            Kind::Numbered => Self::NUMBERED,
            Kind::Keyless(KeylessLayout {
                fingerprint_bits,
                payload_bytes,
            }) => Self::KEYLESS | u32::from(u16::from_le_bytes([fingerprint_bits, payload_bytes])),
        };
        (tombstones == 0).then_some(Self(Self::SPECIAL | generation | kind))
    }

    const fn has(self, bit: u32) -> bool {
        self.0 & (Self::SPECIAL | bit) == Self::SPECIAL | bit
    }

    const fn tombstones(self) -> u32 {
        if self.has(0) { 0 } else { self.0 }
    }

    const fn kind(self) -> Kind {
        let [fingerprint_bits, payload_bytes, ..] = self.0.to_le_bytes();
        if self.has(Self::NUMBERED) {
            Kind::Numbered
        } else if self.has(Self::KEYLESS) {
            Kind::Keyless(KeylessLayout {
                fingerprint_bits,
                payload_bytes,
            })
        } else {
            Kind::Records
        }
    }
}

impl SliceHeader {
    pub(crate) const fn kind(&self) -> Kind {
        self.contents.marks.kind()
    }

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
            tombstones: u64::from(self.contents.marks.tombstones()),
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
        self.contents.marks.has(Marks::GENERATION)
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

    /// The widths of a keyless slice.
    pub(crate) const fn keyless(&self) -> Option<KeylessLayout> {
        match self.kind() {
            Kind::Keyless(layout) => Some(layout),
            Kind::Records | Kind::Numbered => None,
        }
    }

    pub(crate) fn order_len(&self) -> usize {
        match self.kind() {
            Kind::Keyless(_) => 0,
            Kind::Records | Kind::Numbered => order::order_len(self.keys()),
        }
    }

    pub(crate) fn alignment(&self) -> Alignment {
        match self.kind() {
            Kind::Keyless(_) => Alignment::NONE,
            Kind::Records | Kind::Numbered => Alignment::of(&self.held()),
        }
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
        put(0, &self.kind().magic());
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
        put(56, &(held.tombstones as u32).to_le_bytes());
        put(60, &self.generation().map_or(0, |id| id.0).to_le_bytes());
        put(64, &held.payload_bytes.to_le_bytes());
        put(72, &held.fingerprint.to_le_bytes());
        put(88, &self.highest_time.0.to_le_bytes());
        put(96, &self.order_crc.to_le_bytes());
        put(BALLOT_AT, &self.highest);
        put(LAYER_AT, &[self.layer]);
        put(LONGEST_AT, &[longest.0]);
        match self.kind() {
            Kind::Keyless(layout) => {
                put(
                    COLLECTABLE_AT,
                    &[layout.fingerprint_bits, layout.payload_bytes],
                );
            }
            Kind::Records | Kind::Numbered => {
                put(COLLECTABLE_AT, &self.collectable().to_le_bytes());
            }
        }
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
        let kind = Kind::read(bytes)?;
        if u32_at(bytes, 4) != VERSION {
            return Err("a slice of another version");
        }
        let held = PartitionSummary {
            records: u64::from(u32_at(bytes, 24)),
            tombstones: u64::from(u32_at(bytes, 56)),
            payload_bytes: u64_at(bytes, 64),
            fingerprint: u128::from_le_bytes(array(bytes, 72)),
        };
        let collectable = match kind {
            Kind::Keyless(_) => 0,
            Kind::Records | Kind::Numbered => u32_at(bytes, COLLECTABLE_AT),
        };
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
            contents: Contents::of(&held, generation, kind)?,
            highest_time: HybridTime(u64_at(bytes, 88)),
            highest: array(bytes, BALLOT_AT),
            collectable: generation.map_or(collectable, |id| id.0),
            order_crc: u32_at(bytes, 96),
            layer: bytes[LAYER_AT],
        };
        let is_possible = header.records_len < 1 << 48
            && header
                .records_len
                .is_multiple_of(header.alignment().bytes())
            && header.order_len() == u32_at(bytes, 44) as usize
            && header.partitions.contains(header.partition)
            && (held.tombstones..=held.records).contains(&u64::from(collectable))
            && generation.is_none_or(|id| id.is_generation() && collectable == 0)
            && bytes[LONGEST_AT] <= SizeClass::of(MAX_PAYLOAD_LEN).0
            && header
                .keyless()
                .is_none_or(|layout| header.is_possible_keyless(layout, bytes[LONGEST_AT]));
        if !is_possible || header.len() != u64_at(bytes, 8) {
            return Err(IMPOSSIBLE);
        }
        Ok(header)
    }

    /// Whether the lengths and sums follow from the number of keys, as they do in a keyless slice.
    fn is_possible_keyless(&self, layout: KeylessLayout, longest: u8) -> bool {
        let held = self.held();
        (self.gate_len, self.order_crc, self.layer, held.tombstones) == (0, 0, 0, 0)
            && self.records_len == payloads_len(self.keys(), layout)
            && held.payload_bytes == held.records * u64::from(layout.payload_bytes)
            && longest == SizeClass::of(usize::from(layout.payload_bytes)).0
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

/// Each record of a slice starts at a multiple of this, so that offsets take fewer bits of memory. The highest power
/// of two that is at most a sixteenth of the average record with its checksum, whatever expiries and origins it has:
/// the gaps take about 3 % of the disk, and an offset about seven bits, however long the records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alignment {
    log2: u8,
}

impl Alignment {
    const NONE: Self = Self { log2: 0 };

    pub(super) fn of(held: &PartitionSummary) -> Self {
        let longest = MAX_PAYLOAD_LEN as u64;
        let payload = held.payload_bytes / held.records.max(1);
        let average = (RECORD_CRC_LEN + HEAD_LEN) as u64 + payload.min(longest);
        let log2 = u8::try_from(average.ilog2()).unwrap_or(0).saturating_sub(4);
        Self { log2 }
    }

    pub(crate) const fn bytes(self) -> u64 {
        1 << self.log2
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
