//! Aligned columns of text.

use std::fmt;

/// Alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a header. Its text has no trailing blanks, and no line feed after the
/// last line.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Drops cells beyond the columns; missing cells are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    fn widths(&self) -> Vec<usize> {
        let width_of = |column: usize, title: &str| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(title.chars().count())
        };
        let titles = self.columns.iter().enumerate();
        titles
            .map(|(column, (title, _))| width_of(column, title))
            .collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for ((cell, width), (_, align)) in cells.zip(&widths).zip(&self.columns) {
                let cell = match align {
                    Align::Left => format!("{cell:<width$}  "),
                    Align::Right => format!("{cell:>width$}  "),
                };
                line.push_str(&cell);
            }
            line.truncate(line.trim_end().len());
            line
        };
        f.write_str(&line(&mut self.columns.iter().map(|(title, _)| *title)))?;
        for row in &self.rows {
            write!(f, "\n{}", line(&mut row.iter().map(String::as_str)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_characters_and_lines_have_no_trailing_blanks() {
        let mut table = Table::new(&[
            ("node", Align::Right),
            ("zone", Align::Left),
            ("", Align::Left),
        ]);
        table.row(["1".into(), "\u{e9}t\u{e9}".into(), "x".into()]);
        table.row(["1,024".into(), "b".into()]);
        assert_eq!(
            table.to_string(),
            " node  zone\n    1  \u{e9}t\u{e9}   x\n1,024  b"
        );
    }
}
