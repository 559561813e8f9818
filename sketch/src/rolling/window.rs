//! The hash of the last `len` bytes of a stream.

use super::Modulus;

/// Moves a window of `len` bytes forward by one byte. 2 KiB.
#[derive(Debug, Clone)]
pub(super) struct Window {
    modulus: Modulus,
    len: usize,
    /// For each byte, q - 256^len times the byte: added when that byte leaves.
    leaving: Box<[u64; 256]>,
}

impl Window {
    pub(super) fn new(modulus: &Modulus, len: usize) -> Self {
        let shift = modulus.shift(len as u64);
        let mut leaving = Box::new([0; 256]);
        for (byte, weight) in leaving.iter_mut().enumerate() {
            *weight = modulus.prime() - modulus.multiply(shift, byte as u64);
        }
        Self {
            modulus: *modulus,
            len,
            leaving,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The hash after `entering` has entered and `leaving` has left; it and the result are less
    /// than 4q. About 3 ns, the latency of two dependent multiplications.
    #[inline]
    pub(super) const fn roll(&self, lazy_hash: u64, entering: u8, leaving: u8) -> u64 {
        // Adds a value below 2q to a remainder below 2q, so the sum is below 4q again.
        let added = entering as u64 + self.leaving[leaving as usize];
        (lazy_hash << 8)
            .wrapping_add(added)
            .wrapping_sub(self.modulus.multiple_below_256_times(lazy_hash))
    }

    /// The result of [`Window::roll`], reduced below q.
    #[inline]
    pub(super) fn canonical(&self, lazy_hash: u64) -> u64 {
        self.modulus.canonical_of_four(lazy_hash)
    }
}
