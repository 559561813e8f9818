//! Builds a slice.

#![expect(
    clippy::cast_possible_truncation,
    reason = "MAX_KEYS bounds the parts of an index, LAST_LAYER the layer, and the salt is the low half"
)]

use std::collections::HashMap;

use torc_index::{Gate, Mphf, Offsets};
use torc_record::{Ballot, Digest, HybridTime, NamespaceId, to_usize};
use torc_ring::{Partition, Partitions};

use super::header::{Alignment, Contents, Kind, SLICE_HEADER_LEN, SizeClass, SliceHeader};
use super::{RECORD_CRC_LEN, order, record_crc};
use crate::format::{ballot_bytes, draw_salt};
use crate::packed::PackedRef;
use crate::{PartitionSummary, StoreError};

/// The input of a slice.
pub(crate) struct SliceInput<'a> {
    pub(crate) partition: Partition,
    pub(crate) partitions: Partitions,
    /// Packed records in ring order, at least one.
    pub(crate) records: Vec<&'a [u8]>,
    /// Their digests.
    pub(crate) digests: Vec<Digest>,
    pub(crate) layer: u8,
    /// None: it is derived from the records, so that equal ones give the same slice everywhere.
    pub(crate) salt: Option<u32>,
    /// False positive rate of its gate.
    pub(crate) gate_rate: f64,
    /// Records, or numbered.
    pub(crate) kind: Kind,
}

/// A cache of gate sizes: computing one takes longer than filling a small gate.
#[derive(Debug, Default)]
pub(crate) struct GateRates(HashMap<(usize, u64), torc_index::gate::sizing::GateSize>);

impl GateRates {
    fn build(&mut self, digests: &[Digest], rate: f64) -> Result<Vec<u8>, StoreError> {
        use torc_index::gate::sizing::GateSize;
        let key = (digests.len(), rate.to_bits());
        let size = if let Some(size) = self.0.get(&key) {
            *size
        } else {
            let size = GateSize::for_keys(digests.len(), rate).map_err(unbuildable)?;
            self.0.insert(key, size);
            size
        };
        Ok(Gate::build_sized(digests, size))
    }
}

/// A slice with its index, and references to its records.
pub(crate) struct BuiltSlice<'a> {
    pub(crate) header: SliceHeader,
    /// Header, gate, MPHF and offsets, which stay in memory.
    pub(crate) index: Vec<u8>,
    body: Body<'a>,
}

/// What follows the index of a slice.
enum Body<'a> {
    /// The order, and the records in the order of slots.
    Records(Vec<u8>, Vec<&'a [u8]>),
    /// The payloads of a keyless slice, with their checksums.
    Payloads(Vec<u8>),
}

impl<'a> SliceInput<'a> {
    /// One input per layer: the first record of each digest, the second ones, and so on.
    pub(crate) fn layers(self) -> Vec<Self> {
        if self.digests.windows(2).all(|pair| pair[0] != pair[1]) {
            return vec![self];
        }
        let mut layers: Vec<Self> = Vec::new();
        let (mut before, mut depth) = (None, 0);
        for (record, digest) in self.records.iter().zip(&self.digests) {
            depth = if before == Some(digest) { depth + 1 } else { 0 };
            before = Some(digest);
            if depth == layers.len() {
                layers.push(Self {
                    records: Vec::new(),
                    digests: Vec::new(),
                    layer: self
                        .layer
                        .saturating_add(depth.min(usize::from(LAST_LAYER)) as u8),
                    salt: Some(draw_salt()),
                    ..self
                });
            }
            layers[depth].records.push(record);
            layers[depth].digests.push(*digest);
        }
        layers
    }

