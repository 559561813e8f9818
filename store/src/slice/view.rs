//! Reading a slice in place.

use torc_index::{Gate, Mphf, MphfHead, Offsets};
use torc_record::{Ballot, Digest, NamespaceId};
use torc_ring::Token;

use super::header::{SLICE_DIGEST_LEN, SLICE_HEADER_LEN, SliceHeader};
use super::{Checked, Damage, RECORD_CRC_LEN, order, record_crc};
use crate::format::u32_at;
use crate::packed::{HEAD_LEN, Packed, PackedRef};

/// A slice in two parts: its index, checked and in memory, and the rest, as it is in the
/// file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SliceView<'a> {
    header: &'a SliceHeader,
    heads: Heads,
    /// Blocks of the gate.
    gate: &'a [u8],
    /// MPHF and offsets.
    lookup: &'a [u8],
    rest: &'a [u8],
}

/// What the heads of a slice's gate, MPHF and offsets say, so that a get reads none of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    probes: u8,
    mphf: MphfHead,
    /// Of an offset.
    low_bits: u8,
}

impl Heads {
    /// Reads the heads of an index; checks that all its parts can be read.
    ///
    /// # Errors
    /// One of them cannot.
    pub(crate) fn read(header: &SliceHeader, index: &[u8]) -> Result<Self, Damage> {
        let lookup = index.get(SLICE_HEADER_LEN..).ok_or(NO_INDEX)?;
        let gate_end = header.gate_len as usize;
        let offsets_at = header.lookup_len() - header.offsets_len as usize;
        let gate = lookup.get(..gate_end).ok_or(NO_INDEX)?;
        let mphf = lookup.get(gate_end..offsets_at).ok_or(NO_INDEX)?;
        let offsets = lookup.get(offsets_at..).ok_or(NO_INDEX)?;
        let gate = Gate::view(gate).map_err(|_| NO_INDEX)?;
        let function = Mphf::view(mphf).map_err(|_| NO_INDEX)?;
        let offsets = Offsets::view(offsets).map_err(|_| NO_INDEX)?;
        if function.len() != header.keys() || offsets.len() != header.keys() {
            return Err(NO_INDEX);
        }
        Ok(Self {
            probes: gate.probes() as u8,
            mphf: function.head(),
            low_bits: offsets.low_bits(),
        })
    }
}

/// What of an index lookups read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IndexParts<'a> {
    /// Blocks of the gate.
    pub(crate) gate: &'a [u8],
    /// MPHF and offsets.
    pub(crate) lookup: &'a [u8],
}

impl<'a> IndexParts<'a> {
    /// Those of a whole index; none if it is shorter than its header says.
    pub(crate) fn of(header: &SliceHeader, index: &'a [u8]) -> Option<Self> {
        let parts = index.get(SLICE_HEADER_LEN..header.index_len())?;
        let (gate, lookup) = parts.split_at_checked(header.gate_len as usize)?;
        let blocks = gate.len().checked_sub(Gate::TRAILER_BYTES)?;
        Some(Self {
            gate: gate.get(..blocks)?,
            lookup,
        })
    }
}

/// What a slice says of a digest.
#[derive(Debug)]
pub(crate) enum Found {
    /// Its gate has never seen it.
    GateNegative,
    /// The record in its slot, which may be that of another key.
    Record(Packed),
    /// The record in its slot is damaged: nobody knows whether the key is there.
    Damaged(Damage),
}

const NO_INDEX: Damage = "the index of a slice is damaged";

impl<'a> SliceView<'a> {
    /// `heads` were read from the index, `parts` are [those](Self::parts) of it; `rest` is
    /// what follows it.
    pub(crate) fn new(
        header: &'a SliceHeader,
        heads: Heads,
        parts: IndexParts<'a>,
        rest: &'a [u8],
    ) -> Self {
        Self {
            header,
            heads,
            gate: parts.gate,
            lookup: parts.lookup,
            rest,
        }
    }

