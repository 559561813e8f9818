//! Set membership: a Bloom filter beside a dictionary and a count-min sketch.

use std::collections::HashSet;

use anyhow::Result;
use torc_record::Digest;
use torc_sketch::bloom::{BloomFilter, BloomShape};
use torc_sketch::{CountMin, SeedStream, Shape};

use super::super::claim::{Claim, Says};
use super::{Sizes, digest};
use torc_plot::{Axis, Plot};

const RATE: f64 = 0.01;
/// Bytes of a URL, the lecture's own example of a key that need not be kept.
const KEY_LEN: usize = 64;

/// The bits per key of a structure, and the share of strangers that it accepts.
struct Found {
    bits: f64,
    wrong: f64,
}

/// Keys are the digests of 0 to `keys`, strangers the digests that follow.
fn found(
    (keys, strangers): (u64, u64),
    bytes: usize,
    mut says_yes: impl FnMut(&Digest) -> bool,
) -> Found {
    let wrong = (keys..keys + strangers).filter(|key| says_yes(&digest(*key)));
    Found {
        bits: bytes as f64 * 8.0 / keys as f64,
        wrong: wrong.count() as f64 / strangers as f64,
    }
}

/// Holds whole keys, like a hash table of a standard library.
fn dictionary(keys: u64, strangers: u64) -> Found {
    let set: HashSet<Digest> = (0..keys).map(digest).collect();
    // A slot has a pointer and a length for the key besides its control byte; the key is stored
    // elsewhere.
    let slots = set.capacity() * 8 / 7;
    let bytes = slots * (size_of::<Box<[u8]>>() + 1) + keys as usize * KEY_LEN;
    found((keys, strangers), bytes, |key| set.contains(key))
}

fn bloom(keys: u64, strangers: u64) -> Result<Found> {
    let mut filter = BloomFilter::new(BloomShape::for_keys(keys, RATE)?);
    (0..keys).for_each(|key| _ = filter.insert(&digest(key)));
    let bytes = filter.bytes();
    Ok(found((keys, strangers), bytes, |key| {
        filter.may_contain(key)
    }))
}

fn count_min(shape: Shape, (keys, strangers): (u64, u64), seed: u64) -> Found {
    let mut sketch = CountMin::new(shape, seed);
    (0..keys).for_each(|key| sketch.insert(&digest(key)));
    found((keys, strangers), sketch.bytes(), |key| {
        sketch.estimate(key) > 0
    })
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new(
        "Lecture, Bloom: no keys are kept, unlike in a dictionary; count-min is sublinear, and its error εN means nothing for membership",
    );
    let mut plot = Plot::new(
        "Lecture: is a key in a set of n?",
        Axis::log("n, keys"),
        Axis::log("bits a key"),
    );
    let strangers = sizes.of(200_000) as u64;
    let says = BloomShape::for_keys(1_000_000, RATE)?;
    let expected = f64::from(says.bits()) / 1e6;
    let mut lines = [Vec::new(), Vec::new(), Vec::new()];
    let mut seeds = SeedStream::new(sizes.seed);
    for usual in [1_000, 10_000, 100_000] {
        let keys = (sizes.of(usual) as u64).max(1_000);
        let case = format!("{keys} keys");
        let table = dictionary(keys, strangers);
        claim.row(
            &case,
            ("dictionary of URLs", "bits a key"),
            Says::Nothing,
            table.bits,
        );
        claim.row(
            &case,
            ("dictionary, wrong", "share"),
            Says::Is(0.0),
            table.wrong,
        );
        let filter = bloom(keys, strangers)?;
        claim.row(
            &case,
            ("Bloom", "bits a key"),
            Says::Is(expected),
            filter.bits,
        );
        claim.row(
            &case,
            ("Bloom, wrong", "share"),
            Says::AtMost(RATE),
            filter.wrong,
        );
        // The same size for any n: sublinear, and useless here.
        let small = Shape::new(12, 5)?;
        let fixed = count_min(small, (keys, strangers), seeds.next_u64());
        claim.row(
            &case,
            ("count-min of 5 x 4,096", "bits a key"),
            Says::Nothing,
            fixed.bits,
        );
        claim.row(
            &case,
            ("count-min of 5 x 4,096, wrong", "share"),
            Says::Nothing,
            fixed.wrong,
        );
        // Wide enough to err as rarely as the filter: with T rows, each must leave (1 - 1%^(1/T))
        // of its counters at zero.
        let depth = 7_u8;
        let filled = RATE.powf(1.0 / f64::from(depth));
        let width = keys as f64 / -(1.0 - filled).ln();
        let wide = Shape::new(width.log2().ceil() as u8, depth)?;
        let linear = count_min(wide, (keys, strangers), seeds.next_u64());
        claim.row(
            &case,
            ("count-min as right as Bloom", "bits a key"),
            Says::Nothing,
            linear.bits,
        );
        claim.row(
            &case,
            ("count-min as right as Bloom, wrong", "share"),
            Says::AtMost(RATE),
            linear.wrong,
        );
        for (line, bits) in lines.iter_mut().zip([table.bits, filter.bits, linear.bits]) {
            line.push((keys as f64, bits));
        }
    }
    let [table, filter, linear] = lines;
    plot.measured("dictionary of 64-byte keys", table);
    plot.measured("Bloom filter, 1 %", filter);
    plot.measured("count-min, 1 %", linear);
    claim.plot(&plot);
    claim.why("A Bloom filter is a count-min sketch whose counters have one bit, and whose rows share one array. For the same rate the sketch takes as many counters as the filter takes bits, and each has 32 or 64; widths of a power of two add up to a factor of two.");
    claim.why("A sketch of one size lets more strangers in the more keys there are, until it lets in all: an error of εN is at least one where there are 1/ε keys. It can tell which of them are frequent all the same.");
    claim.why("A dictionary is never wrong, and can be asked for what belongs to a key; it keeps the keys for that. Beside the URLs its table has 17 bytes a slot, of which at most seven in eight are taken.");
    Ok(claim)
}
