//! Lookups of a batch: their cache misses overlap.
//!
//! Three passes over 32 digests: ask for each seed's memory; compute every slot as if no key
//! were bumped, without a branch; then answer anew for the few that are. A branch taken
//! for each key would be guessed wrongly for every bumped one, and what is loaded ahead then
//! waits for it (the pipeline of PtrHash, section 3.5, cut into batches).

use torc_record::Digest;

use super::Mphf;
use super::direct::{Asked, BUMPED};
use crate::prefetch::prefetch_byte;

/// Lookups whose memory is asked for before the first is answered.
const BATCH: usize = 32;
/// The same for what is left over.
const FEW: usize = 4;

/// Appends the slot of each digest, in order. `part` is what a digest belongs to.
#[inline]
pub(crate) fn slots<'a, 'b: 'a>(
    digests: &[Digest],
    out: &mut Vec<u32>,
    part: impl Fn(Digest) -> &'a Mphf<'b>,
) {
    let before = out.len();
    out.resize(before + digests.len(), 0);
    let (batches, rest) = digests.as_chunks::<BATCH>();
    let (outs, rest_out) = out[before..].as_chunks_mut::<BATCH>();
    for (batch, out) in batches.iter().zip(outs) {
        one(batch, out, &part);
    }
    let (batches, rest) = rest.as_chunks::<FEW>();
    let (outs, rest_out) = rest_out.as_chunks_mut::<FEW>();
    for (batch, out) in batches.iter().zip(outs) {
        one(batch, out, &part);
    }
    for (digest, out) in rest.as_chunks().0.iter().zip(rest_out.as_chunks_mut().0) {
        one::<1>(digest, out, &part);
    }
}

/// One batch.
#[inline]
fn one<'a, 'b: 'a, const N: usize>(
    digests: &[Digest; N],
    out: &mut [u32; N],
    part: &impl Fn(Digest) -> &'a Mphf<'b>,
) {
    let asked: [Asked<'b>; N] = std::array::from_fn(|at| {
        let asked = part(digests[at]).ask(digests[at]);
        prefetch_byte(asked.seed);
        asked
    });
    let mut unanswered = 0_u32;
    for at in 0..N {
        let seed = *asked[at].seed;
        unanswered |= u32::from(seed == BUMPED) << at;
        out[at] = asked[at].answer(seed);
    }
    while unanswered != 0 {
        let at = unanswered.trailing_zeros() as usize % N;
        unanswered &= unanswered - 1;
        out[at] = part(digests[at]).bumped_slot(digests[at]);
    }
}
