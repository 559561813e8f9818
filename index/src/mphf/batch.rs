//! Lookups of a batch: their cache misses overlap.
//!
//! Two passes over 32 digests: ask for the memory of each seed, then answer. Nothing is kept
//! in between: to compute a bucket again takes less than to write it down and read it. A
//! bumped key's branch is guessed wrongly, but of 32 keys that is hardly one (arrays of
//! what was computed, and a pass of its own for the bumped, were measured: no faster).

use torc_record::Digest;

use super::direct::Direct;

/// Lookups whose memory is asked for before the first is answered.
const BATCH: usize = 32;
/// The same for what is left over.
const FEW: usize = 4;

/// Functions side by side that are asked as one.
pub(crate) trait Parts {
    /// Which part a digest belongs to, and its place along that one, as a fraction of 2^64.
    fn place(&self, digest: Digest) -> (u32, u64);

    /// A part of those that [`place`](Self::place) tells.
    fn part(&self, part: u32) -> &Direct<'_>;

    /// The slot of a digest that has no seed in its part.
    fn slow_slot(&self, digest: Digest) -> u32;
}

/// Appends the slot of each digest, in order.
#[inline]
pub(crate) fn slots(parts: &impl Parts, digests: &[Digest], out: &mut Vec<u32>) {
    out.reserve(digests.len());
    let (batches, rest) = digests.as_chunks::<BATCH>();
    for batch in batches {
        out.extend(answer(parts, batch));
    }
    let (batches, rest) = rest.as_chunks::<FEW>();
    for batch in batches {
        out.extend(answer(parts, batch));
    }
    for digest in rest {
        out.extend(answer(parts, std::array::from_ref(digest)));
    }
}

/// The slots of one batch.
#[inline]
fn answer<const N: usize>(parts: &impl Parts, digests: &[Digest; N]) -> [u32; N] {
    for digest in digests {
        let (index, along) = parts.place(*digest);
        parts.part(index).prefetch(along);
    }
    std::array::from_fn(|at| {
        let (index, along) = parts.place(digests[at]);
        let slot = parts.part(index).slot_in_batch(along, digests[at]);
        slot.unwrap_or_else(|| parts.slow_slot(digests[at]))
    })
}
