//! The lecture's second exercise: where does a small matrix occur in a large one?
//!
//! ```text
//! cargo run --release -p torc-sketch --example matrix_search -- [TEXT PATTERN]
//! cargo run --release -p torc-sketch --example matrix_search -- --judge  < "two matrices"
//! ```
//!
//! Both are files of lines that are equally long, and each line is a row. Without files, looks for a pattern that was put into a made-up matrix.
//! Prints row and column of each occurrence, from 0.
//!
//! As a judge feeds it: with `--judge` the standard input has the text and then the pattern, each as its number of rows and of columns
//! and then its cells, in any number of pieces; only the occurrences are printed.

#![allow(clippy::cast_possible_truncation, reason = "small numbers and figures")]

use std::io::{Read as _, Write as _, stdin, stdout};

use torc_sketch::SeedStream;
use torc_sketch::lecture::{Matrix, find_in_matrix};
use torc_sketch::rolling::Modulus;

/// Cells and the length of a row.
type Cells = (Vec<u8>, usize);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let is_judged = files.first().is_some_and(|file| file == "--judge");
    let (text, pattern) = match files.as_slice() {
        [] => made_up(),
        [_] if is_judged => judged()?,
        [text, pattern] => (read(text)?, read(pattern)?),
        _ => return Err("two files are needed: the text and the pattern".into()),
    };
    let text = Matrix::new(&text.0, text.1)?;
    let pattern = Matrix::new(&pattern.0, pattern.1)?;
    // Any seed finds the same: matches are compared. A service draws it at random.
    let found = find_in_matrix(&Modulus::random(1), &text, &pattern);
    let mut out = stdout().lock();
    for (row, column) in &found {
        writeln!(out, "{row} {column}")?;
    }
    if !is_judged {
        writeln!(out, "{} occurrences", found.len())?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program, not the crate: it reads the files it is told to"
)]
fn read(file: &str) -> Result<Cells, Box<dyn std::error::Error>> {
    let bytes = std::fs::read(file)?;
    let lines: Vec<&[u8]> = bytes
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .collect();
    let width = lines.first().map_or(0, |line| line.len());
    if lines.iter().any(|line| line.len() != width) {
        return Err(format!("{file}: its lines are not equally long").into());
    }
    Ok((lines.concat(), width))
}

/// Both matrices of the standard input.
fn judged() -> Result<(Cells, Cells), Box<dyn std::error::Error>> {
    let mut input = Vec::new();
    stdin().lock().read_to_end(&mut input)?;
    let words = input.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    Ok((matrix(&mut words)?, matrix(&mut words)?))
}

/// Rows, columns, and cells until there are as many as that.
fn matrix<'a>(
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<Cells, Box<dyn std::error::Error>> {
    let mut number = || -> Result<usize, Box<dyn std::error::Error>> {
        let word = words
            .next()
            .ok_or("a matrix begins with its rows and columns")?;
        Ok(std::str::from_utf8(word)?.parse()?)
    };
    let (rows, columns) = (number()?, number()?);
    let expected = rows.checked_mul(columns).ok_or("too many cells")?;
    let mut cells = Vec::new();
    while cells.len() < expected {
        cells.extend_from_slice(words.next().ok_or("the matrix ends too early")?);
    }
    if cells.len() > expected {
        return Err(format!("{} cells in {rows} rows of {columns}", cells.len()).into());
    }
    Ok((cells, columns))
}

/// 1,000 × 1,000 cells of 0 and 1, with 20 × 20 of them as the pattern.
fn made_up() -> (Cells, Cells) {
    let mut random = SeedStream::new(1);
    let text: Vec<u8> = (0..1_000_000)
        .map(|_| b'0' + random.below(2) as u8)
        .collect();
    let rows = text.chunks_exact(1000).skip(123).take(20);
    let pattern = rows.flat_map(|row| &row[456..476]).copied().collect();
    ((text, 1000), (pattern, 20))
}
