//! A keyless slice: what a static namespace keeps of its keys if it does not store them.
//!
//! | part | holds |
//! |---|---|
//! | header | 128 bytes |
//! | MPHF | slot of each digest (`torc_index::Mphf`) |
//! | fingerprints | bits of each digest, in the order of slots (`torc_index::KeylessSet`) |
//! | payloads | in the order of slots, in blocks of 64: CRC32C (4 bytes), payloads; none if they have no bytes |
//! | digest | 32 bytes of BLAKE3 of everything before |
//!
//! Header, MPHF and fingerprints are the index. The checksum of a block continues from the slice's
//! salt plus the number of the block.
//!
//! A lookup returns a record of the asked key, with the highest ballot of the header as its version
//! and the payload as its value. For a key that is not a member it returns a record with probability
//! 2^-`fingerprint_bits`. A receiver cannot check the digests of keys. From the source, it checks the
//! slice's digest against the manifest; from another replica, against the announced one.

#![expect(
    clippy::cast_possible_truncation,
    reason = "MAX_KEYS bounds the parts of an index, and the salt is the low half"
)]

use torc_index::{KeylessSet, Mphf};
use torc_record::{Ballot, Digest, Layer, NamespaceId};
use torc_ring::{Partition, Partitions};

use super::builder::{BuiltSlice, unbuildable};
use super::header::{Contents, Kind, SLICE_DIGEST_LEN, SLICE_HEADER_LEN, SizeClass, SliceHeader};
use super::payloads::{BLOCK_SLOTS, KeylessLayout};
use super::record_crc;
use crate::format::ballot_bytes;
use crate::{PartitionSummary, StoreError};

/// The input of a keyless slice.
pub(crate) struct KeylessInput<'a> {
    pub(crate) partition: Partition,
    pub(crate) partitions: Partitions,
    pub(crate) namespace: NamespaceId,
    /// The version of all keys.
    pub(crate) ballot: Ballot,
    pub(crate) layout: KeylessLayout,
    /// Digests in ascending order, each with its payload.
    pub(crate) rows: &'a [(Digest, &'a [u8])],
}

impl KeylessInput<'_> {
    /// Builds the slice. The same input gives the same bytes everywhere.
    ///
    /// # Errors
    /// [`StoreError::Unflushable`]: there are no keys or too many, two have the same digest, or the
    /// widths are impossible.
    pub(crate) fn build(self) -> Result<BuiltSlice<'static>, StoreError> {
        let width = usize::from(self.layout.payload_bytes);
        if !self.layout.is_possible() || self.rows.iter().any(|(_, it)| it.len() != width) {
            return Err(unbuildable("a keyless slice of other widths"));
        }
        let digests: Vec<Digest> = self.rows.iter().map(|(digest, _)| *digest).collect();
        let held = PartitionSummary {
            records: digests.len() as u64,
            tombstones: 0,
            payload_bytes: (digests.len() * width) as u64,
            fingerprint: digests.iter().fold(0_u128, |sum, digest| {
                sum.wrapping_add(u128::from_be_bytes(digest.0))
            }),
        };
        let salt = (held.fingerprint ^ held.fingerprint >> 64) as u32;
        let mphf = Mphf::build(&digests, u64::from(salt)).map_err(unbuildable)?;
        let function = Mphf::view(&mphf).map_err(unbuildable)?;
        let bits = u32::from(self.layout.fingerprint_bits);
        let fingerprints =
            KeylessSet::fingerprints(function, &digests, bits).map_err(unbuildable)?;
        let mut ordered = vec![0; digests.len() * width];
        if width > 0 {
            for (digest, payload) in self.rows {
                let at = function.slot(digest) * width;
                ordered[at..at + width].copy_from_slice(payload);
            }
        }
        let mut payloads = Vec::new();
        for (number, block) in ordered.chunks(BLOCK_SLOTS * width.max(1)).enumerate() {
            payloads.extend_from_slice(&record_crc(salt, number, block).to_le_bytes());
            payloads.extend_from_slice(block);
        }
        let kind = Kind::Keyless(self.layout);
        let generation = Some(self.namespace).filter(|id| id.is_generation());
        let header = SliceHeader {
            partition: self.partition,
            partitions: self.partitions,
            salt,
            gate_len: 0,
            mphf_len: mphf.len() as u32,
            offsets_len: u32::try_from(fingerprints.len())
                .map_err(|_| unbuildable("more keys than fingerprints of this width fit"))?,
            records_len: payloads.len() as u64,
            contents: Contents::of(&held, generation, kind).map_err(unbuildable)?,
            highest_time: self.ballot.time,
            highest: ballot_bytes(self.ballot),
            collectable: generation.map_or(0, |id| id.0),
            layer: 0,
            order_crc: 0,
        };
        Ok(built(header, &[&mphf, &fingerprints], payloads))
    }
}

impl SliceHeader {
    /// The keyless slice with this header as one of another generation with the same digests; `bytes` are all of
    /// it. `None` if it is not keyless, or its length is another.
    pub(crate) fn moved(
        self,
        bytes: &[u8],
        namespace: NamespaceId,
        ballot: Ballot,
    ) -> Option<BuiltSlice<'static>> {
        self.keyless()?;
        let arc = self.partitions.in_layer(Layer::BASE, self.partition);
        let header = Self {
            partition: self.partitions.in_layer(namespace.layer(), arc),
            highest_time: ballot.time,
            highest: ballot_bytes(ballot),
            collectable: namespace.0,
            ..self
        };
        let (index, rest) = bytes.split_at_checked(self.index_len())?;
        let (payloads, _) = rest.split_last_chunk::<SLICE_DIGEST_LEN>()?;
        let parts = index.get(SLICE_HEADER_LEN..)?;
        Some(built(header, &[parts], payloads.to_vec()))
    }
}

/// A slice of these parts of an index.
fn built(header: SliceHeader, parts: &[&[u8]], payloads: Vec<u8>) -> BuiltSlice<'static> {
    let width = header.keyless().map_or(0, |layout| layout.payload_bytes);
    let longest = SizeClass::of(usize::from(width));
    let mut index = header.encode(longest, parts).to_vec();
    for part in parts {
        index.extend_from_slice(part);
    }
    BuiltSlice::of_payloads(header, index, payloads)
}
