//! Reads a slice.

#![expect(
    clippy::cast_possible_truncation,
    reason = "probes are at most MAX_PROBES, keys at most MAX_KEYS, and usize has 64 bits"
)]

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use torc_index::{Gate, KeylessSet, Mphf, MphfHead, Offsets};
use torc_record::{
    Ballot, Digest, HybridTime, Key, Locator, MAX_KEY_LEN, NamespaceId, Record, State,
};
use torc_ring::Token;

use super::header::{Alignment, Kind, SLICE_DIGEST_LEN, SLICE_HEADER_LEN, SizeClass, SliceHeader};
use super::payloads::KeylessLayout;
use super::rest::{Reader, Reading, Rest, Unread};
use super::{Checked, Damage, RECORD_CRC_LEN, order, payloads, record_crc};
use crate::packed::{HEAD_LEN, MAX_PACKED_LEN, Packed, PackedRef};

/// A slice in two parts: its index, checked and in memory, and the rest, as in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SliceView<'a> {
    header: &'a SliceHeader,
    heads: Heads,
    /// Blocks of the gate.
    gate: &'a [u8],
    /// MPHF and offsets, or fingerprints.
    lookup: &'a [u8],
    rest: Rest<'a>,
}

/// The heads of a slice's gate, MPHF and offsets, so that a get need not read them. A keyless slice
/// has only that of its MPHF.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    probes: u8,
    mphf: MphfHead,
    /// Low bits of an offset.
    low_bits: u8,
    /// Of the records.
    pub(crate) longest: SizeClass,
    alignment: Alignment,
}

impl Heads {
    /// Reads the heads of an index, and checks that all its parts are readable.
    ///
    /// # Errors
    /// One of them is not.
    pub(crate) fn read(header: &SliceHeader, index: &[u8]) -> Result<Self, Damage> {
        let lookup = index.get(SLICE_HEADER_LEN..).ok_or(NO_INDEX)?;
        let gate_end = header.gate_len as usize;
        let offsets_at = header.lookup_len() - header.offsets_len as usize;
        let gate = lookup.get(..gate_end).ok_or(NO_INDEX)?;
        let mphf = lookup.get(gate_end..offsets_at).ok_or(NO_INDEX)?;
        let offsets = lookup.get(offsets_at..).ok_or(NO_INDEX)?;
        let function = Mphf::view(mphf).map_err(|_| NO_INDEX)?;
        if let Some(KeylessLayout {
            fingerprint_bits,
            payload_bytes,
        }) = header.keyless()
        {
            let set = KeylessSet::of(function, offsets, u32::from(fingerprint_bits));
            if set.map_err(|_| NO_INDEX)?.len() != header.keys() {
                return Err(NO_INDEX);
            }
            return Ok(Self {
                probes: 0,
                mphf: function.head(),
                low_bits: 0,
                // A length of 0 would say that it is unknown.
                longest: SizeClass::of(usize::from(payload_bytes).max(1)),
                alignment: header.alignment(),
            });
        }
        let gate = Gate::view(gate).map_err(|_| NO_INDEX)?;
        let offsets = Offsets::view(offsets).map_err(|_| NO_INDEX)?;
        if function.len() != header.keys() || offsets.len() != header.keys() {
            return Err(NO_INDEX);
        }
        Ok(Self {
            probes: gate.probes() as u8,
            mphf: function.head(),
            low_bits: offsets.low_bits(),
            longest: SizeClass::read(index),
            alignment: header.alignment(),
        })
    }
}

/// The parts of an index that lookups read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IndexParts<'a> {
    /// Blocks of the gate.
    pub(crate) gate: &'a [u8],
    /// MPHF and offsets, or fingerprints.
    pub(crate) lookup: &'a [u8],
}

impl<'a> IndexParts<'a> {
    /// The parts of a whole index; `None` if it is shorter than its header says.
    pub(crate) fn of(header: &SliceHeader, index: &'a [u8]) -> Option<Self> {
        let parts = index.get(SLICE_HEADER_LEN..header.index_len())?;
        let (gate, lookup) = parts.split_at_checked(header.gate_len as usize)?;
        // A keyless slice has none.
        let blocks = gate.len().saturating_sub(Gate::TRAILER_BYTES);
        Some(Self {
            gate: gate.get(..blocks)?,
            lookup,
        })
    }
}

