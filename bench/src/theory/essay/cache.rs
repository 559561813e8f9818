//! The discussion's question: is the time spent on hashing, or on cache misses?

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use torc_index::KeylessSet;
use torc_record::{Digest, DigestKey, NamespaceId};

use super::super::Sizes;
use super::super::claim::{Claim, Says};
use crate::records::{self, Random};
use torc_plot::{Axis, Plot};

const CLUSTER: DigestKey = DigestKey([7; 32]);
/// Lookups per table.
const ASKED: usize = 200_000;

/// A table of `size` URLs without its keys: fingerprints of 16 bits, and 8 bytes per key.
struct Table {
    bytes: Vec<u8>,
    values: Vec<u64>,
}

fn digest(key: &[u8]) -> Digest {
    Digest::of(&CLUSTER, NamespaceId::DEFAULT, key)
}

impl Table {
    fn of(size: usize) -> Result<Self> {
        let digests = (0..size as u64).map(|index| digest(&records::key(index)));
        let mut digests: Vec<Digest> = digests.collect();
        digests.sort_unstable();
        Ok(Self {
            bytes: KeylessSet::build(&digests, 16, 1)?,
            values: (0..size as u64).collect(),
        })
    }
}

/// Nanoseconds per item of `keys`, the minimum of three passes, because other load only adds time.
/// Each outcome determines the next item, so lookups do not overlap.
fn fastest<T>(keys: &[T], mut each: impl FnMut(&T) -> u64) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        let mut last = 0_u64;
        for index in 0..keys.len() {
            let other = usize::from(index + 1 < keys.len());
            last = each(&keys[index ^ (last & 1) as usize & other & !index]);
        }
        black_box(last);
        best = best.min(started.elapsed().as_secs_f64() * 1e9 / keys.len() as f64);
    }
    best
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim =
        Claim::new("Essay, discussion: is it hashing that takes the time, or the cache?");
    let mut plot = Plot::new(
        "Essay: a lookup by key, and by digest",
        Axis::log("keys of the table"),
        Axis::linear("ns"),
    );
    let largest = if sizes.quick { 5 } else { 7 };
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for power in 3..=largest {
        let size = 10_usize.pow(power);
        let table = Table::of(size)?;
        let set = KeylessSet::view(&table.bytes)?;
        let get_with_digest =
            |digest: &Digest| set.find(digest).map_or(0, |slot| table.values[slot]);
        let mut random = Random::of(sizes.seed);
        let asked = (0..sizes.of(ASKED)).map(|_| records::key(random.below(size as u64)));
        let asked: Vec<Vec<u8>> = asked.collect();
        let digests: Vec<Digest> = asked.iter().map(|key| digest(key)).collect();
        let hash = fastest(&asked, |key| digest(key).low());
        let by_digest = fastest(&digests, get_with_digest);
        let by_key = fastest(&asked, |key| get_with_digest(&digest(key)));
        let case = format!("{size} keys");
        claim.row(&case, ("the hash alone", "ns"), Says::Nothing, hash);
        claim.row(&case, ("get with digest", "ns"), Says::Nothing, by_digest);
        claim.row(&case, ("get", "ns"), Says::Nothing, by_key);
        let share = 100.0 * hash / by_key;
        claim.row(&case, ("hashing's part of get", "%"), Says::Nothing, share);
        for (line, ns) in lines.iter_mut().zip([hash, by_digest, by_key]) {
            line.push((size as f64, ns));
        }
    }
    let [hash, by_digest, by_key] = lines;
    plot.measured("the hash alone", hash);
    plot.measured("get with digest", by_digest);
    plot.measured("get", by_key);
    claim.plot(&plot);
    claim.why("Both were right, each for a size: in a table that fits the cache the hash takes most of a lookup; in one that does not, misses do. The hash itself takes the same at every size.");
    claim.why("The source has no figures. Each lookup waits for the one before it; a program that has many keys at once overlaps the misses, and then the hash is the larger part again.");
    claim.why("That is why a key is hashed once an operation (ARCHITECTURE.md, invariant 1). The suite `store` has the same two of the store itself: get and get_with_digest.");
    Ok(claim)
}