    /// A view of a whole slice whose index is checked here, the rest is not.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of(header: &'a SliceHeader, bytes: &'a [u8]) -> Result<Self, Damage> {
        let (index, rest) = bytes
            .split_at_checked(header.index_len())
            .ok_or("a slice is cut off")?;
        if bytes.len() as u64 != header.len() {
            return Err("a slice is cut off");
        }
        if !header.fits(index) {
            return Err(NO_INDEX);
        }
        let heads = Heads::read(header, index)?;
        let parts = IndexParts::of(header, index).ok_or(NO_INDEX)?;
        Ok(Self::new(header, heads, parts, rest))
    }

    pub(crate) fn keys(&self) -> usize {
        self.header.keys()
    }

    pub(crate) fn gate(&self) -> Gate<'a> {
        Gate::over(self.gate, u32::from(self.heads.probes))
    }

    pub(crate) fn mphf(&self) -> Option<Mphf<'a>> {
        let mphf = self.lookup.get(..self.header.mphf_len as usize)?;
        Some(self.heads.mphf.over(mphf, self.keys() as u32))
    }

    fn offsets(&self) -> Option<Offsets<'a>> {
        let offsets = self.lookup.get(self.header.mphf_len as usize..)?;
        Offsets::view_again(offsets, self.keys(), self.heads.low_bits)
    }

    /// Asks the gate, then reads the record in the digest's slot.
    pub(crate) fn find(&self, digest: &Digest) -> Found {
        // The function's seed is loaded while the gate is: most who ask know that the key is
        // there.
        if let Some(mphf) = self.mphf() {
            mphf.prefetch(digest);
        }
        if self.gate().may_contain(digest) {
            self.find_behind_gate(digest)
        } else {
            Found::GateNegative
        }
    }

    pub(crate) fn find_behind_gate(&self, digest: &Digest) -> Found {
        let Some(mphf) = self.mphf() else {
            return Found::Damaged(NO_INDEX);
        };
        match self.record(mphf.slot(digest)) {
            Ok(packed) => Found::Record(packed),
            Err(damage) => Found::Damaged(damage),
        }
    }

    /// Where the record of a slot starts among the bytes after the index.
    pub(crate) fn place(&self, slot: usize) -> Option<usize> {
        let offset = usize::try_from(self.offsets()?.get(slot)?).ok()?;
        offset.checked_add(self.header.order_len())
    }

    /// Asks the processor for the parts of the index that the lookup of a slot needs.
    pub(crate) fn prefetch_offset(&self, slot: usize) {
        if let Some(offsets) = self.offsets() {
            offsets.prefetch(slot);
        }
    }

    /// Asks the processor for the first bytes at a place.
    pub(crate) fn prefetch_place(&self, place: usize) {
        for line in 0..3 {
            torc_index::prefetch(self.rest, place.saturating_add(line * 64));
        }
    }

    /// The record of a slot, copied and checked.
    pub(crate) fn record(&self, slot: usize) -> Checked {
        let place = self.place(slot).ok_or(NO_INDEX)?;
        // Its first line tells how many there are: ask for the others before that is known.
        self.prefetch_place(place);
        self.record_at(slot, place)
    }

    /// The record of a slot at its place.
    pub(crate) fn record_at(&self, slot: usize, place: usize) -> Checked {
        let (crc, bytes) = self.bytes_at(place)?;
        // What is checked is the copy: the file is nobody's to trust.
        let packed = Packed::parse(bytes)?;
        if record_crc(self.header.salt, slot, packed.bytes()) == crc {
            Ok(packed)
        } else {
            Err("a record fails its checksum")
        }
    }

    fn bytes_at(&self, place: usize) -> Result<(u32, &'a [u8]), Damage> {
        let end = self.rest.len().saturating_sub(SLICE_DIGEST_LEN);
        let bytes = self.rest.get(place..end).unwrap_or_default();
        if bytes.len() < RECORD_CRC_LEN {
            return Err("a record is cut off");
        }
        Ok((u32_at(bytes, 0), &bytes[RECORD_CRC_LEN..]))
    }

    /// The slot of a place in ring order.
    pub(crate) fn slot_in_order(&self, place: usize) -> Option<usize> {
        let order = self.rest.get(..self.header.order_len())?;
        order::slot_at(order, self.keys(), place)
    }

    /// Whether the order is as it was written.
    pub(crate) fn order_fits(&self) -> bool {
        let order = self.rest.get(..self.header.order_len());
        order.is_some_and(|order| crc32c::crc32c(order) == self.header.order_crc)
    }

    /// Whether the digest at the end of a whole slice is that of its bytes.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn digest_fits(bytes: &[u8]) -> Result<(), Damage> {
        let (content, digest) = bytes
            .split_last_chunk::<SLICE_DIGEST_LEN>()
            .ok_or("a slice is cut off")?;
        if blake3::hash(content).as_bytes() == digest {
            Ok(())
        } else {
            Err("a slice fails its digest")
        }
    }

    /// Whether every record is as it was written, and every key where lookups find it:
    /// `digest_of` says what the digest of a key must be, if it can. Reads everything once, in
    /// the order in which it lies: 0.2 us a record, half of it for `digest_of`.
    ///
    /// The records are read where they lie and not copied: what is verified now is checked
    /// again by whoever reads it later.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn verify(
        &self,
        digest_of: impl Fn(NamespaceId, &[u8]) -> Option<Digest>,
    ) -> Result<(), Damage> {
        let gate = self.gate();
        let mphf = self.mphf().ok_or(NO_INDEX)?;
        let partitions = self.header.partitions;
        let mut held = crate::PartitionSummary::default();
        let (mut highest, mut collectable) = (Ballot::default(), 0);
        // The header's number of keys was bounded, but the bytes bound it better.
        let mut digests = Vec::with_capacity(self.keys().min(self.rest.len() / HEAD_LEN));
        for slot in 0..self.keys() {
            let record = self.record_in_place(slot)?;
            let digest = record.digest();
            let wanted = digest_of(record.namespace(), record.key());
            if wanted.is_some_and(|wanted| wanted != digest) {
                return Err("a record with the digest of another key");
            }
            if partitions.holding(record.namespace(), Token(digest.high())) != self.header.partition
            {
                return Err("a record of another partition");
            }
            if record.ballot().time > self.header.highest_time {
                return Err("a record that is later than its slice says");
            }
            highest = highest.max(record.ballot());
            collectable += u32::from(record.is_collectable());
            if mphf.slot(&digest) != slot || !gate.may_contain(&digest) {
                return Err("a key that its index does not find");
            }
            held.tombstones += u64::from(record.is_tombstone());
            held.payload_bytes += record.payload_len() as u64;
            held.records += 1;
            held.fingerprint = held.fingerprint.wrapping_add(record.fingerprint());
            digests.push(digest);
        }
        if (held, highest, collectable)
            != (
                self.header.held(),
                self.header.highest(),
                self.header.collectable,
            )
        {
            return Err("the records of a slice do not come to what it says");
        }
        self.verify_order(&digests)
    }

    /// Whether the order leads through all slots in ring order; `digests` are those of the
    /// slots.
    fn verify_order(&self, digests: &[Digest]) -> Result<(), Damage> {
        if !self.order_fits() {
            return Err("the order of a slice is damaged");
        }
        let mut before: Option<Digest> = None;
        for place in 0..self.keys() {
            let slot = self.slot_in_order(place).ok_or("the order is damaged")?;
            let digest = digests.get(slot).copied();
            if before.is_some() && before >= digest {
                return Err("the records of a slice are out of order");
            }
            before = digest;
        }
        Ok(())
    }

    /// The record of a slot where it lies, its checksum checked there.
    fn record_in_place(&self, slot: usize) -> Result<PackedRef<'a>, Damage> {
        let (crc, bytes) = self.bytes_at(self.place(slot).ok_or(NO_INDEX)?)?;
        let record = PackedRef::at_start_of(bytes)?;
        if record_crc(self.header.salt, slot, record.bytes()) == crc {
            Ok(record)
        } else {
            Err("a record fails its checksum")
        }
    }
}
