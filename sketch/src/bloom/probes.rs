//! Computes the positions of a key's bits.

use torc_record::Digest;

use super::BloomShape;
use crate::SeedStream;

/// The positions of one key: uniform, and effectively independent. About 1 ns each.
#[derive(Debug, Clone)]
pub(super) struct BloomProbes {
    stream: SeedStream,
    /// The unused half of the last word.
    kept: Option<u32>,
    bits: u32,
    left: u32,
}

impl BloomProbes {
    /// From the last 64 bits of a digest, which do not contain the token: keys of one partition
    /// share the first bits.
    pub(super) const fn of(digest: &Digest, shape: BloomShape) -> Self {
        let mut low = [0; 8];
        low.copy_from_slice(digest.0.split_at(8).1);
        Self {
            stream: SeedStream::new(u64::from_be_bytes(low)),
            kept: None,
            bits: shape.bits(),
            left: shape.probes(),
        }
    }
}

impl Iterator for BloomProbes {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let half = self.kept.take().unwrap_or_else(|| {
            let word = self.stream.next_u64();
            self.kept = Some((word & 0xffff_ffff) as u32);
            (word >> 32) as u32
        });
        // Scaled without a division.
        Some(((u64::from(half) * u64::from(self.bits)) >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::digest;

    /// Filters that were sent or stored depend on these positions. SplitMix64 of the seed 1234567
    /// begins with 6457827717110365317 = 0x599ed017fb08fc85; the first ten bits of its halves are
    /// 358 and 1004.
    #[test]
    fn golden_positions_do_not_change() {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&1_234_567_u64.to_be_bytes());
        let shape = BloomShape::new(1_024, 3).unwrap();
        let probes: Vec<u32> = BloomProbes::of(&Digest(bytes), shape).collect();
        assert_eq!(probes[..2], [358, 1_004]);
        assert_eq!(probes.len(), 3);
    }

    /// Chi-square over 64 positions for each probe separately: 63 degrees of freedom, above 130
    /// with probability below 1e-6.
    #[test]
    fn every_probe_is_uniform() {
        let shape = BloomShape::new(64, 5).unwrap();
        for probe in 0..5 {
            let mut seen = [0_u32; 64];
            for key in 0..64_000 {
                let mut probes = BloomProbes::of(&digest(key), shape);
                seen[probes.nth(probe).unwrap() as usize] += 1;
            }
            let square = |&n: &u32| (f64::from(n) - 1000.0).powi(2) / 1000.0;
            let chi_square: f64 = seen.iter().map(square).sum();
            assert!(chi_square < 130.0, "probe {probe}: {chi_square}");
        }
    }
}
