//! The second exercise: finds a matrix in a matrix by rolling hashes of its rows; time over size.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use torc_sketch::SeedStream;
use torc_sketch::lecture::{Matrix, find_in_matrix};
use torc_sketch::rolling::Modulus;

use super::super::claim::{Claim, Says};
use super::Sizes;
use torc_plot::{Axis, Plot};

/// Rows and columns of the pattern.
const PATTERN: usize = 32;

/// Compares at every position, cell by cell, until a cell differs.
fn naive(text: &Matrix<'_>, pattern: &Matrix<'_>) -> Vec<(usize, usize)> {
    let (tops, lefts) = (
        text.height() - pattern.height() + 1,
        text.width() - pattern.width() + 1,
    );
    let places = (0..tops).flat_map(|top| (0..lefts).map(move |left| (top, left)));
    places
        .filter(|(top, left)| text.has(pattern, *top, *left))
        .collect()
}

/// Nanoseconds per cell, the minimum of three runs.
fn fastest<T>(cells: usize, mut run: impl FnMut() -> T) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        black_box(run());
        best = best.min(started.elapsed().as_secs_f64() * 1e9 / cells as f64);
    }
    best
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new(
        "Lecture, exercise 2: a matrix is found in time linear in the cells, whatever the pattern",
    );
    let mut plot = Plot::new(
        "Lecture: a pattern of 32 x 32 in a matrix, cells all alike but one a row",
        Axis::log("cells of the matrix"),
        Axis::log("ns a cell"),
    );
    let modulus = Modulus::random(sizes.seed);
    let mut seeds = SeedStream::new(sizes.seed);
    let (first_power, largest) = if sizes.quick { (6, 7) } else { (8, 11) };
    let mut lines: [Vec<(f64, f64)>; 2] = Default::default();
    let mut smallest = None;
    for power in first_power..=largest {
        let side = 1_usize << power;
        // Nearly all zeros, so that a comparison proceeds far before it fails.
        let mut cells = vec![b'0'; side * side];
        cells
            .chunks_exact_mut(side)
            .for_each(|row| row[seeds.below(side as u64) as usize] = b'1');
        let mut pattern = vec![b'0'; PATTERN * PATTERN];
        pattern[PATTERN * PATTERN - 1] = b'2';
        // The pattern occurs once.
        let (top, left) = (side / 3, side / 4);
        for row in 0..PATTERN {
            let from = (top + row) * side + left;
            cells[from..from + PATTERN]
                .copy_from_slice(&pattern[row * PATTERN..(row + 1) * PATTERN]);
        }
        let (text, pattern) = (Matrix::new(&cells, side)?, Matrix::new(&pattern, PATTERN)?);
        ensure!(
            find_in_matrix(&modulus, &text, &pattern) == [(top, left)],
            "not found"
        );
        ensure!(
            naive(&text, &pattern) == [(top, left)],
            "not found by comparison"
        );
        let by_hash = fastest(cells.len(), || find_in_matrix(&modulus, &text, &pattern));
        let compared = fastest(cells.len(), || naive(&text, &pattern));
        let first = *smallest.get_or_insert(by_hash);
        let case = format!("{side} x {side}");
        claim.row(&case, ("by hash", "ns/cell"), Says::Nothing, by_hash);
        claim.row(
            &case,
            ("by hash, over that of the smallest", "ratio"),
            Says::Is(1.0),
            by_hash / first,
        );
        claim.row(&case, ("by comparison", "ns/cell"), Says::Nothing, compared);
        for (line, ns) in lines.iter_mut().zip([by_hash, compared]) {
            line.push((cells.len() as f64, ns));
        }
    }
    let [by_hash, compared] = lines;
    let says = by_hash
        .iter()
        .map(|(cells, _)| (*cells, by_hash[0].1))
        .collect();
    plot.dashed("linear time", says);
    plot.measured("by hash", by_hash);
    plot.measured("by comparison", compared);
    claim.plot(&plot);
    claim.why("Of 256 x 256 cells 77 % are places for the pattern, of 2048 x 2048 97 %; prefixes take 8 bytes a cell, and leave the cache from 512 x 512 on. The work a cell is the same.");
    claim.why("Comparison is a library's memcmp row by row, up to 32 rows a place where nearly all rows agree; on random cells it would end at the first, and be faster than any hash.");
    claim.why("Times are of the machine at that moment; trust the ratios.");
    Ok(claim)
}
