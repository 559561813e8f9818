//! Which intervals of the past are kept, and how finely.
//!
//! A window that reaches back by an age is as wrong at its far end as the interval there is long; what matters is that
//! length as a share of the age. So when the bytes exceed their budget, the two neighbours whose union is the
//! shortest for its age are merged. Repeated, lengths become proportional to age: the last minutes keep each snapshot, yesterday hours.
//!
//! This decides; whoever keeps the intervals loads two, merges them ([`super::Interval::merge`]), stores one, and asks again.

#![expect(clippy::cast_precision_loss, reason = "a ratio of ages")]

use std::ops::Range;

/// An interval that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When it began, milliseconds since the epoch.
    pub from_ms: u64,
    /// When it ended.
    pub to_ms: u64,
    /// What it takes to keep.
    pub bytes: u64,
}

/// How much of the past is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Intervals that ended longer ago are dropped.
    pub keep_ms: u64,
    /// Of all intervals together.
    pub budget_bytes: u64,
}

/// What to do next. Each leaves one interval less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinningStep {
    /// Forget this one.
    Drop(usize),
    /// Merge this one with the next.
    MergeWithNext(usize),
}

impl Retention {
    /// The next step for `spans`, oldest first, at `now_ms`; none if they are within the limits. One pass over the spans.
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

/// The fewest of `spans`, oldest first, that hold all of what they know of `from_ms..to_ms`: the answer is over their span, which may begin
/// earlier and end later. Empty if they know nothing of it.
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

    /// Thins to the end: a merged interval takes as much as the larger of the two and a tenth.
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
