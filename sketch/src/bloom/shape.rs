//! The number of bits and probes of a Bloom filter.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an estimate, `as` saturates, and bits are at most MAX_BITS"
)]

use super::{best_probes, bits_per_key, classic_rate};

/// Limit on the bits of a filter, half a gibibyte.
pub const MAX_BITS: u32 = u32::MAX - 63;
/// Limit on the probes per key.
pub const MAX_PROBES: u32 = 32;
/// Lowest rate that a filter is sized for.
pub const MIN_RATE: f64 = 1e-9;

/// Bits (a multiple of 64) and probes per key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BloomShape {
    bits: u32,
    probes: u32,
}

/// Why there is no such filter. Nothing was created.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BloomShapeError {
    /// The rate is not possible for a filter.
    #[error("the false positive rate must be {MIN_RATE:e} to 0.5, not {rate}")]
    Rate {
        /// The requested rate.
        rate: f64,
    },
    /// The filter would be too large: allow a higher rate, or use several filters.
    #[error("{bits} bits, at most {MAX_BITS} are possible: allow a higher rate or split the keys")]
    Bits {
        /// Needed or requested bits.
        bits: u64,
    },
    /// No probes, or too many.
    #[error("{probes} probes a key, 1 to {MAX_PROBES} are possible")]
    Probes {
        /// Requested probes.
        probes: u32,
    },
}

impl BloomShape {
    /// The smallest filter with the false positive rate `rate` once it holds `keys` keys: T =
    /// log2(1/δ) probes into m = n log2(1/δ) / ln 2 bits, both rounded up to keep the rate.
    ///
    /// # Errors
    /// [`BloomShapeError::Rate`] outside [`MIN_RATE`] to 0.5, [`BloomShapeError::Bits`] above
    /// [`MAX_BITS`].
    pub fn for_keys(keys: u64, rate: f64) -> Result<Self, BloomShapeError> {
        if !(MIN_RATE..=0.5).contains(&rate) {
            return Err(BloomShapeError::Rate { rate });
        }
        let keys = keys.max(1);
        let per_key = bits_per_key(rate);
        let probes = best_probes(per_key);
        // A whole number of probes has a slightly higher rate than the ideal number: up to 2 % more
        // bits compensate.
        let least = (per_key * keys as f64) as u64;
        let step = (least / 1024).max(1);
        let mut bits = least.max(64);
        while bits <= u64::from(MAX_BITS) && classic_rate(keys, bits, probes) > rate {
            bits += step;
        }
        Self::new(bits, probes)
    }

    /// `bits` bits, rounded up to a multiple of 64, and `probes` probes per key.
    ///
    /// # Errors
    /// [`BloomShapeError::Bits`] for none or more than [`MAX_BITS`], [`BloomShapeError::Probes`]
    /// for none or more than [`MAX_PROBES`].
    pub fn new(bits: u64, probes: u32) -> Result<Self, BloomShapeError> {
        if probes == 0 || probes > MAX_PROBES {
            return Err(BloomShapeError::Probes { probes });
        }
        if bits == 0 || bits > u64::from(MAX_BITS) {
            return Err(BloomShapeError::Bits { bits });
        }
        Ok(Self {
            bits: bits.next_multiple_of(64) as u32,
            probes,
        })
    }

    /// m.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// T.
    #[must_use]
    pub const fn probes(self) -> u32 {
        self.probes
    }

    /// Words of 64 bits.
    pub(super) const fn words(self) -> usize {
        self.bits as usize / 64
    }

    /// The expected rate with `keys` keys: `(1 - (1 - 1/m)^(nT))^T`.
    #[must_use]
    pub fn rate(self, keys: u64) -> f64 {
        classic_rate(keys, self.bits.into(), self.probes)
    }

    /// The number of keys that would set the fraction `fill` of all bits: `-(m/T) ln(1 - fill)`
    /// (Swamidass and Baldi 2007).
    pub(super) fn keys_at(self, fill: f64) -> f64 {
        let bits = f64::from(self.bits);
        // A full filter shows only that it holds many keys: counts as if one bit were clear.
        let clear = (1.0 - fill).max(1.0 / bits);
        -bits / f64::from(self.probes) * clear.ln()
    }
}

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

    #[test]
    fn a_shape_keeps_the_rate_it_was_made_for() {
        for keys in [0, 1, 7, 1_000, 1_000_000] {
            for rate in [0.5, 0.3, 0.01, 1e-4, MIN_RATE] {
                let shape = BloomShape::for_keys(keys, rate).unwrap();
                assert!(shape.rate(keys) <= rate, "{keys} keys at {rate}");
                let ideal = bits_per_key(rate) * keys as f64;
                let most = 1.1 * ideal + 128.0;
                assert!(f64::from(shape.bits()) < most, "{keys} keys at {rate}");
            }
        }
    }

    #[test]
    fn impossible_shapes_are_named() {
        for rate in [0.0, 0.6, -1.0, f64::NAN, 1e-10] {
            let refused = BloomShape::for_keys(10, rate);
            assert!(matches!(refused, Err(BloomShapeError::Rate { .. })));
        }
        let refused = BloomShape::for_keys(1 << 32, 0.01);
        assert!(matches!(refused, Err(BloomShapeError::Bits { .. })));
        for probes in [0, 33] {
            let refused = BloomShape::new(64, probes);
            assert_eq!(refused, Err(BloomShapeError::Probes { probes }));
        }
        assert_eq!(
            BloomShape::new(0, 1),
            Err(BloomShapeError::Bits { bits: 0 })
        );
        assert_eq!(
            BloomShape::new(MAX_BITS.into(), 1).unwrap().bits(),
            MAX_BITS
        );
    }
}
