//! The set of occupied slots.

/// Bytes after the last slot that a window may extend into.
const MARGIN: usize = 80;

/// One bit per slot, set when it is occupied. Slots after the last one are always occupied.
#[derive(Debug)]
pub(super) struct Occupancy {
    bytes: Vec<u8>,
}

impl Occupancy {
    pub(super) fn new(slots: usize) -> Self {
        let mut bytes = vec![0; slots / 8 + MARGIN];
        bytes[slots.div_ceil(8)..].fill(u8::MAX);
        if !slots.is_multiple_of(8) {
            bytes[slots / 8] = u8::MAX << (slots % 8);
        }
        Self { bytes }
    }

    /// The 57 slots from `at` on, the first in the lowest bit; higher bits are undefined.
    #[inline]
    pub(super) fn window(&self, at: usize) -> u64 {
        let from = self.bytes.get(at / 8..).unwrap_or_default();
        let word = from.first_chunk().copied().unwrap_or([u8::MAX; 8]);
        u64::from_le_bytes(word) >> (at % 8)
    }

    pub(super) fn take(&mut self, at: usize) {
        self.bytes[at / 8] |= 1 << (at % 8);
    }

    /// The free slots below `slots`, in order.
    pub(super) fn free(&self, slots: usize) -> impl Iterator<Item = usize> {
        let bytes = self.bytes.iter().take(slots.div_ceil(8)).enumerate();
        bytes
            .filter(|(_, byte)| **byte != u8::MAX)
            .flat_map(|(at, byte)| {
                (0..8)
                    .filter(move |bit| byte & (1 << bit) == 0)
                    .map(move |bit| 8 * at + bit)
            })
    }
}
