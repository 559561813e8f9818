//! Torc needs a 64-bit platform: `usize` holds every `u64`.

use std::time::Duration;

const _: () = assert!(usize::BITS == 64, "Torc needs a platform of 64 bits");

/// A number as a length or an index.
#[must_use]
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits: asserted above"
)]
pub const fn to_usize(number: u64) -> usize {
    number as usize
}

/// A duration in whole milliseconds; `u64::MAX` if there are more.
#[must_use]
pub fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
