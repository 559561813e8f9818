//! How large a Bloom filter is, and how often it errs.
//!
//! The arithmetic of the lecture (S. Jiang, Hash methods, 2023; Bloom 1970): n keys in m bits with T probes each let a stranger in with probability
//! (1 - e^(-nT/m))^T, least at T = (m/n) ln 2; so m = n log2(1/δ) / ln 2 and T = log2(1/δ) for the rate δ. It has one place,
//! [`torc_index::gate::sizing`], where the filter itself lives: the gate in front of a slice. A filter needs bits in proportion to the keys, unlike count-min, which
//! allows an error of εN that would make nonsense of membership.
//!
//! Probes are by [`crate::hash::DoubleHash`].

pub use torc_index::gate::sizing::{best_probes, bits_per_key, classic_rate};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lectures_optimum_reaches_the_rate() {
        for rate in [0.1, 0.01, 0.001] {
            let bits = bits_per_key(rate);
            let of = |probes| classic_rate(10_000, (10_000.0 * bits) as u64, probes);
            let best = best_probes(bits);
            assert!(
                of(best) < of(best - 1) && of(best) < of(best + 1),
                "{best} probes are best"
            );
            assert!(
                (of(best) / rate - 1.0).abs() < 0.05,
                "whole probes cost little: {}",
                of(best)
            );
        }
    }
}
