//! Sets the bits of a gate.

#![expect(
    clippy::cast_possible_truncation,
    reason = "probes are at most MAX_PROBES, 24"
)]

use super::parts::Parts;
use super::sizing::{BLOCK_BYTES, GateSize};
use super::{FORMAT, TRAILER_BYTES};
use torc_record::Digest;

/// The gate's bytes. `size` must be for at least this many keys.
pub(super) fn build(digests: &[Digest], size: GateSize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size.block_bytes + TRAILER_BYTES);
    bytes.resize(size.block_bytes, 0);
    for digest in digests {
        let parts = Parts::of(digest);
        let rest = &mut bytes[parts.block_start(size.block_bytes)..];
        let len = rest.len().min(BLOCK_BYTES);
        let block = &mut rest[..len];
        for bit in parts.probes(size.probes, len) {
            block[bit / 8] |= 1 << (bit % 8);
        }
    }
    bytes.extend([size.probes as u8, FORMAT]);
    bytes
}
