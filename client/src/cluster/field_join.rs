//! The join of two namespaces on a field of their values.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates, and `as` saturates"
)]

use serde::Serialize;
use torc_sketch::InnerProduct;

/// The join of two namespaces on a field, from [`Client::overlap_on`](crate::Client::overlap_on).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldJoin {
    /// The first.
    pub a: FieldJoinSide,
    /// The second.
    pub b: FieldJoinSide,
    /// The field.
    pub on: String,
    /// Rows of the join.
    pub size: FieldJoinEstimate,
    /// Number of nodes asked.
    pub nodes: u32,
    /// Number of records that the nodes read.
    pub records_read: u64,
    /// Bytes of sketches transferred.
    pub bytes_moved: u64,
}

/// One of the namespaces. All figures are exact counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldJoinSide {
    /// Its name.
    pub namespace: String,
    /// Records with a string, a number or a boolean in the field.
    pub rows: u64,
    /// Records whose value is not JSON; these and the next two kinds join with nothing.
    pub not_json: u64,
    /// Records whose value lacks the field.
    pub without_field: u64,
    /// Records with null, an array or an object in the field.
    pub not_scalar: u64,
}

/// The sum over values of (rows in one) (rows in the other), by sketches of T = 5 rows of m = 65,536 counters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FieldJoinEstimate {
    /// Unbiased, except that it is clamped to 0 below, and to `upper` and all pairs above.
    pub estimate: u128,
    /// 3 standard deviations: 3 sqrt((F₂(a) F₂(b) + estimate²) / (m T)), F₂ being the sum over values of rows².
    pub error: u128,
    /// Lower bound on the probability that the truth is within `error`: 8/9, by Chebyshev's
    /// inequality.
    pub confidence: f64,
    /// The count-min estimate: never below the truth.
    pub upper: u128,
    /// ε |a| |b|, ε = 2/m: `upper` exceeds the truth by more than this with a probability of at
    /// most `delta`.
    pub upper_error: u128,
    /// 1/32.
    pub delta: f64,
}

impl FieldJoinEstimate {
    pub(crate) fn of(join: &InnerProduct, rows_a: u64, rows_b: u64) -> Self {
        let pairs = u128::from(rows_a) * u128::from(rows_b);
        let upper = join.upper.min(pairs);
        Self {
            // Below 0 the cast gives 0.
            estimate: (join.estimate.round() as u128).min(upper),
            error: (3.0 * join.std_error).ceil() as u128,
            confidence: torc_sketch::overlap::Overlap::CONFIDENCE,
            upper,
            upper_error: join.upper_error.ceil() as u128,
            delta: torc_sketch::overlap::Overlap::DELTA,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_kept_between_nothing_and_what_is_certain() {
        let of = |estimate, upper| {
            let join = InnerProduct {
                upper,
                upper_error: 0.2,
                estimate,
                std_error: 1.5,
            };
            let join = FieldJoinEstimate::of(&join, 10, 20);
            (join.estimate, join.error, join.upper, join.upper_error)
        };
        assert_eq!(of(5.6, 9), (6, 5, 9, 1));
        assert_eq!(of(-3.0, 9), (0, 5, 9, 1));
        assert_eq!(of(50.0, 9), (9, 5, 9, 1));
        assert_eq!(of(500.0, 1_000), (200, 5, 200, 1), "all pairs");
    }
}