    /// Builds the index. Takes about 0.2 us per record.
    ///
    /// # Errors
    /// [`StoreError::Unflushable`] if there are too many records.
    pub(crate) fn build(self, gates: &mut GateRates) -> Result<BuiltSlice<'a>, StoreError> {
        let keys = self.records.len();
        let sums = Sums::of(&self.records)?;
        let salt = self.salt.unwrap_or_else(|| sums.salt());
        let mphf = Mphf::build(&self.digests, u64::from(salt)).map_err(unbuildable)?;
        let gate = gates.build(&self.digests, self.gate_rate)?;
        let mut slots = Vec::with_capacity(keys);
        Mphf::view(&mphf)
            .map_err(unbuildable)?
            .slots(&self.digests, &mut slots);
        let mut records = vec![&[][..]; keys];
        for (record, slot) in self.records.iter().zip(&slots) {
            records[*slot as usize] = record;
        }
        let alignment = Alignment::of(&sums.held).bytes();
        let mut end = 0;
        let starts: Vec<u64> = records
            .iter()
            .map(|record| {
                let start = end;
                end += ((RECORD_CRC_LEN + record.len()) as u64).div_ceil(alignment);
                start
            })
            .collect();
        let offsets = Offsets::build(&starts, end).map_err(unbuildable)?;
        let order = order::pack(&slots);
        let header = SliceHeader {
            partition: self.partition,
            partitions: self.partitions,
            salt,
            gate_len: gate.len() as u32,
            mphf_len: mphf.len() as u32,
            offsets_len: offsets.len() as u32,
            records_len: end * alignment,
            contents: Contents::of(&sums.held, sums.generation, self.kind).map_err(unbuildable)?,
            highest_time: sums.highest_time,
            highest: ballot_bytes(sums.highest),
            collectable: sums.generation.map_or(sums.collectable, |id| id.0),
            layer: self.layer,
            order_crc: crc32c::crc32c(&order),
        };
        let encoded = header.encode(SizeClass::of(sums.longest), &[&gate, &mphf, &offsets]);
        let mut index = Vec::with_capacity(header.index_len());
        for part in [&encoded[..], &gate, &mphf, &offsets] {
            index.extend_from_slice(part);
        }
        debug_assert!(index.len() >= SLICE_HEADER_LEN && header.fits(&index));
        Ok(BuiltSlice {
            header,
            index,
            body: Body::Records(order, records),
        })
    }
}

/// Sums over the records of a slice.
#[derive(Debug, Default)]
struct Sums {
    held: PartitionSummary,
    highest: Ballot,
    highest_time: HybridTime,
    /// Bytes of the longest key and value together.
    longest: usize,
    /// Number of records that a collection may drop.
    collectable: u32,
    /// The generation of the records, if they are of one.
    generation: Option<NamespaceId>,
}

impl Sums {
    fn of(records: &[&[u8]]) -> Result<Self, StoreError> {
        let mut sums = Self::default();
        for (place, record) in records.iter().enumerate() {
            let record = PackedRef::at_start_of(record).map_err(unbuildable)?;
            sums.held.add_ref(record);
            sums.longest = sums.longest.max(record.payload_len());
            sums.highest = sums.highest.max(record.ballot());
            sums.highest_time = sums.highest_time.max(record.ballot().time);
            sums.collectable += u32::from(record.is_collectable());
            let of = Some(record.namespace()).filter(|id| id.is_generation());
            if place == 0 {
                sums.generation = of;
            } else if sums.generation != of {
                return Err(unbuildable(
                    "records of a generation and others in one slice",
                ));
            }
            if of.is_some() && record.is_collectable() {
                let why = "a generation has no tombstones, and nothing in it expires";
                return Err(unbuildable(why));
            }
        }
        Ok(sums)
    }

    /// A salt that depends on the records alone.
    fn salt(&self) -> u32 {
        let fingerprint = self.held.fingerprint;
        (fingerprint ^ fingerprint >> 64) as u32
    }
}

impl BuiltSlice<'_> {
    /// A keyless slice.
    pub(super) const fn of_payloads(
        header: SliceHeader,
        index: Vec<u8>,
        payloads: Vec<u8>,
    ) -> Self {
        Self {
            header,
            index,
            body: Body::Payloads(payloads),
        }
    }

    /// Passes the bytes of the slice to `put`, from start to end, in pieces.
    ///
    /// # Errors
    /// Those of `put`.
    pub(crate) fn write(
        &self,
        mut put: impl FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut hasher = blake3::Hasher::new();
        let mut piece = Vec::with_capacity(PIECE_LEN * 2);
        piece.extend_from_slice(&self.index);
        let alignment = self.header.alignment().bytes();
        let (between, records): (&[u8], &[&[u8]]) = match &self.body {
            Body::Records(order, records) => (order, records),
            Body::Payloads(payloads) => (payloads, &[]),
        };
        piece.extend_from_slice(between);
        for (slot, record) in records.iter().enumerate() {
            let crc = record_crc(self.header.salt, slot, record);
            piece.extend_from_slice(&crc.to_le_bytes());
            piece.extend_from_slice(record);
            let len = (RECORD_CRC_LEN + record.len()) as u64;
            let gap = to_usize(len.next_multiple_of(alignment) - len);
            piece.resize(piece.len() + gap, 0);
            if piece.len() >= PIECE_LEN {
                hasher.update(&piece);
                put(&piece)?;
                piece.clear();
            }
        }
        hasher.update(&piece);
        put(&piece)?;
        put(hasher.finalize().as_bytes())
    }
}

const PIECE_LEN: usize = 64 << 10;

/// Slices of this layer may hold records of higher layers: they are not compacted.
pub(crate) const LAST_LAYER: u8 = u8::MAX;

/// The write path prevents this.
pub(super) fn unbuildable(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unflushable {
        why: why.to_string().into(),
    }
}
