//! Decides which past intervals are kept, and at which resolution.
//!
//! A window that reaches back to some age is imprecise at its far end by the length of the interval
//! there; what matters is that length relative to the age. So when the bytes exceed their budget,
//! the two neighbours whose union is shortest for its age are merged. Repeated, this makes lengths
//! proportional to age: the last minutes keep each snapshot, yesterday has intervals of hours.
//!
//! This module only decides; the caller loads two intervals, merges them
//! ([`super::Interval::merge`]), stores the result, and asks again.

#![expect(clippy::cast_precision_loss, reason = "a ratio of ages")]

use std::ops::Range;

/// A kept interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Begin, milliseconds since the epoch.
    pub from_ms: u64,
    /// End.
    pub to_ms: u64,
    /// Its stored size.
    pub bytes: u64,
}

/// Limits of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Intervals that ended longer ago than this are dropped.
    pub keep_ms: u64,
    /// Limit on the bytes of all intervals together.
    pub budget_bytes: u64,
}

/// The next step. Each step removes one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinningStep {
    /// Drop this one.
    Drop(usize),
    /// Merge this one with the next one.
    MergeWithNext(usize),
}

impl Retention {
    /// The next step for `spans`, oldest first, at `now_ms`; `None` if they are within the limits.
    /// Takes one pass over the spans.
    #[must_use]
    pub fn next_step(&self, spans: &[Span], now_ms: u64) -> Option<ThinningStep> {
        let oldest_end = now_ms.saturating_sub(self.keep_ms);
        if spans
            .first()
            .is_some_and(|oldest| oldest.to_ms < oldest_end)
        {
            return Some(ThinningStep::Drop(0));
        }
        let bytes = spans
            .iter()
            .fold(0_u64, |sum, span| sum.saturating_add(span.bytes));
        if bytes <= self.budget_bytes {
            return None;
        }
        let coarseness = |pair: &[Span]| {
            let length = pair[1].to_ms.saturating_sub(pair[0].from_ms);
            let age = now_ms.saturating_sub(pair[1].from_ms).max(1);
            length as f64 / age as f64
        };
        let pairs = spans.windows(2).map(coarseness).enumerate();
        let finest = pairs.min_by(|(_, a), (_, b)| a.total_cmp(b));
        Some(finest.map_or(ThinningStep::Drop(0), |(first, _)| {
            ThinningStep::MergeWithNext(first)
        }))
    }
}

/// The fewest of `spans`, oldest first, that cover all that is known of `from_ms..to_ms`. Together
/// they may begin earlier and end later. Empty if nothing is known.
#[must_use]
pub fn covering(spans: &[Span], from_ms: u64, to_ms: u64) -> Range<usize> {
    let start = spans
        .iter()
        .take_while(|span| span.to_ms <= from_ms)
        .count();
    let len = spans[start..]
        .iter()
        .take_while(|span| span.from_ms < to_ms)
        .count();
    start..start + len
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Thins until the limits are met; a merged interval is a tenth larger than the larger of the
    /// two.
    fn thinned(retention: Retention, mut spans: Vec<Span>, now_ms: u64) -> Vec<Span> {
        while let Some(step) = retention.next_step(&spans, now_ms) {
            match step {
                ThinningStep::Drop(at) => drop(spans.remove(at)),
                ThinningStep::MergeWithNext(at) => {
                    let next = spans.remove(at + 1);
                    let larger = spans[at].bytes.max(next.bytes);
                    let bytes = larger.saturating_add(larger / 10);
                    spans[at] = Span {
                        from_ms: spans[at].from_ms,
                        to_ms: next.to_ms,
                        bytes,
                    };
                }
            }
        }
        spans
    }

    fn successive(count: u64, length_ms: u64, bytes: u64) -> Vec<Span> {
        let span = |i| Span {
            from_ms: i * length_ms,
            to_ms: (i + 1) * length_ms,
            bytes,
        };
        (0..count).map(span).collect()
    }

    #[test]
    fn a_day_of_snapshots_is_kept_finer_the_younger_it_is() {
        let retention = Retention {
            keep_ms: 86_400_000,
            budget_bytes: 20_000_000,
        };
        let now = 86_400_000;
        let mut kept = Vec::new();
        for span in successive(8640, 10_000, 30_000) {
            kept.push(span);
            kept = thinned(retention, kept, span.to_ms);
        }
        assert_eq!(
            (kept[0].from_ms, kept[kept.len() - 1].to_ms),
            (0, now),
            "nothing is lost"
        );
        assert!(kept.windows(2).all(|pair| pair[0].to_ms == pair[1].from_ms));
        assert!(kept.len() > 100, "the budget is used: {}", kept.len());
        for span in &kept {
            let age = (now - span.from_ms) as f64;
            let length = (span.to_ms - span.from_ms) as f64;
            assert!(
                length <= (age / 10.0).max(10_000.0),
                "{span:?}: a tenth of its age at most"
            );
        }
        assert_eq!(
            kept[kept.len() - 1].to_ms - kept[kept.len() - 1].from_ms,
            10_000
        );
    }

    #[test]
    fn what_ended_too_long_ago_is_dropped_even_within_the_budget() {
        let retention = Retention {
            keep_ms: 25,
            budget_bytes: 1 << 30,
        };
        let spans = successive(10, 10, 1);
        assert_eq!(thinned(retention, spans.clone(), 100), spans[7..]);
        assert_eq!(retention.next_step(&[], 100), None);
    }

    #[test]
    fn an_interval_above_the_budget_by_itself_is_dropped() {
        let retention = Retention {
            keep_ms: 1000,
            budget_bytes: 10,
        };
        assert_eq!(thinned(retention, successive(3, 10, 11), 30), []);
    }

    #[test]
    fn a_window_is_covered_by_the_intervals_it_touches() {
        let spans = successive(10, 10, 1);
        assert_eq!(
            covering(&spans, 20, 40),
            2..4,
            "borders touch nothing beyond"
        );
        assert_eq!(covering(&spans, 25, 31), 2..4);
        assert_eq!(covering(&spans, 0, u64::MAX), 0..10);
        assert_eq!(covering(&spans, 100, 200).len(), 0, "after all");
        assert_eq!(covering(&[], 0, 1).len(), 0);
        let with_gap = [spans[0], spans[5]];
        assert_eq!(
            covering(&with_gap, 20, 40).len(),
            0,
            "nothing is known of a time between"
        );
    }

    proptest! {
        #[test]
        fn any_clock_and_any_sizes_end_within_the_budget(
            spans in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..40),
            keep_ms: u64, budget_bytes: u64, now_ms: u64,
        ) {
            let spans = spans.iter().map(|&(from_ms, to_ms, bytes)| Span { from_ms, to_ms, bytes });
            let kept = thinned(Retention { keep_ms, budget_bytes }, spans.collect(), now_ms);
            prop_assert!(kept.iter().map(|span| u128::from(span.bytes)).sum::<u128>() <= u128::from(budget_bytes));
        }
    }
}
