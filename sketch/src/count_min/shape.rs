//! The width and depth of a count-min sketch, from its error bound.

/// Limit on the rows.
pub const MAX_DEPTH: u8 = 32;
/// Limit on the counters per row: 2^26.
pub const MAX_WIDTH_LOG2: u8 = 26;

/// The number of rows, and of counters per row, a power of two.
///
/// As in the lecture, a width of m = 2/ε makes one row exceed the error εN with a probability of at
/// most 1/2 (Markov), and a depth of T = log2(1/δ) independent rows makes all of them exceed it
/// with at most δ. The width is rounded up to a power of two, so that a row's hash is a shift; the
/// error shrinks accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    width_log2: u8,
    depth: u8,
}

/// Why there is no such sketch. Nothing was created; allow a larger error.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// ε or δ is not between 0 and 1, or is too small.
    #[error(
        "error {epsilon} with failure probability {delta}: both lie between 0 and 1, from 2^-25 and 2^-32 on"
    )]
    Error {
        /// The requested ε.
        epsilon: f64,
        /// The requested δ.
        delta: f64,
    },
    /// The number of rows or of counters per row is out of range.
    #[error(
        "{depth} rows of 2^{width_log2} counters: there are 1 to {MAX_DEPTH} rows of 2 to 2^{MAX_WIDTH_LOG2}"
    )]
    Size {
        /// The requested width.
        width_log2: u8,
        /// The requested depth.
        depth: u8,
    },
}

impl Shape {
    /// The default shape for hot keys.
    pub(crate) const OF_HOT_KEYS: Self = Self {
        width_log2: 12,
        depth: 5,
    };

    /// The shape for comparing sets of keys: ±0.6 % of their size.
    pub(crate) const OF_KEY_SETS: Self = Self {
        width_log2: 16,
        depth: 5,
    };

    /// The smallest shape whose estimates exceed the truth by more than `epsilon` N with a
    /// probability of at most `delta`.
    ///
    /// # Errors
    /// [`ShapeError::Error`] unless both are strictly between 0 and 1, and at least 2^-25 and
    /// 2^-32.
    pub fn for_error(epsilon: f64, delta: f64) -> Result<Self, ShapeError> {
        let error = ShapeError::Error { epsilon, delta };
        let is_share = |share: f64| share > 0.0 && share < 1.0;
        if !is_share(epsilon) || !is_share(delta) {
            return Err(error);
        }
        let width_log2 = (1..=MAX_WIDTH_LOG2).find(|&log2| Self::epsilon_of(log2) <= epsilon);
        let depth = (1..=MAX_DEPTH).find(|&depth| Self::delta_of(depth) <= delta);
        match (width_log2, depth) {
            (Some(width_log2), Some(depth)) => Ok(Self { width_log2, depth }),
            _ => Err(error),
        }
    }

    /// `depth` rows of 2^`width_log2` counters.
    ///
    /// # Errors
    /// [`ShapeError::Size`] beyond [`MAX_DEPTH`] and [`MAX_WIDTH_LOG2`], or for none.
    pub const fn new(width_log2: u8, depth: u8) -> Result<Self, ShapeError> {
        if width_log2 == 0 || width_log2 > MAX_WIDTH_LOG2 || depth == 0 || depth > MAX_DEPTH {
            return Err(ShapeError::Size { width_log2, depth });
        }
        Ok(Self { width_log2, depth })
    }

    fn epsilon_of(width_log2: u8) -> f64 {
        2.0 / f64::from(1_u32 << width_log2)
    }

    fn delta_of(depth: u8) -> f64 {
        0.5_f64.powi(depth.into())
    }

    /// Counters per row.
    #[must_use]
    pub const fn width(&self) -> usize {
        1 << self.width_log2
    }

    /// The logarithm of [`Shape::width`].
    #[must_use]
    pub const fn width_log2(&self) -> u8 {
        self.width_log2
    }

    /// Rows.
    #[must_use]
    pub const fn depth(&self) -> u8 {
        self.depth
    }

    /// Counters of all rows.
    #[must_use]
    pub const fn counters(&self) -> usize {
        self.width() * self.depth as usize
    }

    /// Bytes of the counters in memory.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.counters() * size_of::<i64>()
    }

    /// ε: the fraction of N by which an estimate may exceed the truth; 2 / width.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        Self::epsilon_of(self.width_log2)
    }

    /// δ: the probability that an estimate exceeds the truth by more; 2^-depth.
    #[must_use]
    pub fn delta(&self) -> f64 {
        Self::delta_of(self.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_the_smallest_that_keeps_the_error() {
        for (epsilon, delta, width, depth) in [
            (0.001, 0.01, 2048, 7),
            (0.5, 0.5, 4, 1),
            (2.0 / 4096.0, 1.0 / 16.0, 4096, 4),
        ] {
            let shape = Shape::for_error(epsilon, delta).unwrap();
            assert_eq!(
                (shape.width(), shape.depth()),
                (width, depth),
                "{epsilon} {delta}"
            );
            assert!(shape.epsilon() <= epsilon && shape.delta() <= delta);
            assert_eq!(shape.bytes(), 8 * width * usize::from(depth));
        }
    }

    #[test]
    fn impossible_errors_and_sizes_are_refused() {
        for (epsilon, delta) in [
            (0.0, 0.1),
            (0.1, 0.0),
            (1.0, 0.1),
            (f64::NAN, 0.1),
            (1e-12, 0.1),
            (0.1, 1e-12),
            (-1.0, 0.5),
        ] {
            assert!(
                Shape::for_error(epsilon, delta).is_err(),
                "{epsilon} {delta}"
            );
        }
        for (width_log2, depth) in [(0, 1), (27, 1), (1, 0), (1, 33), (255, 255)] {
            assert!(
                Shape::new(width_log2, depth).is_err(),
                "{width_log2} {depth}"
            );
        }
    }
}
