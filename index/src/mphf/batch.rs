//! Lookups in batches, whose cache misses overlap.
//!
//! Takes two passes over 32 digests: one prefetches the seeds, one answers. Nothing is stored in
//! between, because recomputing a bucket takes less than storing and loading it. The branch for a
//! bumped key is mispredicted, but that is about one key in 32. (Arrays of intermediate results,
//! and a separate pass for bumped keys, were measured: no faster.)

use torc_record::Digest;

use super::direct::Direct;

/// Lookups whose memory is prefetched before the first is answered.
const BATCH: usize = 32;
/// The same for the remainder.
const FEW: usize = 4;

/// Several functions that are queried as one.
pub(crate) trait Parts {
    /// The part that a digest belongs to, and its position in that part as a fraction of 2^64.
    fn place(&self, digest: Digest) -> (u32, u64);

    /// A part by the number from [`place`](Self::place).
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
