//! The only code of this crate that uses processor intrinsics.

/// Prefetches the cache line of `bytes[at]`, without waiting for it. Does nothing for a position
/// outside.
#[inline]
pub fn prefetch(bytes: &[u8], at: usize) {
    if let Some(byte) = bytes.get(at) {
        prefetch_at(byte);
    }
}

/// Prefetches all cache lines of a value, without waiting for them.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of::<T>()).step_by(CACHE_LINE) {
        prefetch_at(start.wrapping_add(at));
    }
}

const CACHE_LINE: usize = 64;

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_at(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch has no effect visible to the program, whatever the address.
    unsafe { _mm_prefetch(address.cast(), _MM_HINT_T0) }
}

/// Safe Rust has no prefetch.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
const fn prefetch_at(_address: *const u8) {}
