//! Chooses the seeds of the buckets.

use super::occupancy::Occupancy;
use super::shape::{Placing, SHIFT_BITS, Shape, seeded_offset};

/// A bucket with more keys is bumped without a search, which would hardly ever succeed.
const MAX_BUCKET: usize = 24;
/// Number of buckets by which a bucket precedes an empty one in the order of choice, by its number
/// of keys: about `18 * 4.5 * (keys / 4.5)^0.6`. An additional key weighs less the more there are.
const EARLIER: [u8; MAX_BUCKET + 1] = [
    0, 33, 50, 64, 75, 86, 96, 106, 114, 123, 131, 138, 146, 153, 160, 167, 173, 180, 186, 192,
    198, 204, 210, 216, 221,
];
const SHIFTS: u32 = 1 << SHIFT_BITS;
const VARIANTS: u8 = 1 << (8 - SHIFT_BITS);

/// The seeds of all buckets, and the remaining keys and slots.
pub(super) struct Seeds {
    /// One for each bucket; 0 if its keys are bumped, or it has none.
    pub(super) seeds: Vec<u8>,
    pub(super) taken: Occupancy,
}

/// The index of each bucket's first key in the sorted sequence, and the end.
fn bounds(keys: &[Placing], shape: Shape) -> Vec<u32> {
    let buckets = shape.buckets();
    let mut bounds = vec![0; buckets + 1];
    for key in keys {
        bounds[key.bucket(buckets) + 1] += 1;
    }
    let mut sum = 0;
    for bound in &mut bounds {
        sum += *bound;
        *bound = sum;
    }
    bounds
}

/// The non-empty buckets, in the order in which they choose.
fn turns(bounds: &[u32]) -> Vec<u32> {
    let size = |bucket: usize| (bounds[bucket + 1] - bounds[bucket]) as usize;
    let latest = usize::from(EARLIER[MAX_BUCKET]);
    let earlier = |bucket: usize| usize::from(EARLIER[size(bucket).min(MAX_BUCKET)]);
    let turn = |bucket: usize| bucket + latest - earlier(bucket);
    let buckets = bounds.len() - 1;
    let mut starts = vec![0_u32; buckets + latest + 2];
    let filled = || (0..buckets).filter(|bucket| size(*bucket) > 0);
    for bucket in filled() {
        starts[turn(bucket) + 1] += 1;
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    let mut order = vec![0; sum as usize];
    for bucket in filled() {
        let next = &mut starts[turn(bucket)];
        order[*next as usize] = bucket as u32;
        *next += 1;
    }
    order
}

/// Chooses the seeds for keys in the order of their tokens.
pub(super) fn search(keys: &[Placing], shape: Shape) -> Seeds {
    let bounds = bounds(keys, shape);
    let mut taken = Occupancy::new(shape.keys as usize);
    let mut seeds = vec![0; shape.buckets()];
    for bucket in turns(&bounds) {
        let bucket = bucket as usize;
        let keys = &keys[bounds[bucket] as usize..bounds[bucket + 1] as usize];
        let Some(seed) = best_seed(keys, shape, &taken) else {
            continue;
        };
        seeds[bucket] = seed;
        for key in keys {
            let slot = shape.start(*key) + seeded_offset(key.hashes(), seed, shape.window_bits);
            taken.take(slot as usize);
        }
    }
    Seeds { seeds, taken }
}

/// The seed that puts a bucket's keys on free slots with the smallest sum; `None` if there is no
/// such seed.
fn best_seed(keys: &[Placing], shape: Shape, taken: &Occupancy) -> Option<u8> {
    if keys.len() > MAX_BUCKET {
        return None;
    }
    let mut tries = [Try::default(); MAX_BUCKET];
    let tries = &mut tries[..keys.len()];
    for (key, at) in keys.iter().zip(tries.iter_mut()) {
        let (hash, step) = key.hashes();
        let start = shape.start(*key);
        *at = Try {
            hash,
            step,
            start,
            slot: 0,
        };
    }
    let mut best = None;
    let mut least = u64::MAX;
    for variant in 0..VARIANTS {
        // Seed 0 marks a bumped bucket.
        let mut busy = u64::from(variant == 0);
        let mut sum = 0;
        for at in &mut *tries {
            at.slot = at.start + shape.offset(at.hash);
            at.hash = at.hash.wrapping_add(at.step);
            sum += u64::from(at.slot);
            busy |= taken.window(at.slot as usize);
        }
        let shift = busy.trailing_ones();
        let cost = sum + u64::from(shift) * keys.len() as u64;
        if shift < SHIFTS && cost < least && distinct(tries) {
            least = cost;
            best = Some(variant << SHIFT_BITS | shift as u8);
        }
    }
    best
}

/// A key of a bucket during the search for a seed.
#[derive(Debug, Clone, Copy, Default)]
struct Try {
    hash: u64,
    step: u64,
    start: u32,
    slot: u32,
}

/// Whether all slots are different.
fn distinct(tries: &[Try]) -> bool {
    let again = |at: usize, slot| tries[..at].iter().any(|before| before.slot == slot);
    !tries
        .iter()
        .enumerate()
        .any(|(at, one)| again(at, one.slot))
}
