//! The payloads of a keyless slice: in the order of slots, in blocks that share a checksum.

use std::ops::Range;

use super::{Damage, RECORD_CRC_LEN, record_crc};

/// Payloads that share a checksum: a get reads them together.
pub(super) const BLOCK_SLOTS: usize = 64;

/// The widths of a keyless slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeylessLayout {
    /// Bits of a key's fingerprint, 1 to 32.
    pub fingerprint_bits: u8,
    /// Bytes of a payload, 0 to 64.
    pub payload_bytes: u8,
}

impl KeylessLayout {
    const MAX_FINGERPRINT_BITS: u8 = 32;
    /// Bytes of the longest payload.
    pub const MAX_PAYLOAD_BYTES: u8 = 64;

    /// Whether a slice can have these widths.
    #[must_use]
    pub const fn is_possible(self) -> bool {
        self.fingerprint_bits >= 1
            && self.fingerprint_bits <= Self::MAX_FINGERPRINT_BITS
            && self.payload_bytes <= Self::MAX_PAYLOAD_BYTES
    }
}

/// Bytes of all payloads with their checksums.
pub(super) fn payloads_len(keys: usize, layout: KeylessLayout) -> u64 {
    match usize::from(layout.payload_bytes) {
        0 => 0,
        width => (keys * width + blocks(keys) * RECORD_CRC_LEN) as u64,
    }
}

/// Number of blocks.
pub(super) const fn blocks(keys: usize) -> usize {
    keys.div_ceil(BLOCK_SLOTS)
}

/// The block of a slot.
pub(super) const fn block_of(slot: usize) -> usize {
    slot / BLOCK_SLOTS
}

/// The place of a block among the payloads, with its checksum.
pub(super) fn block(keys: usize, layout: KeylessLayout, number: usize) -> Range<u64> {
    let width = usize::from(layout.payload_bytes);
    let slots = keys.saturating_sub(number * BLOCK_SLOTS).min(BLOCK_SLOTS);
    let at = number * (RECORD_CRC_LEN + BLOCK_SLOTS * width);
    at as u64..(at + RECORD_CRC_LEN + slots * width) as u64
}

/// The payloads of a block, from its bytes.
pub(super) fn checked(salt: u32, number: usize, bytes: &[u8]) -> Result<&[u8], Damage> {
    let (crc, payloads) = bytes
        .split_first_chunk::<RECORD_CRC_LEN>()
        .ok_or("a block of payloads is cut off")?;
    if record_crc(salt, number, payloads) == u32::from_le_bytes(*crc) {
        Ok(payloads)
    } else {
        Err("a block of payloads fails its checksum")
    }
}

/// The payload of a slot in the payloads of its block.
pub(super) fn payload(layout: KeylessLayout, slot: usize, block: &[u8]) -> Option<&[u8]> {
    let width = usize::from(layout.payload_bytes);
    let at = slot % BLOCK_SLOTS * width;
    block.get(at..at + width)
}
