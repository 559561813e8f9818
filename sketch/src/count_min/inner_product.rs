//! How large is the join of two streams?
//!
//! *Question*: <a, b> = the sum over keys of (count in a) (count in b). For counts of accesses,
//! this is the size of the join; for sets (every key inserted once), the number of keys in both.
//! *Answers*, from two sketches of one seed with T rows of m counters, where P_i is the inner
//! product of their i-th rows:
//!
//! * `upper` = min P_i, the lecture's estimate: <a, b> <= `upper`, and `upper` <= <a, b> + ε
//!   |a|₁|b|₁ with probability at least 1 - δ, by Markov's inequality as for a point query (E P_i =
//!   <a, b> + (|a|₁|b|₁ - <a, b>) / m). For two sets with a small overlap, the error exceeds the
//!   answer, so it is useless there.
//! * `estimate` = the mean of (m P_i - |a|₁|b|₁) / (m - 1): the same expectation solved for <a, b>,
//!   so unbiased. If rows are independent of each other and hash four keys independently, its
//!   variance is at most (F₂(a) F₂(b) + <a, b>²) m / ((m - 1)² T), where F₂ is the sum of the
//!   squared counts; hence `std_error`. Rows hash only pairs independently, but they hash the
//!   output of a keyed BLAKE3, which supplies the rest. By Chebyshev's inequality, the estimate is
//!   within 3 `std_error` with probability at least 8/9, and near 0.997 unless a few keys dominate.
//!
//! F₂ is the inner product of a stream with itself, and is estimated in the same way.

#![expect(clippy::cast_precision_loss, reason = "estimates")]

use super::{CombineError, CountMin};

/// The two estimates of <a, b>, from [`CountMin::inner_product`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InnerProduct {
    /// The lecture's estimate: never below the truth.
    pub upper: u128,
    /// ε |a|₁|b|₁: `upper` exceeds the truth by more than this with probability at most δ.
    pub upper_error: f64,
    /// Unbiased; may be negative.
    pub estimate: f64,
    /// The estimated standard deviation of `estimate`.
    pub std_error: f64,
}

impl CountMin {
    /// Estimates <a, b>. No count may be negative. About 4 ns per counter.
    ///
    /// # Errors
    /// [`CombineError`] unless shape and seed are the same.
    pub fn inner_product(&self, other: &Self) -> Result<InnerProduct, CombineError> {
        self.check_combines_with(other)?;
        let products = self.row_products(other);
        let upper = products
            .iter()
            .copied()
            .min()
            .unwrap_or(0)
            .max(0)
            .unsigned_abs();
        let norms = self.total as f64 * other.total as f64;
        let estimate = self.without_bias(&products, norms);
        let (of_self, of_other) = (self.second_moment(), other.second_moment());
        let width = self.shape.width() as f64;
        let variance = of_self.mul_add(of_other, estimate * estimate) * width
            / ((width - 1.0) * (width - 1.0) * f64::from(self.shape.depth()));
        Ok(InnerProduct {
            upper,
            upper_error: self.shape.epsilon() * norms,
            estimate,
            std_error: variance.sqrt(),
        })
    }

    /// F₂: an unbiased estimate of the sum of the squared counts; at least the total, which is its
    /// minimum for counts.
    #[must_use]
    pub fn second_moment(&self) -> f64 {
        let total = self.total as f64;
        self.without_bias(&self.row_products(self), total * total)
            .max(total)
    }

    fn row_products(&self, other: &Self) -> Vec<i128> {
        let width = self.shape.width();
        let rows = self
            .counters
            .chunks_exact(width)
            .zip(other.counters.chunks_exact(width));
        rows.map(|(a, b)| {
            let products = a
                .iter()
                .zip(b)
                .map(|(&a, &b)| i128::from(a) * i128::from(b));
            // For nonnegative counts, the sum is at most the product of the totals; bytes from
            // elsewhere may claim more.
            products.fold(0, i128::saturating_add)
        })
        .collect()
    }

    fn without_bias(&self, products: &[i128], norms: f64) -> f64 {
        let width = self.shape.width() as f64;
        let mean = products.iter().map(|&p| p as f64).sum::<f64>() / products.len() as f64;
        width.mul_add(mean, -norms) / (width - 1.0)
    }
}
