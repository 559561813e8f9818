//! Lookups of a batch: their cache misses overlap.
//!
//! Three passes over 32 digests: ask for each seed's memory, and compute where each window begins,
//! which needs no seed; add where in its window each key is, as if none were bumped, without a
//! branch; then answer anew for the few that are. A branch taken
//! for each key would be guessed wrongly for every bumped one, and what is loaded ahead then
//! waits for it (the pipeline of PtrHash, section 3.5, cut into batches).

use torc_record::Digest;

use super::direct::{BUMPED, Direct};

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
    let (batches, rest) = digests.as_chunks();
    append::<BATCH>(parts, batches, out);
    let (batches, rest) = rest.as_chunks();
    append::<FEW>(parts, batches, out);
    append::<1>(parts, rest.as_chunks().0, out);
}

/// Appends the slots of some batches.
#[inline]
fn append<const N: usize>(parts: &impl Parts, batches: &[[Digest; N]], out: &mut Vec<u32>) {
    let mut asked = Asked::<N>::new();
    for batch in batches {
        out.extend_from_slice(&[0; N]);
        if let Some(out) = out.last_chunk_mut() {
            asked.answer(parts, batch, out);
        }
    }
}

/// Lookups that wait for their seeds. What is kept of each is as little as can be: writing and
/// reading it is a good part of the work.
struct Asked<const N: usize> {
    parts: [u32; N],
    buckets: [u32; N],
}

impl<const N: usize> Asked<N> {
    #[inline]
    fn new() -> Self {
        Self {
            parts: [0; N],
            buckets: [0; N],
        }
    }

    /// One batch.
    #[inline]
    fn answer(&mut self, parts: &impl Parts, digests: &[Digest; N], out: &mut [u32; N]) {
        self.ask(parts, digests, out);
        let mut unanswered = self.guess(parts, digests, out);
        while unanswered != 0 {
            let at = N - 1 - unanswered.trailing_zeros() as usize % N;
            unanswered &= unanswered - 1;
            out[at] = parts.slow_slot(digests[at]);
        }
    }

    /// Asks for the seeds, and says where the windows begin.
    // Apart, so that the loop has the registers for itself.
    #[inline(never)]
    fn ask(&mut self, parts: &impl Parts, digests: &[Digest; N], out: &mut [u32; N]) {
        for at in 0..N {
            let (index, along) = parts.place(digests[at]);
            self.parts[at] = index;
            let part = parts.part(index);
            self.buckets[at] = part.prefetch(along);
            out[at] = part.start(along);
        }
    }

    /// Adds where in its window every key is, as if none were bumped. Tells which have no seed,
    /// the last in the lowest bit.
    #[inline(never)]
    fn guess(&self, parts: &impl Parts, digests: &[Digest; N], out: &mut [u32; N]) -> u32 {
        let mut bumped = 0_u32;
        for at in 0..N {
            let part = parts.part(self.parts[at]);
            let seed = part.seed_at(self.buckets[at]);
            bumped = bumped + bumped + u32::from(seed == BUMPED);
            out[at] = out[at].wrapping_add(part.offset(digests[at], seed));
        }
        bumped
    }
}
