//! Finds a rectangle of bytes in a larger one.
//!
//! The lecture's second exercise. The hash of a rectangle is that of its concatenated rows: cell
//! (r, c) of p × q has the weight 256^(q (p-1-r) + (q-1-c)). That is a polynomial in two bases, x =
//! 256^q down and y = 256 across, so the hashes of all prefixes `M[..i, ..j]` give that of any p ×
//! q rectangle by inclusion and exclusion, in O(1). The bound on collisions is that of strings of p
//! q bytes.
//!
//! x depends on q: the prefixes work for rectangles of one width and any height.

use crate::rolling::Modulus;

/// Bytes in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix<'a> {
    cells: &'a [u8],
    width: usize,
}

/// These cells do not form a rectangle. Nothing was created; rows must have the same length, at
/// least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{cells} bytes are no rows of {width} bytes each, at least one")]
pub struct MatrixError {
    /// Number of bytes given.
    pub cells: usize,
    /// Row length given.
    pub width: usize,
}

impl<'a> Matrix<'a> {
    /// `cells` in rows of `width` bytes.
    ///
    /// # Errors
    /// [`MatrixError`] if there are none, or if the last row is shorter.
    pub const fn new(cells: &'a [u8], width: usize) -> Result<Self, MatrixError> {
        if cells.is_empty() || width == 0 || !cells.len().is_multiple_of(width) {
            return Err(MatrixError {
                cells: cells.len(),
                width,
            });
        }
        Ok(Self { cells, width })
    }

    /// Bytes per row.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.cells.len() / self.width
    }

    fn rows(&self) -> impl Iterator<Item = &'a [u8]> {
        self.cells.chunks_exact(self.width)
    }

    /// Whether this matrix contains `part` with its first cell at (`top`, `left`).
    #[must_use]
    pub fn has(&self, part: &Self, top: usize, left: usize) -> bool {
        let fits = left <= self.width.saturating_sub(part.width) && part.width <= self.width;
        let rows = self.rows().skip(top).take(part.height());
        let same = |(row, part): (&[u8], &[u8])| row[left..left + part.len()] == *part;
        fits && part.height() <= self.height().saturating_sub(top)
            && rows.zip(part.rows()).all(same)
    }
}

/// The hashes of all rectangles of one width in a matrix: 8 bytes per cell.
#[derive(Debug, Clone)]
pub struct MatrixHashes {
    modulus: Modulus,
    width: usize,
    /// Bytes per row of the matrix, plus one.
    stride: usize,
    /// The hash of `M[..i, ..j]` at index i · stride + j.
    prefixes: Vec<u64>,
}

impl MatrixHashes {
    /// Hashes `matrix` for rectangles of `width` bytes per row. About 10 ns per cell.
    #[must_use]
    pub fn new(modulus: &Modulus, matrix: &Matrix<'_>, width: usize) -> Self {
        let stride = matrix.width + 1;
        let mut prefixes = Vec::with_capacity(stride * (matrix.height() + 1));
        prefixes.resize(stride, 0);
        let down = modulus.shift(width as u64);
        for row in matrix.rows() {
            let above = prefixes.len() - stride;
            let mut of_row = 0;
            prefixes.push(0);
            for (column, &cell) in row.iter().enumerate() {
                of_row = modulus.push(of_row, cell);
                let of_above = modulus.multiply(prefixes[above + column + 1], down);
                prefixes.push(modulus.add(of_above, of_row));
            }
        }
        Self {
            modulus: *modulus,
            width,
            stride,
            prefixes,
        }
    }

    /// The hash of the rectangle of `height` rows with its first cell at (`top`, `left`): that of
    /// its concatenated rows. `None` if it extends beyond the matrix. About 20 ns.
    #[must_use]
    pub fn rectangle(&self, top: usize, left: usize, height: usize) -> Option<u64> {
        let down = self
            .modulus
            .shift((self.width as u64).checked_mul(height as u64)?);
        let across = self.modulus.shift(self.width as u64);
        self.weighted(top, left, height, down, across)
    }

    fn weighted(
        &self,
        top: usize,
        left: usize,
        height: usize,
        down: u64,
        across: u64,
    ) -> Option<u64> {
        let (bottom, right) = (top.checked_add(height)?, left.checked_add(self.width)?);
        if right >= self.stride {
            return None;
        }
        let prefix = |row: usize, column| self.prefixes.get(row.checked_mul(self.stride)? + column);
        let m = &self.modulus;
        let until_right = m.subtract(
            *prefix(bottom, right)?,
            m.multiply(*prefix(top, right)?, down),
        );
        let until_left = m.subtract(
            *prefix(bottom, left)?,
            m.multiply(*prefix(top, left)?, down),
        );
        Some(m.subtract(until_right, m.multiply(until_left, across)))
    }
}

