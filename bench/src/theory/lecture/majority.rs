//! Majority by bits: "at least half" in the lecture's formula, "more than half" in ours, and one counter.

use anyhow::Result;
use torc_record::Digest;
use torc_sketch::lecture::MajorityBits;
use torc_sketch::{MajorityCounter, SeedStream};

use super::super::claim::{Claim, Says};
use super::Sizes;
use torc_plot::{Axis, Plot};

/// The other keys of a stream.
#[derive(Clone, Copy)]
enum Others {
    /// All different.
    Different,
    /// All the same key.
    One,
}

/// A stream of `total` digests, in which one key, the first, occurs `own` times.
fn stream(total: usize, own: usize, others: Others, seeds: &mut SeedStream) -> Vec<Digest> {
    let mut draw = || Digest(seeds.next_u128().to_be_bytes());
    let (key, other) = (draw(), draw());
    let mut stream = vec![key; own];
    for _ in own..total {
        stream.push(if matches!(others, Others::One) {
            other
        } else {
            draw()
        });
    }
    // Alternating: the worst order for the counter.
    let (own, others) = stream.split_at(own);
    let mut mixed = Vec::with_capacity(total);
    for index in 0..own.len().max(others.len()) {
        mixed.extend(own.get(index));
        mixed.extend(others.get(index));
    }
    mixed
}

/// The lecture's output: bit i is set if `c_i >= c / 2`.
fn at_least_half(stream: &[Digest]) -> Digest {
    let mut ones = [0_usize; 128];
    for digest in stream {
        let word = u128::from_be_bytes(digest.0);
        for (bit, ones) in ones.iter_mut().enumerate() {
            *ones += (word >> bit & 1) as usize;
        }
    }
    let bits = ones
        .iter()
        .enumerate()
        .filter(|(_, ones)| 2 * **ones >= stream.len());
    Digest(
        bits.fold(0_u128, |word, (bit, _)| word | 1 << bit)
            .to_be_bytes(),
    )
}

/// How often each of the three methods names the first key, in percent: at least half, more than
/// half, the counter.
fn right(
    total: usize,
    own: usize,
    others: Others,
    trials: usize,
    seeds: &mut SeedStream,
) -> [f64; 3] {
    let mut right = [0.0; 3];
    for _ in 0..trials {
        let stream = stream(total, own, others, seeds);
        let (mut bits, mut counter) = (MajorityBits::new(), MajorityCounter::new());
        for digest in &stream {
            bits.insert(digest);
            counter.insert(digest);
        }
        let named = [
            Some(at_least_half(&stream)),
            bits.candidate(),
            counter.candidate(),
        ];
        for (right, named) in right.iter_mut().zip(named) {
            *right += f64::from(u8::from(named == stream.first().copied())) * 100.0 / trials as f64;
        }
    }
    right
}

#[expect(clippy::unnecessary_wraps, reason = "claims have one signature")]
pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new("Lecture, exact majority: bit i of the answer is [c_i >= c/2]");
    let mut plot = Plot::new(
        "Lecture: majority, 100 keys, all others one key",
        Axis::linear("occurrences of the key"),
        Axis::linear("% of streams in which it is named"),
    );
    let mut seeds = SeedStream::new(sizes.seed);
    let trials = sizes.of(500);
    let total = 100;
    for (name, others) in [
        ("others all different", Others::Different),
        ("others one key", Others::One),
    ] {
        for own in [49, 50, 51] {
            let [weak, strict, counter] = right(total, own, others, trials, &mut seeds);
            let case = format!("{own} of {total}, {name}");
            let says = |least| {
                if own >= least {
                    Says::Is(100.0)
                } else {
                    Says::Nothing
                }
            };
            claim.row(&case, ("bits, at least half", "% right"), says(50), weak);
            claim.row(&case, ("bits, more than half", "% right"), says(51), strict);
            claim.row(&case, ("one counter", "% right"), says(51), counter);
        }
    }
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for own in (44..=56).step_by(2).chain([49, 51]) {
        let named = right(total, own, Others::One, trials.min(100), &mut seeds);
        for (line, named) in lines.iter_mut().zip(named) {
            line.push((own as f64, named));
        }
    }
    for (name, mut line) in ["bits, at least half", "bits, more than half", "one counter"]
        .into_iter()
        .zip(lines)
    {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
        plot.measured(name, line);
    }
    plot.dashed(
        "more than half",
        vec![(44.0, 0.0), (50.0, 0.0), (50.0, 100.0), (56.0, 100.0)],
    );
    claim.plot(&plot);
    claim.why("The lecture defines a majority as at least half and sums bits with c_i >= c/2. With exactly half on each of two keys no bit rule can be right: >= gives the bits of either, > those of both.");
    claim.why("With half and others that differ, both rules are right with high probability: every bit of the others has both values.");
    claim.why("So the deterministic guarantee is \"more than half\", which `MajorityBits` and `MajorityCounter` state; the lecture's formula keeps it, too, and promises one case more than it has.");
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strict_majority_is_named_by_all_and_half_by_none_for_sure() {
        let mut seeds = SeedStream::new(1);
        for others in [Others::Different, Others::One] {
            for share in right(21, 11, others, 20, &mut seeds) {
                assert!((share - 100.0).abs() < 1e-9);
            }
        }
        let halves = right(20, 10, Others::One, 20, &mut seeds);
        assert!(halves.iter().all(|share| *share < 1e-9), "{halves:?}");
    }
}
