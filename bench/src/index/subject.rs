//! The interface of a measured function: its size, and the slot of a digest.

use std::hint::black_box;
use std::time::Instant;

use torc_record::Digest;

/// Lookups of a batch.
pub(super) const BATCH: usize = 32;

/// A measured function.
pub(super) trait Function {
    /// Bytes of all data that lookups read.
    fn bytes(&self) -> usize;

    fn slot(&self, digest: &Digest) -> usize;

    /// The slots of a batch; false if the function has no such lookup.
    fn slots(&self, digests: &[Digest; BATCH], out: &mut Vec<u32>) -> bool;
}

/// Nanoseconds per lookup, each starting after the previous one has ended.
pub(super) fn dependent(function: &impl Function, queries: &[Digest]) -> f64 {
    let nothing = black_box(0_u64);
    let mut slot = 0;
    each(queries.len(), || {
        for query in queries {
            // Changes nothing, but the processor cannot know that before it has the slot.
            let wait = slot as u64 & nothing;
            let mut digest = *query;
            digest.0[..8].copy_from_slice(&(query.high() ^ wait).to_be_bytes());
            digest.0[8..].copy_from_slice(&query.low().wrapping_add(wait).to_be_bytes());
            slot = function.slot(&digest);
        }
        black_box(slot);
    })
}

/// Nanoseconds per lookup in a batch; `None` if the function has no batched lookup.
pub(super) fn batched(function: &impl Function, queries: &[Digest]) -> Option<f64> {
    let mut out = Vec::with_capacity(BATCH);
    let (batches, _) = queries.as_chunks::<BATCH>();
    let mut answered = true;
    let took = each(batches.len() * BATCH, || {
        for batch in batches {
            out.clear();
            answered &= function.slots(batch, &mut out);
            black_box(&out);
        }
    });
    answered.then_some(took)
}

fn each(times: usize, work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e9 / times as f64
}
