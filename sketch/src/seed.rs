//! Derives many numbers from one seed.
//!
//! SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014):
//! equidistributed over its period of 2^64, and the same on every host. It expands a seed into the
//! coefficients of a hash function; it must not be used for secrets.

/// A stream of numbers that depends on its seed alone.
#[derive(Debug, Clone)]
pub struct SeedStream(u64);

impl SeedStream {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits. About 1 ns.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next 128 bits, the upper half first.
    pub const fn next_u128(&mut self) -> u128 {
        let high = self.next_u64() as u128;
        high << 64 | self.next_u64() as u128
    }

    /// Uniform below `bound`, without bias; 0 for bound 0. Takes at most two draws on average.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Rejects the incomplete last run of `bound` values.
        let refused_from = u64::MAX - u64::MAX % bound;
        loop {
            let drawn = self.next_u64();
            if drawn < refused_from {
                return drawn % bound;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three outputs for the seed 1234567, as published with the reference code of
    /// SplitMix64 in many languages.
    #[test]
    fn golden_numbers_do_not_change() {
        let mut stream = SeedStream::new(1_234_567);
        let drawn = [stream.next_u64(), stream.next_u64(), stream.next_u64()];
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    /// Chi-square with 9 degrees of freedom: above 40 with probability below 1e-5.
    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut stream = SeedStream::new(3);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[stream.below(10) as usize] += 1;
        }
        let chi_square: f64 = seen
            .iter()
            .map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0)
            .sum();
        assert!(chi_square < 40.0, "{seen:?}");
        assert_eq!(
            stream.below(0),
            0,
            "nothing is below 0, and nothing may hang"
        );
        assert_eq!(stream.below(1), 0);
    }
}
