//! Slices in memory, outside of any file.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;

use bytes::Bytes;
use torc_record::{Ballot, Digest, Locator, NamespaceId, Record};
use torc_ring::{Partition, Partitions};

use crate::PartitionSummary;
use crate::packed::Packed;
use crate::slice::{
    BuiltSlice, Damage, Found, OrderedRecords, Reading, SLICE_DIGEST_LEN, SLICE_HEADER_LEN,
    SliceHeader, SliceView,
};

/// A slice in memory. Its index is checked, and its digest is the requested one.
#[derive(Debug, Clone)]
pub struct LooseSlice {
    header: SliceHeader,
    bytes: Bytes,
}

impl LooseSlice {
    /// Takes the bytes of the slice with this digest. Reads all of them, at 1 GB/s or more.
    ///
    /// # Errors
    /// Why the bytes are not a slice, or not that one.
    pub fn new(bytes: Bytes, digest: &[u8; 32]) -> Result<Self, &'static str> {
        let (content, last) = bytes
            .split_last_chunk::<SLICE_DIGEST_LEN>()
            .ok_or("a slice is cut off")?;
        if last != digest || blake3::hash(content).as_bytes() != digest {
            return Err("its digest differs from the requested one");
        }
        let header = bytes.get(..SLICE_HEADER_LEN).ok_or("a slice is cut off")?;
        let header = SliceHeader::decode(header)?;
        if header.len() != bytes.len() as u64 {
            return Err("the length of a slice differs from its header");
        }
        SliceView::of(&header, &bytes)?;
        Ok(Self { header, bytes })
    }

    /// The partition whose records it holds.
    #[must_use]
    pub fn partition(&self) -> Partition {
        self.header.partition
    }

    /// The number of partitions of the cluster.
    #[must_use]
    pub fn partitions(&self) -> Partitions {
        self.header.partitions
    }

    /// Its length, bytes.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// What it holds, by its header.
    #[must_use]
    pub fn summary(&self) -> PartitionSummary {
        self.header.held()
    }

    /// The record of a key, tombstone or not, if this slice has it.
    ///
    /// # Errors
    /// What is damaged.
    pub fn get(&self, at: Locator<&[u8]>) -> Result<Option<Record>, &'static str> {
        let packed = match self.view()?.find(&at, Reading::Wait) {
            Found::GateNegative | Found::NotCached => return Ok(None),
            Found::Record(packed) => packed,
            Found::Damaged(what) => return Err(what),
        };
        let is_it = packed.position() == at;
        Ok(is_it.then(|| packed.unpack()))
    }

    /// Checks that every record is as it was written, and that lookups find every key. `digest_of`
    /// gives the correct digest of a key.
    ///
    /// # Errors
    /// What is damaged.
    pub fn verify(
        &self,
        digest_of: impl Fn(NamespaceId, &[u8]) -> Option<Digest>,
    ) -> Result<(), &'static str> {
        self.view()?.verify(&digest_of)
    }

    /// Its records by namespace, tombstones included. Reads every record, unless all are of one generation.
    ///
    /// # Errors
    /// What is damaged.
    pub fn namespaces(&self) -> Result<BTreeMap<NamespaceId, u64>, &'static str> {
        self.view()?.namespaces()
    }

    /// As a keyless slice of a generation that has the digests of this one; `None` if this one is not keyless, or not
    /// of a generation.
    pub(super) fn moved(
        &self,
        namespace: NamespaceId,
        ballot: Ballot,
    ) -> Option<BuiltSlice<'static>> {
        self.header.generation()?;
        self.header.moved(&self.bytes, namespace, ballot)
    }

    fn view(&self) -> Result<SliceView<'_>, Damage> {
        SliceView::of(&self.header, &self.bytes)
    }
}

/// The records of several slices in ring order: the one with the highest ballot for each key,
/// tombstones included.
#[derive(Debug)]
pub struct MergedRecords<'a> {
    inputs: Vec<Peekable<OrderedRecords<'a>>>,
}

impl<'a> MergedRecords<'a> {
    /// Merges slices of one partition.
    ///
    /// # Errors
    /// What is damaged.
    pub fn of(slices: &'a [LooseSlice]) -> Result<Self, &'static str> {
        let inputs = slices.iter().map(|slice| {
            let records = OrderedRecords::after(slice.view()?, None)?;
            Ok(records.peekable())
        });
        let inputs: Result<_, Damage> = inputs.collect();
        Ok(Self { inputs: inputs? })
    }

    fn next_packed(&mut self) -> Result<Option<Packed>, Damage> {
        let mut next: Option<Packed> = None;
        for records in &mut self.inputs {
            let candidate = match records.peek() {
                None => continue,
                Some(Err(lost)) => return Err(lost.what),
                Some(Ok(candidate)) => candidate,
            };
            let is_next =
                next.as_ref()
                    .is_none_or(|next| match candidate.position().cmp(&next.position()) {
                        Ordering::Less => true,
                        Ordering::Equal => candidate.supersedes(next),
                        Ordering::Greater => false,
                    });
            if is_next {
                next = Some(candidate.clone());
            }
        }
        if let Some(next) = &next {
            for records in &mut self.inputs {
                let is_told = |it: &Result<Packed, _>| {
                    it.as_ref().is_ok_and(|it| it.position() == next.position())
                };
                while records.next_if(is_told).is_some() {}
            }
        }
        Ok(next)
    }
}

impl Iterator for MergedRecords<'_> {
    type Item = Result<Record, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_packed().transpose()?;
        if next.is_err() {
            self.inputs.clear();
        }
        Some(next.map(|packed| packed.unpack()))
    }
}
