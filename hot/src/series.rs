//! Accesses over time: the estimates of some keys in each interval of the history, mapped to equal
//! steps.
//!
//! An interval that covers several steps is spread over them by time. Older intervals are longer,
//! so old steps are smoothed.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "figures, and usize has 64 bits"
)]

use torc_proto::v1::HotSeries;
use torc_record::Digest;
use torc_sketch::hot_keys::HotKeysOptions;

use super::history::{Bytes, decode_only};
use torc_record::NamespaceId;

/// Limit on the steps of a series.
pub(super) const MAX_STEPS: u32 = 240;
/// Limit on the keys with a series.
pub(super) const MAX_KEYS: usize = 20;

/// Equal steps of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) from_ms: u64,
    pub(super) step_ms: u64,
    pub(super) steps: u32,
}

impl Grid {
    /// A grid of `steps` steps over this time; the last step may extend beyond it.
    pub(super) fn over(from_ms: u64, to_ms: u64, steps: u32) -> Self {
        let steps = steps.clamp(1, MAX_STEPS);
        let length_ms = to_ms.saturating_sub(from_ms);
        Self {
            from_ms,
            step_ms: length_ms.div_ceil(u64::from(steps)).max(1),
            steps,
        }
    }

    /// Spreads a count over the steps that its time span overlaps, in proportion. Ignores time
    /// outside the grid.
    fn spread(self, (from_ms, to_ms): (u64, u64), count: u64, into: &mut [f64]) {
        // An interval without duration still falls into a step.
        let to_ms = to_ms.max(from_ms.saturating_add(1));
        let length_ms = (to_ms - from_ms) as f64;
        let at = |ms: u64| (ms.saturating_sub(self.from_ms) / self.step_ms) as usize;
        let until = at(to_ms.saturating_sub(1)).saturating_add(1);
        let range = at(from_ms).min(into.len())..until.min(into.len());
        for (step, sum) in range.clone().zip(&mut into[range]) {
            let begin_ms = self.from_ms + step as u64 * self.step_ms;
            let end_ms = begin_ms + self.step_ms;
            let shared_ms = end_ms.min(to_ms).saturating_sub(begin_ms.max(from_ms));
            *sum += count as f64 * shared_ms as f64 / length_ms;
        }
    }

    fn empty(self) -> HotSeries {
        let accesses = vec![0.0; self.steps as usize];
        HotSeries { accesses }
    }
}

/// The accesses to a namespace, then those to each key. Takes about 1 ms per interval of a busy
/// namespace.
pub(super) fn series(
    intervals: &[Bytes],
    options: &HotKeysOptions,
    namespace: NamespaceId,
    keys: &[Digest],
    grid: Grid,
) -> Vec<HotSeries> {
    let mut series = vec![grid.empty(); 1 + keys.len()];
    for bytes in intervals {
        let Some(intervals) = decode_only(bytes, options, namespace) else {
            continue;
        };
        let span = (intervals.from_ms(), intervals.to_ms());
        for interval in intervals.streams() {
            let counts = interval.counts();
            let of_key = |key| counts.estimate(key).max(0).unsigned_abs();
            let estimates = std::iter::once(interval.total()).chain(keys.iter().map(of_key));
            for (series, estimate) in series.iter_mut().zip(estimates) {
                grid.spread(span, estimate, &mut series.accesses);
            }
        }
    }
    series
}

/// Adds another node's counts, unless their shape differs.
pub(super) fn add(sum: &mut [HotSeries], other: &[HotSeries]) -> bool {
    let fits = |(sum, other): (&HotSeries, &HotSeries)| {
        let finite = other.accesses.iter().all(|it| it.is_finite());
        sum.accesses.len() == other.accesses.len() && finite
    };
    if sum.len() != other.len() || !sum.iter().zip(other).all(fits) {
        return false;
    }
    for (sum, other) in sum.iter_mut().zip(other) {
        for (sum, other) in sum.accesses.iter_mut().zip(&other.accesses) {
            *sum += other;
        }
    }
    true
}

/// An empty sum.
pub(super) fn nothing(keys: usize, grid: Grid) -> Vec<HotSeries> {
    vec![grid.empty(); 1 + keys]
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_sketch::hot_keys::HotNamespaces;

    const GRID: Grid = Grid {
        from_ms: 100,
        step_ms: 10,
        steps: 3,
    };

    fn spread(span: (u64, u64), count: u64) -> Vec<f64> {
        let mut into = vec![0.0; 3];
        GRID.spread(span, count, &mut into);
        into
    }

    #[test]
    fn an_interval_is_spread_over_its_steps_by_time() {
        assert_eq!(spread((100, 110), 6), [6.0, 0.0, 0.0]);
        assert_eq!(spread((105, 125), 20), [5.0, 10.0, 5.0]);
        assert_eq!(
            spread((80, 140), 60),
            [10.0, 10.0, 10.0],
            "the rest lies outside"
        );
        assert_eq!(spread((120, 120), 4), [0.0, 0.0, 4.0], "it took no time");
        assert_eq!(spread((0, 100), 9), [0.0; 3]);
        assert_eq!(spread((130, 140), 9), [0.0; 3]);
        assert_eq!(spread((u64::MAX, u64::MAX), 9), [0.0; 3]);
    }

    #[test]
    fn a_grid_covers_its_time() {
        let grid = Grid::over(1_000, 2_000, 7);
        assert_eq!((grid.step_ms, grid.steps), (143, 7));
        assert_eq!(
            Grid::over(5, 5, 0),
            Grid {
                from_ms: 5,
                step_ms: 1,
                steps: 1
            }
        );
        assert_eq!(Grid::over(0, 1, u32::MAX).steps, MAX_STEPS);
    }

    #[test]
    fn a_series_follows_a_key_and_its_namespace() {
        let options = HotKeysOptions::usual(1);
        let key = Digest([7; 16]);
        let mut tracker = HotNamespaces::new(options, 100);
        let mut count = |namespace, times, now_ms| {
            for _ in 0..times {
                tracker.record(NamespaceId(namespace), &key, || None);
            }
            tracker.record(NamespaceId(1), &Digest([8; 16]), || None);
            let mut bytes = Vec::new();
            tracker.snapshot(now_ms).encode(&mut bytes);
            Bytes::from(bytes)
        };
        let intervals = [count(1, 5, 110), count(2, 50, 120), count(1, 3, 130)];
        let series = series(&intervals, &options, NamespaceId(1), &[key], GRID);
        assert_eq!(series[0].accesses, [6.0, 1.0, 4.0]);
        assert_eq!(
            series[1].accesses,
            [5.0, 0.0, 3.0],
            "not those of the other namespace"
        );
        let mut sum = nothing(1, GRID);
        assert!(add(&mut sum, &series) && add(&mut sum, &series));
        assert_eq!(sum[1].accesses, [10.0, 0.0, 6.0]);
        assert!(!add(&mut sum, &series[..1]), "of other keys");
        assert!(!add(&mut sum, &nothing(1, Grid { steps: 4, ..GRID })));
    }
}
