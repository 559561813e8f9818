//! Ranks by Zipf's law, in constant time and memory for any number of them.
//!
//! Source: Hörmann, Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", 1996.

/// Draws ranks from 0 to n - 1; rank r with a probability proportional to (r + 1)^-s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Zipf {
    count: f64,
    exponent: f64,
    /// Bounds of the integral of the hat.
    first: f64,
    last: f64,
    /// A draw closer to a whole number than this is never rejected.
    sure: f64,
}

impl Zipf {
    /// A distribution of at least one rank; the exponent is positive and not 1.
    pub(super) fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self {
            count: count.max(1) as f64,
            exponent,
            first: 0.0,
            last: 0.0,
            sure: 0.0,
        };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Draws a rank.
    pub(super) fn rank(&self, mut random: impl FnMut() -> u64) -> u64 {
        loop {
            // 53 bits: the precision of a float between 0 and 1.
            let unit = (random() >> 11) as f64 / (1_u64 << 53) as f64;
            let area = self.last + unit * (self.first - self.last);
            let point = self.inverse(area);
            let rank = point.round().clamp(1.0, self.count);
            let is_hit =
                rank - point <= self.sure || area >= self.integral(rank + 0.5) - self.weight(rank);
            if is_hit {
                return rank as u64 - 1;
            }
        }
    }

    fn weight(&self, rank: f64) -> f64 {
        rank.powf(-self.exponent)
    }

    /// The integral of the weight, up to a constant.
    fn integral(&self, at: f64) -> f64 {
        (at.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn inverse(&self, area: f64) -> f64 {
        (area * (1.0 - self.exponent) + 1.0).powf((1.0 - self.exponent).recip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::generate_urls::Random;

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        const DRAWS: u32 = 200_000;
        for (count, exponent) in [(1, 0.99), (2, 0.99), (100, 0.99), (1_000, 0.5), (50, 1.5)] {
            let zipf = Zipf::new(count, exponent);
            let mut random = Random::of(7, count);
            let mut drawn = vec![0_u32; count as usize];
            for _ in 0..DRAWS {
                drawn[zipf.rank(|| random.next()) as usize] += 1;
            }
            let weights: Vec<f64> = (1..=count)
                .map(|rank| (rank as f64).powf(-exponent))
                .collect();
            let total: f64 = weights.iter().sum();
            for (rank, (found, weight)) in drawn.iter().zip(weights).enumerate() {
                let share = weight / total;
                let wanted = share * f64::from(DRAWS);
                // Six standard deviations.
                let most = 6.0 * (wanted * (1.0 - share)).sqrt() + 1.0;
                let off = (f64::from(*found) - wanted).abs();
                assert!(off <= most, "rank {rank} of {count}: {found}, not {wanted}");
            }
        }
    }

    #[test]
    fn a_very_large_number_of_ranks_costs_nothing() {
        let zipf = Zipf::new(1_000_000_000_000, 0.99);
        let mut random = Random::of(1, 1);
        let ranks: Vec<u64> = (0..10_000).map(|_| zipf.rank(|| random.next())).collect();
        assert!(ranks.iter().all(|rank| *rank < 1_000_000_000_000));
        let top = ranks.iter().filter(|rank| **rank < 1_000_000).count();
        // About half: the harmonic sum of 10^6 over that of 10^12.
        assert!((4_000..6_000).contains(&top), "{top}");
    }
}
