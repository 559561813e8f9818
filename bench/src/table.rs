//! Aligned columns of text.

use std::fmt;
use std::ops::Range;

/// Rows under a header. Numbers are right-aligned.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    numbers: Range<usize>,
}

impl Table {
    /// A table with right-aligned columns `numbers`.
    pub(crate) fn new(header: Vec<String>, numbers: Range<usize>) -> Self {
        Self {
            rows: vec![header],
            numbers,
        }
    }

    /// Adds a row, which has as many cells as the header.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let cell = if self.numbers.contains(&column) {
                format!("{cell:>width$}  ")
            } else {
                format!("{cell:<width$}  ")
            };
            line.push_str(&cell);
        }
        line.truncate(line.trim_end().len());
        line
    }
}

impl fmt::Display for Table {
    /// Separates lines by line feeds and trims trailing blanks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(|column| self.width(column)).collect();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            f.write_str(&self.line(row, &widths))?;
        }
        Ok(())
    }
}
