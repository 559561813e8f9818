//! Karp-Rabin: false matches over the number of primes, and over the range of primes from which q
//! is drawn.

use anyhow::Result;
use torc_sketch::SeedStream;
use torc_sketch::hash::prime::is_prime;

use super::super::claim::{Claim, Says};
use super::Sizes;
use torc_plot::{Axis, Plot};

/// Bits of the pattern: n.
const N: usize = 64;

/// The first `count` primes.
fn first_primes(count: usize) -> Vec<u64> {
    (2..).filter(|n| is_prime(*n)).take(count).collect()
}

/// How many windows of a bit text match the pattern's hash modulo all given primes, but differ from
/// the pattern.
fn false_matches(text: &[u8], pattern: &[u8], primes: &[u64]) -> usize {
    let number = |bits: &[u8]| {
        bits.iter()
            .fold(0_u64, |number, bit| number << 1 | u64::from(*bit))
    };
    let wanted = number(pattern);
    let mut hashes: Vec<(u64, u64, u64)> = Vec::new();
    for &q in primes {
        let hash = |bits: &[u8]| {
            bits.iter()
                .fold(0, |hash, bit| (2 * hash + u64::from(*bit)) % q)
        };
        // 2^(N-1) mod q: the weight of the outgoing bit.
        let leaving = (1..N).fold(1 % q, |weight, _| 2 * weight % q);
        hashes.push((hash(&text[..N]), hash(pattern), leaving));
    }
    let mut found = 0;
    for start in 0..=text.len() - N {
        let agree = hashes
            .iter()
            .all(|(hash, of_pattern, _)| hash == of_pattern);
        found += usize::from(agree && number(&text[start..start + N]) != wanted);
        let Some(&entering) = text.get(start + N) else {
            break;
        };
        for ((hash, _, leaving), q) in hashes.iter_mut().zip(primes) {
            let rest = (*hash + q - u64::from(text[start]) * *leaving % q) % q;
            *hash = (2 * rest + u64::from(entering)) % q;
        }
    }
    found
}

#[expect(clippy::unnecessary_wraps, reason = "claims have one signature")]
pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new(
        "Lecture, Karp-Rabin: with q drawn from the first n/δ primes two strings of n bits collide with probability δ",
    );
    let mut plot = Plot::new(
        "Lecture: false matches of 64 bits",
        Axis::log("primes to draw from"),
        Axis::log("share of windows"),
    );
    let mut seeds = SeedStream::new(sizes.seed);
    let windows = sizes.of(20_000);
    let all = first_primes(N * 1_000);
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    let mut bounds: [Vec<(f64, f64)>; 2] = Default::default();
    for times in [4, 10, 100, 1_000] {
        let from = &all[..N * times];
        let delta = 1.0 / times as f64;
        for (primes, line) in (1..).zip(&mut lines) {
            let draws = 200;
            let mut found = 0;
            for _ in 0..draws {
                let mut bits =
                    |len: usize| -> Vec<u8> { (0..len).map(|_| seeds.below(2) as u8).collect() };
                let (text, pattern) = (bits(windows + N - 1), bits(N));
                let drawn: Vec<u64> = (0..primes)
                    .map(|_| from[seeds.below(from.len() as u64) as usize])
                    .collect();
                found += false_matches(&text, &pattern, &drawn);
            }
            let share = f64::from(found as u32) / (windows * draws) as f64;
            line.push((from.len() as f64, share));
            let bound = delta.powi(primes);
            let case = format!("first {} primes, δ = {delta}", from.len());
            let figure = ["one prime", "two primes", "three primes"][primes as usize - 1];
            claim.row(
                &case,
                (figure, "share of windows"),
                Says::AtMost(bound),
                share,
            );
            if let Some(bounds) = bounds.get_mut(primes as usize - 1) {
                bounds.push((from.len() as f64, bound));
            }
        }
    }
    let [one, two] = bounds;
    plot.dashed("δ", one);
    plot.dashed("δ²", two);
    for (name, line) in ["one prime", "two primes", "three primes"]
        .into_iter()
        .zip(lines)
    {
        plot.measured(name, line);
    }
    claim.plot(&plot);
    claim.why("The bound counts 64 possible prime factors of a difference; a random difference has about ln 64 = 4, and a random q divides it with probability 1/q. So measured shares are 30 to 140 times smaller.");
    claim.why("Several primes multiply, nearly: the share is a mean over draws of q, which small q dominate. Below one window in all there is nothing to count: 0 means less than 1 in 4,000,000.");
    claim.why("Torc draws q from the primes between 2^53 and 2^54 (1.4e14 of them): 1.1e-15 a byte of the string for one prime, and searches verify their matches.");
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rolling_hashes_are_those_of_the_windows() {
        let mut seeds = SeedStream::new(1);
        let text: Vec<u8> = (0..300).map(|_| seeds.below(2) as u8).collect();
        let pattern = text[40..40 + N].to_vec();
        let number = |bits: &[u8]| {
            bits.iter()
                .fold(0_u64, |number, bit| number << 1 | u64::from(*bit))
        };
        for primes in [&[2][..], &[3, 5], &[7]] {
            let same = |window: &[u8]| {
                primes
                    .iter()
                    .all(|q| number(window) % q == number(&pattern) % q)
            };
            let naive = text
                .windows(N)
                .filter(|window| same(window) && **window != pattern[..])
                .count();
            assert_eq!(false_matches(&text, &pattern, primes), naive, "{primes:?}");
        }
    }
}