/// What a slice holds for a digest.
#[derive(Debug)]
pub(crate) enum Found {
    /// Its gate or its fingerprint excludes the digest.
    GateNegative,
    /// The record in its slot, which may have another key; of a keyless slice, a record of the
    /// asked key.
    Record(Packed),
    /// The record in its slot is damaged, so the key may or may not exist.
    Damaged(Damage),
    /// The record is not in the page cache, and the caller must not wait.
    NotCached,
}

/// Records of up to this length are read without an allocation.
const SHORT_LEN: usize = 1024;

const NO_INDEX: Damage = "the index of a slice is damaged";
const NUMBERED_VALUE: Damage = "a value in a slice of numbered keys";
pub(super) const NO_ORDER: Damage = "the order of a slice is damaged";

impl<'a> SliceView<'a> {
    /// `heads` and `parts` are from the index, and `rest` follows it.
    pub(crate) fn new(
        header: &'a SliceHeader,
        heads: Heads,
        parts: IndexParts<'a>,
        rest: Rest<'a>,
    ) -> Self {
        Self {
            header,
            heads,
            gate: parts.gate,
            lookup: parts.lookup,
            rest,
        }
    }

    /// A view of a whole slice. Checks its index, not the rest.
    ///
    /// # Errors
    /// The problem with it.
    pub(crate) fn of(header: &'a SliceHeader, bytes: &'a [u8]) -> Result<Self, Damage> {
        let (index, rest) = bytes
            .split_at_checked(header.index_len())
            .ok_or("a slice is cut off")?;
        Self::behind(header, index, Rest::Memory(rest))
    }

    /// A view of a slice. Checks its index, header included.
    ///
    /// # Errors
    /// The problem with it.
    pub(crate) fn behind(
        header: &'a SliceHeader,
        index: &'a [u8],
        rest: Rest<'a>,
    ) -> Result<Self, Damage> {
        if header.index_len() as u64 + rest.len() != header.len() {
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

    fn gate(&self) -> Gate<'a> {
        Gate::over(self.gate, u32::from(self.heads.probes))
    }

    fn keyless_set(&self, layout: KeylessLayout) -> Option<KeylessSet<'a>> {
        let fingerprints = self.lookup.get(self.header.mphf_len as usize..)?;
        let bits = u32::from(layout.fingerprint_bits);
        KeylessSet::of(self.mphf()?, fingerprints, bits).ok()
    }

    /// Whether it may hold a digest; `false` is certain.
    pub(crate) fn may_hold(&self, digest: &Digest) -> bool {
        match self.header.keyless() {
            None => self.gate().may_contain(digest),
            Some(layout) => {
                let set = self.keyless_set(layout);
                set.is_none_or(|set| set.contains(digest))
            }
        }
    }

    /// Prefetches the parts of the index for [`may_hold`](Self::may_hold).
    pub(crate) fn prefetch_gate(&self, digest: &Digest) {
        if self.header.keyless().is_none() {
            self.gate().prefetch(digest);
        } else if let Some(mphf) = self.mphf() {
            mphf.prefetch(digest);
        }
    }

