//! The one place of this crate that says something to the processor beyond Rust.

/// Asks the processor to load the cache line of `bytes[at]`, and does not wait for it. A
/// position outside is no harm: nothing happens.
#[inline]
pub fn prefetch(bytes: &[u8], at: usize) {
    if let Some(byte) = bytes.get(at) {
        prefetch_byte(byte);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefetch_byte(byte: &u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch neither reads nor writes as far as the program can tell, and the
    // address is that of a byte that may be read.
    unsafe { _mm_prefetch(std::ptr::from_ref(byte).cast(), _MM_HINT_T0) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn prefetch_byte(byte: &u8) {
    // A load that nobody waits for: as near as safe Rust comes.
    std::hint::black_box(*byte);
}