/// The occurrences of `pattern` in `text`: (row, column) of the first cell, row by row. Compares
/// every match cell by cell, so there are no false positives. About 25 ns per cell of the text,
/// plus one comparison per match; 8 bytes of memory per cell.
#[must_use]
pub fn find_in_matrix(
    modulus: &Modulus,
    text: &Matrix<'_>,
    pattern: &Matrix<'_>,
) -> Vec<(usize, usize)> {
    let (Some(last_top), Some(last_left)) = (
        text.height().checked_sub(pattern.height()),
        text.width.checked_sub(pattern.width),
    ) else {
        return Vec::new();
    };
    let hashes = MatrixHashes::new(modulus, text, pattern.width);
    let wanted = modulus.hash(pattern.cells);
    let (down, across) = (
        modulus.shift(pattern.cells.len() as u64),
        modulus.shift(pattern.width as u64),
    );
    let places = (0..=last_top).flat_map(|top| (0..=last_left).map(move |left| (top, left)));
    let is_match = |&(top, left): &(usize, usize)| {
        let hash = hashes.weighted(top, left, pattern.height(), down, across);
        hash == Some(wanted) && text.has(pattern, top, left)
    };
    places.filter(is_match).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_of_unequal_length_are_no_matrix() {
        for (cells, width) in [(&b"abc"[..], 2), (b"abc", 0), (b"", 1), (b"", 0)] {
            assert!(Matrix::new(cells, width).is_err());
        }
        let matrix = Matrix::new(b"abcdef", 2).unwrap();
        assert_eq!((matrix.width(), matrix.height()), (2, 3));
    }

    #[test]
    fn a_rectangle_hashes_as_its_rows_one_after_the_other() {
        let modulus = Modulus::random(1);
        let matrix = Matrix::new(b"abcdefghijkl", 4).unwrap();
        let hashes = MatrixHashes::new(&modulus, &matrix, 2);
        assert_eq!(hashes.rectangle(1, 1, 2), Some(modulus.hash(b"fgjk")));
        assert_eq!(hashes.rectangle(0, 0, 3), Some(modulus.hash(b"abefij")));
        assert_eq!(hashes.rectangle(0, 3, 1), None, "beyond the right");
        assert_eq!(hashes.rectangle(2, 0, 2), None, "beyond the bottom");
        assert_eq!(hashes.rectangle(usize::MAX, 0, 2), None);
        assert_eq!(hashes.rectangle(0, 0, usize::MAX), None);
    }

    #[test]
    fn a_pattern_larger_than_the_text_occurs_nowhere() {
        let modulus = Modulus::random(1);
        let text = Matrix::new(b"aaaa", 2).unwrap();
        for (cells, width) in [(&b"aaa"[..], 3), (b"aaa", 1)] {
            let pattern = Matrix::new(cells, width).unwrap();
            assert_eq!(find_in_matrix(&modulus, &text, &pattern), []);
            assert!(!text.has(&pattern, 0, 0));
        }
        assert_eq!(find_in_matrix(&modulus, &text, &text), [(0, 0)]);
    }

    proptest! {
        #[test]
        fn exactly_the_occurrences_are_found(
            cells in prop::collection::vec(0_u8..2, 1..120), width in 1_usize..12,
            part in prop::collection::vec(0_u8..2, 1..7), part_width in 1_usize..4,
        ) {
            let rows = (cells.len() / width).max(1);
            let cells = [cells.clone(), vec![0; width]].concat()[..rows * width].to_vec();
            let part_rows = (part.len() / part_width).max(1);
            let part = [part, vec![0; part_width]].concat()[..part_rows * part_width].to_vec();
            let text = Matrix::new(&cells, width).unwrap();
            let pattern = Matrix::new(&part, part_width).unwrap();
            let mut expected = Vec::new();
            for top in 0..rows {
                for left in 0..width {
                    let fits = top + part_rows <= rows && left + part_width <= width;
                    let same = |r: usize, c: usize| cells[(top + r) * width + left + c] == part[r * part_width + c];
                    if fits && (0..part_rows).all(|r| (0..part_width).all(|c| same(r, c))) {
                        expected.push((top, left));
                    }
                }
            }
            prop_assert_eq!(find_in_matrix(&Modulus::random(2), &text, &pattern), expected);
        }
    }
}
