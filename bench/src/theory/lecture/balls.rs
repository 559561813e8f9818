//! Random hashing as balls in bins: n balls, n bins; a given bin exceeds its mean by at most log n
//! with probability 1 - 1/n.

use anyhow::Result;
use torc_sketch::SeedStream;

use super::super::claim::{Claim, Says};
use super::Sizes;
use torc_plot::{Axis, Plot};

/// Throws n balls into n bins; returns how many bins exceed 1 + ln n, and the fullest bin.
fn throw(n: usize, seeds: &mut SeedStream) -> (usize, u32) {
    let mut bins = vec![0_u32; n];
    (0..n).for_each(|_| bins[seeds.below(n as u64) as usize] += 1);
    let limit = 1.0 + (n as f64).ln();
    let beyond = bins.iter().filter(|bin| f64::from(**bin) > limit).count();
    (beyond, bins.iter().copied().max().unwrap_or(0))
}

#[expect(clippy::unnecessary_wraps, reason = "claims have one signature")]
pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim =
        Claim::new("Lecture, balls in bins: Pr[|X - 1| > ln n] <= 1/n, by Chernoff's bound");
    let mut plot = Plot::new(
        "Lecture: a bin of n with more than 1 + ln n of n balls",
        Axis::log("n"),
        Axis::log("probability"),
    );
    let (mut bound, mut measured) = (Vec::new(), Vec::new());
    let mut seeds = SeedStream::new(sizes.seed);
    for power in (4..=16).step_by(2) {
        let n = 1_usize << power;
        let throws = (sizes.of(1 << 22) / n).max(1);
        let (mut beyond, mut fullest) = (0, 0);
        for _ in 0..throws {
            let (bins, most) = throw(n, &mut seeds);
            beyond += bins;
            fullest += most;
        }
        let probability = beyond as f64 / (throws * n) as f64;
        let ln = (n as f64).ln();
        bound.push((n as f64, 1.0 / n as f64));
        measured.push((n as f64, probability));
        let case = format!("n = {n}");
        claim.row(
            &case,
            ("a given bin beyond 1 + ln n", "probability"),
            Says::AtMost(1.0 / n as f64),
            probability,
        );
        let mean = f64::from(fullest) / throws as f64;
        claim.row(
            &case,
            ("the fullest bin", "balls"),
            Says::AtMost(1.0 + ln),
            mean,
        );
    }
    plot.dashed("1/n", bound);
    plot.measured("counted over all bins", measured);
    claim.plot(&plot);
    claim.why("The bound is generous: the number is nearly Poisson with mean 1, which falls as 1/k!, not as e^-k. So even the fullest of all n bins stays below 1 + ln n on average.");
    claim.why("The lecture leaves a constant out of the bound's exponent, so it is a bound for large n; it holds for small ones, too. 0 means less than one bin in 4,000,000.");
    Ok(claim)
}
