//! Making a slice.

use std::collections::HashMap;

use torc_index::{Gate, Mphf, Offsets};
use torc_record::{Ballot, Digest, HybridTime};
use torc_ring::{Partition, Partitions};

use super::header::{Contents, SLICE_HEADER_LEN, SliceHeader};
use super::{RECORD_CRC_LEN, order, record_crc};
use crate::format::ballot_bytes;
use crate::packed::PackedRef;
use crate::{PartitionSummary, StoreError};

/// What a slice is made of.
pub(crate) struct SliceInput<'a> {
    pub(crate) partition: Partition,
    pub(crate) partitions: Partitions,
    /// Packed records in ring order, one a digest; at least one.
    pub(crate) records: Vec<&'a [u8]>,
    /// Their digests.
    pub(crate) digests: Vec<Digest>,
    /// What they come to.
    pub(crate) held: PartitionSummary,
    pub(crate) highest_time: HybridTime,
    pub(crate) salt: u32,
    /// Share of strangers that the gate lets through.
    pub(crate) gate_rate: f64,
}

/// Sizes of gates, remembered: the solver takes longer than filling a small gate.
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

/// A slice whose index is made and whose records are still where they were.
pub(crate) struct BuiltSlice<'a> {
    pub(crate) header: SliceHeader,
    /// Header, gate, MPHF and offsets: what stays in memory.
    pub(crate) index: Vec<u8>,
    order: Vec<u8>,
    /// In the order of slots.
    records: Vec<&'a [u8]>,
}

impl<'a> SliceInput<'a> {
    /// Makes the index. About 0.2 us a record.
    ///
    /// # Errors
    /// [`StoreError::Unsealable`]: two records share a digest, or there are too many.
    pub(crate) fn build(self, gates: &mut GateRates) -> Result<BuiltSlice<'a>, StoreError> {
        let keys = self.records.len();
        let mphf = Mphf::build(&self.digests, u64::from(self.salt)).map_err(unbuildable)?;
        let gate = gates.build(&self.digests, self.gate_rate)?;
        let mut slots = Vec::with_capacity(keys);
        Mphf::view(&mphf)
            .map_err(unbuildable)?
            .slots(&self.digests, &mut slots);
        let mut records = vec![&[][..]; keys];
        for (record, slot) in self.records.iter().zip(&slots) {
            records[*slot as usize] = record;
        }
        let mut end = 0;
        let starts: Vec<u64> = records
            .iter()
            .map(|record| {
                let start = end;
                end += (RECORD_CRC_LEN + record.len()) as u64;
                start
            })
            .collect();
        let (highest, collectable) = extremes(&records)?;
        let offsets = Offsets::build(&starts, end).map_err(unbuildable)?;
        let order = order::pack(&slots);
        let header = SliceHeader {
            partition: self.partition,
            partitions: self.partitions,
            salt: self.salt,
            gate_len: gate.len() as u32,
            mphf_len: mphf.len() as u32,
            offsets_len: offsets.len() as u32,
            records_len: end,
            contents: Contents::of(&self.held).map_err(unbuildable)?,
            highest_time: self.highest_time,
            highest: ballot_bytes(highest),
            collectable,
            order_crc: crc32c::crc32c(&order),
        };
        let encoded = header.encode(&[&gate, &mphf, &offsets]);
        let mut index = Vec::with_capacity(header.index_len());
        for part in [&encoded[..], &gate, &mphf, &offsets] {
            index.extend_from_slice(part);
        }
        debug_assert!(index.len() >= SLICE_HEADER_LEN && header.fits(&index));
        Ok(BuiltSlice {
            header,
            index,
            order,
            records,
        })
    }
}

/// The highest ballot, and how many a collection may drop.
fn extremes(records: &[&[u8]]) -> Result<(Ballot, u32), StoreError> {
    let (mut highest, mut collectable) = (Ballot::default(), 0);
    for record in records {
        let record = PackedRef::at_start_of(record).map_err(unbuildable)?;
        highest = highest.max(record.ballot());
        collectable += u32::from(record.is_collectable());
    }
    Ok((highest, collectable))
}

impl BuiltSlice<'_> {
    /// Gives the bytes of the slice from its start to its end, in pieces.
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
        piece.extend_from_slice(&self.order);
        for (slot, record) in self.records.iter().enumerate() {
            let crc = record_crc(self.header.salt, slot, record);
            piece.extend_from_slice(&crc.to_le_bytes());
            piece.extend_from_slice(record);
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

/// Nothing that the write path lets in comes here.
fn unbuildable(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unsealable {
        why: why.to_string().into(),
    }
}
