//! Request durations as nodes count them: buckets whose bounds double.
//!
//! Counts of several nodes and times can be added, and percentiles are computed from the sum. A
//! percentile is the upper bound of its bucket, so at most twice too high.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a percentile is an estimate"
)]

/// The upper bound of the first bucket, microseconds.
pub const FIRST_BOUND_US: u64 = 10;
/// Buckets: the last but one ends at 10.5 s, the last has no bound.
pub const BUCKETS: usize = 22;

/// The upper bound of a bucket, microseconds; for the last bucket, its lower bound.
#[must_use]
pub const fn bound_us(bucket: usize) -> u64 {
    let doublings = if bucket + 1 < BUCKETS {
        bucket
    } else {
        BUCKETS - 2
    };
    FIRST_BOUND_US << doublings
}

/// The bucket of a duration.
#[must_use]
pub const fn bucket_of(us: u64) -> usize {
    let mut bucket = 0;
    while bucket + 1 < BUCKETS && us > FIRST_BOUND_US << bucket {
        bucket += 1;
    }
    bucket
}

/// The duration that `share` of all durations do not exceed, microseconds; `None` without any.
#[must_use]
pub fn percentile_us(counts: &[u64], share: f64) -> Option<u64> {
    let add = |sum: u64, count: &u64| sum.saturating_add(*count);
    let all = counts.iter().fold(0, add);
    let wanted = ((all as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let reached = |count: &u64| {
        seen = add(seen, count);
        seen >= wanted
    };
    let bucket = counts.iter().position(reached)?;
    Some(bound_us(bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_at_most_the_bound_of_its_bucket_and_above_half_of_it() {
        for us in [1, 10, 11, 20, 21, 1_000, 10_485_760] {
            let bound = bound_us(bucket_of(us));
            assert!(us <= bound, "{us}");
            assert!(us > bound / 2 || bound == FIRST_BOUND_US, "{us}");
        }
        assert_eq!(bucket_of(10_485_761), BUCKETS - 1, "the last is open");
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bound_us(BUCKETS - 1), bound_us(BUCKETS - 2));
    }

    #[test]
    fn a_percentile_is_of_all_counts() {
        assert_eq!(percentile_us(&[], 0.5), None);
        assert_eq!(percentile_us(&[0; BUCKETS], 0.5), None);
        let counts = [90, 0, 9, 1];
        for (share, us) in [
            (0.0, 10),
            (0.5, 10),
            (0.9, 10),
            (0.99, 40),
            (0.999, 80),
            (1.0, 80),
        ] {
            assert_eq!(percentile_us(&counts, share), Some(us), "{share}");
        }
    }
}
