//! "With high probability is 1 - 1/poly(n)": how many rows that requires, and how far five rows go.

use anyhow::Result;
use torc_sketch::{CountMin, SeedStream, Shape};

use super::super::claim::{Claim, Says};
use super::{Sizes, digest, skewed};
use torc_plot::{Axis, Plot};

/// ε = 1/32: narrow, so that failures are frequent enough to be counted.
const WIDTH_LOG2: u8 = 6;

/// How many of n keys have an estimate that exceeds the truth by more than εN, in a stream of 4 n
/// accesses, and the share of sketches with such a key; means over `rounds` sketches.
fn failures(n: u64, depth: u8, rounds: usize, seed: u64) -> Result<(f64, f64)> {
    let mut seeds = SeedStream::new(seed);
    let mut counts = vec![0_i64; n as usize];
    (0..4 * n).for_each(|_| counts[skewed(&mut seeds, n) as usize] += 1);
    let shape = Shape::new(WIDTH_LOG2, depth)?;
    let (mut failing, mut sketches) = (0, 0);
    for _ in 0..rounds {
        let mut sketch = CountMin::new(shape, seeds.next_u64());
        for (key, count) in counts.iter().enumerate() {
            sketch.add(&digest(key as u64), *count);
        }
        let bound = sketch.error_bound() as i64;
        let beyond =
            |(key, count): &(usize, &i64)| sketch.estimate(&digest(*key as u64)) - *count > bound;
        let keys = counts.iter().enumerate().filter(beyond).count();
        failing += keys;
        sketches += usize::from(keys > 0);
    }
    let rounds = rounds as f64;
    Ok((failing as f64 / rounds, sketches as f64 / rounds))
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new(
        "Lecture, count-min: T = O(log n) rows for every key of n at once, with probability 1 - 1/poly(n)",
    );
    let mut plot = Plot::new(
        "Lecture: keys of n beyond εN",
        Axis::linear("T, rows"),
        Axis::log("keys"),
    );
    let rounds = sizes.of(50);
    for n in [1_000_u64, 16_000] {
        let log = (n as f64).log2().ceil() as u8;
        let (mut bound, mut measured) = (Vec::new(), Vec::new());
        for depth in [1, 2, 3, 5, log, 2 * log] {
            let (keys, sketches) = failures(n, depth, rounds, sizes.seed)?;
            let expected = n as f64 * 0.5_f64.powi(depth.into());
            bound.push((f64::from(depth), expected));
            measured.push((f64::from(depth), keys));
            let case = format!("n = {n}, T = {depth}");
            claim.row(
                &case,
                ("keys beyond εN", "keys"),
                Says::AtMost(expected),
                keys,
            );
            if depth >= 5 {
                claim.row(
                    &case,
                    ("sketches with such a key", "share"),
                    Says::AtMost(expected.min(1.0)),
                    sketches,
                );
            }
        }
        plot.dashed(format!("n 2^-T, n = {n}"), bound);
        plot.measured(format!("counted, n = {n}"), measured);
    }
    claim.plot(&plot);
    claim.why("T = 5, as a node's hot keys have, bounds one key's failure by 1/32, not that of all keys: 31 of 1,000 may fail. log2 n rows bound the expected number of failing keys by 1, 2 log2 n rows the probability of any by 1/n.");
    claim.why("Hot keys need less: only reported keys are asked, at most 2k, and a light one reported too high costs a line. `Shape::for_error(ε, δ)` takes δ = 1/n² where every key is asked.");
    claim.why("Measured failures are fewer than the bound, because Markov's inequality is wide of the truth (claim `countmin`).");
    Ok(claim)
}
