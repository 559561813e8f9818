//! Bit strings in bytes, lowest bit first.

/// Appends bits.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits not yet written, lowest first, fewer than 8 between calls.
    pending: u64,
    count: u32,
}

impl BitWriter {
    /// Appends the lowest `count` bits of `bits`; `count` is at most 32, and no higher bit is set.
    pub(super) fn push(&mut self, bits: u32, count: u32) {
        self.pending |= u64::from(bits) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.pending as u8);
            self.pending >>= 8;
            self.count -= 8;
        }
    }

    /// Fills the last byte with zeros.
    pub(super) fn align(&mut self) {
        if self.count > 0 {
            self.bytes.push(self.pending as u8);
            self.pending = 0;
            self.count = 0;
        }
    }

    /// Complete bytes written.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// At least 57 bits from bit `at` on; bits after the end are zero.
#[inline]
pub(super) fn peek(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at / 8..).unwrap_or_default();
    let word = match rest.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => rest
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    word >> (at % 8)
}
