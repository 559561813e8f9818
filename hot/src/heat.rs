//! The load of each part of the token circle: accesses per second, as a moving average.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "estimates, `as` saturates, and a part is below PARTS"
)]

use std::time::Duration;

use parking_lot::Mutex;
use torc_record::Digest;

/// Parts of equal length. Each is one partition or several, unless there are more partitions than
/// parts.
const PARTS: usize = 4_096;
/// An access of this age counts half.
const HALF_LIFE: Duration = Duration::from_secs(15);

/// Accesses by part.
#[derive(Debug, Clone)]
pub(super) struct Parts(Box<[u32]>);

impl Default for Parts {
    fn default() -> Self {
        Self(vec![0; PARTS].into())
    }
}

impl Parts {
    #[inline]
    pub(super) fn count(&mut self, digest: &Digest) {
        let part = digest.high() >> (u64::BITS - PARTS.ilog2());
        self.0[part as usize] += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        let counts = self.0.iter_mut().zip(&other.0);
        counts.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }
}

/// The average of each part.
#[derive(Debug, Default)]
pub(super) struct Heat(Mutex<Vec<f32>>);

impl Heat {
    /// Adds the counts of an interval.
    pub(super) fn add(&self, parts: &Parts, interval: Duration) {
        let seconds = interval.as_secs_f32();
        let kept = 0.5_f32.powf(seconds / HALF_LIFE.as_secs_f32());
        let mut heat = self.0.lock();
        heat.resize(PARTS, 0.0);
        for (heat, count) in heat.iter_mut().zip(&parts.0) {
            *heat = *heat * kept + *count as f32 / seconds * (1.0 - kept);
        }
    }

    /// Thousandths of an access per second by part. Returns one part per partition if there are
    /// fewer partitions than `PARTS`.
    pub(super) fn by_part(&self, partitions: usize) -> Vec<u32> {
        let heat = self.0.lock();
        let of_one = (PARTS / partitions.max(1)).max(1);
        let parts = heat.chunks(of_one);
        parts
            .map(|parts| (parts.iter().sum::<f32>() * 1e3) as u32)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(times: u32, first_byte: u8) -> Parts {
        let mut parts = Parts::default();
        let mut digest = Digest([0; 16]);
        digest.0[0] = first_byte;
        (0..times).for_each(|_| parts.count(&digest));
        parts
    }

    #[test]
    fn heat_comes_to_the_rate_and_cools_by_half_in_a_half_life() {
        let heat = Heat::default();
        assert!(heat.by_part(PARTS).is_empty(), "nothing was counted yet");
        for _ in 0..20 {
            heat.add(&counted(300, 0x80), HALF_LIFE);
        }
        let parts = heat.by_part(PARTS);
        assert_eq!(parts.len(), PARTS);
        assert!(
            (19_990..=20_000).contains(&parts[PARTS / 2]),
            "20 per second"
        );
        assert_eq!(parts.iter().filter(|part| **part > 0).count(), 1);
        heat.add(&Parts::default(), HALF_LIFE);
        assert!((9_990..=10_000).contains(&heat.by_part(PARTS)[PARTS / 2]));
        let four = heat.by_part(4);
        assert!(
            four[2] > 9_000 && four[0] + four[1] + four[3] == 0,
            "{four:?}"
        );
        assert_eq!(heat.by_part(1 << 16).len(), PARTS);
    }
}