    pub(crate) fn mphf(&self) -> Option<Mphf<'a>> {
        let mphf = self.lookup.get(..self.header.mphf_len as usize)?;
        Some(self.heads.mphf.over(mphf, self.keys() as u32))
    }

    /// `None` also for a keyless slice.
    fn offsets(&self) -> Option<Offsets<'a>> {
        if self.header.keyless().is_some() {
            return None;
        }
        let offsets = self.lookup.get(self.header.mphf_len as usize..)?;
        Offsets::view_again(offsets, self.keys(), self.heads.low_bits)
    }

    /// Checks the gate or the fingerprint, then reads the record in the digest's slot.
    pub(crate) fn find(&self, position: &Locator<&[u8]>, how: Reading) -> Found {
        let digest = position.digest;
        // Loads the MPHF's seed together with the gate, because most gets are for existing keys.
        if let Some(mphf) = self.mphf() {
            mphf.prefetch(&digest);
        }
        let is_key = (1..=MAX_KEY_LEN).contains(&position.key.len());
        if !is_key || !self.may_hold(&digest) {
            return Found::GateNegative;
        }
        let slot = self.mphf().map(|mphf| mphf.slot(&digest));
        slot.map_or(Found::Damaged(NO_INDEX), |slot| {
            self.find_at(slot, position, how)
        })
    }

    /// Length of the record that [`SliceView::find`] would read, with its head; zero if it reads none.
    pub(crate) fn len_hint(&self, digest: &Digest) -> usize {
        if !self.may_hold(digest) {
            return 0;
        }
        if let Some(layout) = self.header.keyless() {
            return HEAD_LEN + usize::from(layout.payload_bytes);
        }
        let range = self.mphf().and_then(|mphf| self.range(mphf.slot(digest)));
        range.map_or(0, |range| (range.end - range.start) as usize)
    }

    /// The content of a slot, which is that of the position's digest.
    pub(crate) fn find_at(&self, slot: usize, position: &Locator<&[u8]>, how: Reading) -> Found {
        let found = match self.header.keyless() {
            None => self.record(slot, how),
            Some(layout) => self.member(slot, layout, position, how),
        };
        match found {
            Ok(packed) => Found::Record(packed),
            Err(Unread::Damaged(what)) => Found::Damaged(what),
            Err(Unread::NotCached) => Found::NotCached,
        }
    }

    /// The range of a slot's record with its checksum and the gap behind it, among the bytes after the index.
    pub(crate) fn range(&self, slot: usize) -> Option<Range<u64>> {
        let offsets = self.offsets()?;
        let alignment = self.heads.alignment.bytes();
        let start = offsets.get(slot)?.checked_mul(alignment)?;
        let end = if slot + 1 < self.keys() {
            offsets.get(slot + 1)?.checked_mul(alignment)?
        } else {
            self.header.records_len
        };
        let len = end.checked_sub(start)?;
        let longest = ((RECORD_CRC_LEN + MAX_PACKED_LEN) as u64).next_multiple_of(alignment);
        let lens = (RECORD_CRC_LEN + HEAD_LEN) as u64..=longest;
        let records_at = self.header.order_len() as u64;
        lens.contains(&len)
            .then(|| records_at + start..records_at + end)
    }

    /// Prefetches the parts of the index for the lookup of a slot.
    pub(crate) fn prefetch_offset(&self, slot: usize) {
        if let Some(offsets) = self.offsets() {
            offsets.prefetch(slot);
        }
    }

    /// The checked record of a slot. One read.
    pub(crate) fn record(&self, slot: usize, how: Reading) -> Result<Packed, Unread> {
        let range = self.range(slot).ok_or(NO_INDEX)?;
        self.reading(range, how, |bytes| self.packed(slot, bytes))
    }

    /// The record that a keyless slice gives for a position with a member's fingerprint. At most
    /// one read.
    fn member(
        &self,
        slot: usize,
        layout: KeylessLayout,
        position: &Locator<&[u8]>,
        how: Reading,
    ) -> Result<Packed, Unread> {
        if slot >= self.keys() {
            return Err(NO_INDEX.into());
        }
        if layout.payload_bytes == 0 {
            return Ok(self.as_record(position, &[])?);
        }
        let number = payloads::block_of(slot);
        self.reading(self.block(layout, number), how, |bytes| {
            let block = payloads::checked(self.header.salt, number, bytes)?;
            let payload = payloads::payload(layout, slot, block).ok_or(NO_INDEX)?;
            self.as_record(position, payload)
        })
    }

    fn as_record(&self, position: &Locator<&[u8]>, payload: &[u8]) -> Checked {
        let impossible = "a key of impossible length";
        let record = Record {
            namespace: position.namespace,
            digest: position.digest,
            key: Key::new(Bytes::copy_from_slice(position.key)).map_err(|_| impossible)?,
            ballot: self.header.highest(),
            origin: None,
            state: State::Value {
                value: Bytes::copy_from_slice(payload),
                expires_at_ms: None,
            },
        };
        Packed::of(&record).map_err(|_| impossible)
    }

    /// The place of a block of payloads among the bytes after the index.
    fn block(&self, layout: KeylessLayout, number: usize) -> Range<u64> {
        payloads::block(self.keys(), layout, number)
    }

    /// Reads a range of bounded length; a short one without an allocation.
    fn reading(
        &self,
        range: Range<u64>,
        how: Reading,
        take: impl FnOnce(&[u8]) -> Checked,
    ) -> Result<Packed, Unread> {
        let len = (range.end - range.start) as usize;
        let (mut short, mut long) = ([0; SHORT_LEN], Vec::new());
        let bytes = if let Some(bytes) = short.get_mut(..len) {
            bytes
        } else {
            long.resize(len, 0);
            &mut long[..]
        };
        self.rest.read(bytes, range.start, how)?;
        Ok(take(bytes)?)
    }

    /// A checked copy of the record of a slot, from its bytes.
    fn packed(&self, slot: usize, bytes: &[u8]) -> Checked {
        let record = self.checked(slot, bytes)?;
        match self.header.kind() {
            Kind::Numbered => {
                let number = (slot as u32).to_le_bytes();
                record.with_value(number).ok_or(NUMBERED_VALUE)
            }
            Kind::Records | Kind::Keyless(_) => Ok(record.to_packed()),
        }
    }

    /// The key that a slot claims to hold, if its record can be parsed. Unchecked.
    pub(crate) fn claimed_key(&self, slot: usize) -> Option<Locator> {
        let range = self.range(slot)?;
        let bytes = self
            .rest
            .copy(range.start, (range.end - range.start) as usize);
        let bytes = bytes.ok()?;
        let record = PackedRef::at_start_of(bytes.get(RECORD_CRC_LEN..)?).ok()?;
        Some(record.to_packed().cursor())
    }

    /// A reader of many records of the slice.
    pub(crate) fn reader(&self) -> Reader<'a> {
        Reader::new(self.rest)
    }

    /// The checked record of a slot, read with a reader of the slice.
    ///
    /// # Errors
    /// The damage.
    pub(crate) fn record_by(&self, reader: &mut Reader<'_>, slot: usize) -> Checked {
        let range = self.range(slot).ok_or(NO_INDEX)?;
        self.packed(slot, reader.bytes(range)?)
    }

    fn checked<'b>(&self, slot: usize, bytes: &'b [u8]) -> Result<PackedRef<'b>, Damage> {
        checked(self.header.salt, slot, bytes)
    }

    /// The checked order: see [`order::slot_at`].
    ///
    /// # Errors
    /// It is not as written.
    pub(super) fn order(&self) -> Result<Vec<u8>, Damage> {
        let len = self.header.order_len();
        if len as u64 > self.rest.len() || self.header.keyless().is_some() {
            return Err(NO_ORDER);
        }
        let mut order = vec![0; len];
        let read = self.rest.read(&mut order, 0, Reading::Wait);
        if read.is_ok() && crc32c::crc32c(&order) == self.header.order_crc {
            Ok(order)
        } else {
            Err(NO_ORDER)
        }
    }

    /// Checks the digest at the end of a whole slice.
    ///
    /// # Errors
    /// It does not match the bytes.
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

    /// Checks that every record is as written, and that lookups find every key. `digest_of` gives
    /// the correct digest of a key, if it can. Reads everything once in stored order: 0.2 us per
    /// record, half of it for `digest_of`. Of a keyless slice, checks the payloads.
    ///
    /// # Errors
    /// The problem.
    pub(crate) fn verify(
        &self,
        digest_of: impl Fn(NamespaceId, &[u8]) -> Option<Digest>,
    ) -> Result<(), Damage> {
        if let Some(layout) = self.header.keyless() {
            return self.verify_payloads(layout);
        }
        let gate = self.gate();
        let mphf = self.mphf().ok_or(NO_INDEX)?;
        let partitions = self.header.partitions;
        let mut held = crate::PartitionSummary::default();
        let (mut highest, mut collectable) = (Ballot::default(), 0);
        let mut highest_time = HybridTime::default();
        // The header's number of keys is bounded, but the length is a tighter bound.
        let most = self.rest.len() as usize / HEAD_LEN;
        let mut digests = Vec::with_capacity(self.keys().min(most));
        let mut reader = self.reader();
        for slot in 0..self.keys() {
            let bytes = reader.bytes(self.range(slot).ok_or(NO_INDEX)?)?;
            let record = self.checked(slot, bytes)?;
            let digest = record.digest();
            let wanted = digest_of(record.namespace(), record.key());
            if wanted.is_some_and(|wanted| wanted != digest) {
                return Err("a record with the digest of another key");
            }
            if partitions.holding(record.namespace(), Token(digest.high())) != self.header.partition
            {
                return Err("a record of another partition");
            }
            let generation = Some(record.namespace()).filter(|id| id.is_generation());
            if generation != self.header.generation() {
                return Err("a record of another generation than its slice says");
            }
            if self.header.kind() == Kind::Numbered && record.payload_len() != record.key().len() {
                return Err(NUMBERED_VALUE);
            }
            if record.payload_len() > self.heads.longest.bound() {
                return Err("a record that is longer than its slice says");
            }
            highest = highest.max(record.ballot());
            highest_time = highest_time.max(record.ballot().time);
            collectable += u32::from(record.is_collectable());
            if mphf.slot(&digest) != slot || !gate.may_contain(&digest) {
                return Err("a key that its index does not find");
            }
            held.add_ref(record);
            digests.push(digest);
        }
        let said = &self.header;
        if (held, highest, highest_time, collectable)
            != (
                said.held(),
                said.highest(),
                said.highest_time,
                said.collectable(),
            )
        {
            return Err("the records do not match the totals in the slice's header");
        }
        self.verify_order(&digests)
    }

    /// The records by namespace. Reads every record in stored order, unless all are of one generation.
    ///
    /// # Errors
    /// The problem.
    pub(crate) fn namespaces(&self) -> Result<BTreeMap<NamespaceId, u64>, Damage> {
        if let Some(generation) = self.header.generation() {
            return Ok(BTreeMap::from([(generation, self.keys() as u64)]));
        }
        let mut counts = BTreeMap::new();
        let mut reader = self.reader();
        for slot in 0..self.keys() {
            let bytes = reader.bytes(self.range(slot).ok_or(NO_INDEX)?)?;
            let record = self.checked(slot, bytes)?;
            *counts.entry(record.namespace()).or_default() += 1;
        }
        Ok(counts)
    }

    fn verify_payloads(&self, layout: KeylessLayout) -> Result<(), Damage> {
        if layout.payload_bytes == 0 {
            return Ok(());
        }
        let mut reader = self.reader();
        for number in 0..payloads::blocks(self.keys()) {
            let block = reader.bytes(self.block(layout, number))?;
            payloads::checked(self.header.salt, number, block)?;
        }
        Ok(())
    }

    /// Checks that the order is a permutation in ring order; `digests` are those of the slots.
    fn verify_order(&self, digests: &[Digest]) -> Result<(), Damage> {
        let order = self.order()?;
        let mut before: Option<Digest> = None;
        for place in 0..self.keys() {
            let slot = order::slot_at(&order, self.keys(), place).ok_or(NO_ORDER)?;
            let digest = digests.get(slot).copied();
            if before.is_some() && before >= digest {
                return Err("the records of a slice are out of order");
            }
            before = digest;
        }
        Ok(())
    }
}

/// The record of a slot from its bytes, which include the checksum and perhaps the gap behind it.
pub(super) fn checked(salt: u32, slot: usize, bytes: &[u8]) -> Result<PackedRef<'_>, Damage> {
    let (crc, bytes) = bytes
        .split_first_chunk::<RECORD_CRC_LEN>()
        .ok_or("a record is cut off")?;
    let record = PackedRef::at_start_of(bytes)?;
    let gap = bytes.get(record.bytes().len()..).unwrap_or_default();
    if record_crc(salt, slot, record.bytes()) != u32::from_le_bytes(*crc) {
        Err("a record fails its checksum")
    } else if gap.iter().any(|byte| *byte != 0) {
        Err("a gap between records is not zero")
    } else {
        Ok(record)
    }
}
