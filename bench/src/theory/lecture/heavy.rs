//! k-heavy hitters over a stream of unknown length: recall and precision at any time.

use std::collections::HashMap;

use anyhow::Result;
use torc_record::Digest;
use torc_sketch::{HeavyHitters, SeedStream, Shape};

use super::super::claim::{Claim, Says};
use super::{Sizes, digest, skewed};
use torc_plot::{Axis, Plot};

const K: u32 = 100;
const KEYS: u64 = 100_000;

/// The quality of the answer after M insertions.
struct Worth {
    /// The share of the keys with M/k that are named.
    recall: f64,
    /// The share of the named keys that have M/k.
    exact: f64,
    /// The share of the named keys that have M/k - εM.
    precision: f64,
    named: usize,
}

fn worth(heavy: &HeavyHitters, truth: &HashMap<Digest, u64>, total: u64) -> Worth {
    let answer = heavy.answer();
    let epsilon = heavy.sketch().shape().epsilon();
    let has = |digest: &Digest, least: f64| {
        truth
            .get(digest)
            .is_some_and(|count| *count as f64 >= least)
    };
    let threshold = total as f64 / f64::from(K);
    let almost = threshold - epsilon * total as f64;
    let true_hitters: Vec<&Digest> = truth
        .keys()
        .filter(|digest| has(digest, threshold))
        .collect();
    let found = true_hitters
        .iter()
        .filter(|digest| answer.iter().any(|hitter| hitter.digest == ***digest));
    let share = |part: usize, of: usize| {
        if of == 0 {
            100.0
        } else {
            100.0 * part as f64 / of as f64
        }
    };
    let named_with = |least| {
        answer
            .iter()
            .filter(|hitter| has(&hitter.digest, least))
            .count()
    };
    Worth {
        recall: share(found.count(), true_hitters.len()),
        exact: share(named_with(threshold), answer.len()),
        precision: share(named_with(almost), answer.len()),
        named: answer.len(),
    }
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new(
        "Lecture, k-heavy hitters of a stream of unknown length: none missed, each has M/k - εM, |L| = O(k)",
    );
    let mut plot = Plot::new(
        "Lecture: heavy hitters, k = 100, at any moment of the stream",
        Axis::log("M, insertions so far"),
        Axis::linear("%"),
    );
    // ε = 1/(2k), and δ = 1/1000 per key.
    let shape = Shape::for_error(0.5 / f64::from(K), 0.001)?;
    let mut heavy = HeavyHitters::new(K, shape, sizes.seed);
    let mut truth: HashMap<Digest, u64> = HashMap::new();
    let mut seeds = SeedStream::new(sizes.seed);
    let total = sizes.of(2_000_000) as u64;
    let mut next = 300;
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for inserted in 1..=total {
        // The heavy keys change along the stream, after each third.
        let shift = inserted * 3 / (total + 1);
        let key = digest((shift << 32) + skewed(&mut seeds, KEYS));
        heavy.insert(&key);
        *truth.entry(key).or_default() += 1;
        if inserted == next || inserted == total {
            next *= 9;
            let worth = worth(&heavy, &truth, inserted);
            let case = format!("M = {inserted}");
            claim.row(&case, ("recall", "%"), Says::Is(100.0), worth.recall);
            claim.row(
                &case,
                ("have M/k - εM", "%"),
                Says::Is(100.0),
                worth.precision,
            );
            claim.row(&case, ("have M/k", "%"), Says::Nothing, worth.exact);
            claim.row(
                &case,
                ("named", "keys"),
                Says::AtMost(2.0 * f64::from(K)),
                worth.named as f64,
            );
            claim.row(
                &case,
                ("candidates held", "keys"),
                Says::Nothing,
                heavy.candidates() as f64,
            );
            let x = inserted as f64;
            for (line, y) in lines
                .iter_mut()
                .zip([worth.recall, worth.precision, worth.exact])
            {
                line.push((x, y));
            }
        }
    }
    let [recall, precision, exact] = lines;
    let says = recall.iter().map(|(x, _)| (*x, 100.0)).collect();
    plot.dashed("none missed, each almost heavy", says);
    plot.measured("recall", recall);
    plot.measured("named keys with M/k - εM", precision);
    plot.measured("named keys with M/k", exact);
    claim.plot(&plot);
    claim.why("Recall is 100 % whatever the hashes: count-min never counts too little, and a key becomes heavy by an insertion of its own.");
    claim.why("A named key has M/k - εM but with probability δ = 1/1000 each; that it has M/k nobody promises, since an estimate may be up to εM too high.");
    claim.why("The lecture looks through L after every insertion; here a sweep comes every so often, so candidates may be up to 4k and an answer is filtered.");
    Ok(claim)
}
