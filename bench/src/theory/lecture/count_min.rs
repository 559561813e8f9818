//! Count-min: the error over the width m and the depth T, beside Markov's bound.

use anyhow::Result;
use torc_sketch::{CountMin, SeedStream, Shape};

use super::super::claim::{Claim, Says};
use super::{Sizes, digest, skewed};
use torc_plot::{Axis, Plot};

const KEYS: u64 = 20_000;

/// The number of accesses to each key.
fn counts(accesses: usize, seed: u64) -> Vec<i64> {
    let mut seeds = SeedStream::new(seed);
    let mut counts = vec![0; KEYS as usize];
    (0..accesses).for_each(|_| counts[skewed(&mut seeds, KEYS) as usize] += 1);
    counts
}

/// Over all keys: the mean error, and the share of keys with an error above εN.
fn errors(counts: &[i64], shape: Shape, seed: u64) -> (f64, f64) {
    let mut sketch = CountMin::new(shape, seed);
    for (key, count) in counts.iter().enumerate() {
        sketch.add(&digest(key as u64), *count);
    }
    let (mut sum, mut beyond) = (0, 0);
    let bound = shape.epsilon() * sketch.total() as f64;
    for (key, count) in counts.iter().enumerate() {
        let error = sketch.estimate(&digest(key as u64)) - count;
        sum += error;
        beyond += usize::from(error as f64 > bound);
    }
    let keys = counts.len() as f64;
    (sum as f64 / keys, beyond as f64 / keys)
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new(
        "Lecture, count-min: E[error] <= N/m in a row; more than εN = 2N/m with probability 2^-T in T rows",
    );
    let mut plot = Plot::new(
        "Lecture, count-min: keys whose error exceeds εN",
        Axis::linear("T, rows"),
        Axis::log("share of keys"),
    );
    let counts = counts(sizes.of(1_000_000), sizes.seed);
    let total = counts.iter().sum::<i64>() as f64;
    let depths = [1_u8, 2, 3, 4, 6, 8];
    plot.dashed(
        "2^-T",
        depths
            .iter()
            .map(|t| (f64::from(*t), 0.5_f64.powi((*t).into())))
            .collect(),
    );
    let rounds = sizes.of(20) as u64;
    for width_log2 in [6, 8, 10, 12] {
        let mut line = Vec::new();
        for depth in depths {
            let shape = Shape::new(width_log2, depth)?;
            let (mut mean, mut beyond) = (0.0, 0.0);
            for round in 0..rounds {
                let (error, share) = errors(&counts, shape, sizes.seed + round);
                mean += error / rounds as f64;
                beyond += share / rounds as f64;
            }
            line.push((f64::from(depth), beyond));
            let case = format!("m = {}, T = {depth}", shape.width());
            if depth == 1 {
                claim.row(
                    &case,
                    ("mean error", "of N/m"),
                    Says::AtMost(1.0),
                    mean * shape.width() as f64 / total,
                );
            }
            if [1, 4].contains(&depth) {
                claim.row(
                    &case,
                    ("keys beyond εN", "share"),
                    Says::AtMost(shape.delta()),
                    beyond,
                );
            }
        }
        plot.measured(format!("m = {}", 1 << width_log2), line);
    }
    claim.plot(&plot);
    claim.why("Mean error: (N - C)/m for a key with count C, so N/m but for the heaviest, as the lecture says of its one inequality. Where the heaviest keys fall decides much, so a mean of 20 draws strays by a percent.");
    claim.why("Beyond εN: Markov allows half of the keys a row. Counts on a counter are a sum of many, nearly its mean, so few exceed twice the mean; which ones depends on the few heavy keys.");
    Ok(claim)
}
