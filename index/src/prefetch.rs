//! The only code of this crate that uses processor intrinsics.

/// Prefetches the cache line of `bytes[at]`, without waiting for it. Does nothing for a position
/// outside.
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
    // SAFETY: a prefetch has no effect visible to the program, and the address is that of a
    // readable byte.
    unsafe { _mm_prefetch(std::ptr::from_ref(byte).cast(), _MM_HINT_T0) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn prefetch_byte(byte: &u8) {
    // A load with an unused result: as close as safe Rust comes.
    std::hint::black_box(*byte);
}
