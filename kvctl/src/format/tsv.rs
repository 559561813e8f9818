//! Tab-separated values with escapes: `\t`, `\n`, `\r` and `\\` stand for a tab, a
//! line feed, a carriage return and a backslash, as in the copies that PostgreSQL and
//! ClickHouse write. Quotes mean nothing.

use std::borrow::Cow;
use std::io::{self, Write};

use super::reading::{Extent, Grammar, Lines, without_end};
use super::{Columns, Naming, Problem, Row, cells};

pub(super) fn write(row: &Row, out: &mut impl Write) -> io::Result<()> {
    for (index, cell) in cells(row).into_iter().enumerate() {
        if index > 0 {
            out.write_all(b"\t")?;
        }
        write_escaped(cell.as_bytes(), out)?;
    }
    out.write_all(b"\n")
}

fn write_escaped(cell: &[u8], out: &mut impl Write) -> io::Result<()> {
    let mut rest = cell;
    while let Some(place) = rest.iter().position(|byte| b"\t\n\r\\".contains(byte)) {
        out.write_all(&rest[..place])?;
        out.write_all(match rest[place] {
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            _ => b"\\\\",
        })?;
        rest = &rest[place + 1..];
    }
    out.write_all(rest)
}

fn unescaped(cell: &str) -> Result<Cow<'_, str>, Problem> {
    if !cell.contains(['\\', '\r']) {
        return Ok(Cow::Borrowed(cell));
    }
    let mut out = String::with_capacity(cell.len());
    let mut chars = cell.chars();
    while let Some(char) = chars.next() {
        out.push(match char {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('\\') => '\\',
                other => return Err(no_escape(other)),
            },
            '\r' => return Err(Problem::CarriageReturn),
            char => char,
        });
    }
    Ok(Cow::Owned(out))
}

fn no_escape(char: Option<char>) -> Problem {
    let shown = char.map_or_else(String::new, String::from);
    Problem::Escape(crate::text::escaped(shown.as_bytes()).into_owned())
}

/// Rows from TSV. Empty lines are skipped.
#[derive(Debug)]
pub(super) struct Tsv {
    lines: Lines,
    /// `None` until the header has been read.
    columns: Option<Columns>,
    naming: Naming,
}

impl Tsv {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            lines: Lines::default(),
            columns: matches!(naming, Naming::None).then(Columns::bare),
            naming,
        }
    }
}

impl Grammar for Tsv {
    fn extent(&mut self, bytes: &[u8], all: bool) -> Extent {
        self.lines.extent(bytes, all)
    }

    fn give_up(&mut self, _bytes: &[u8]) -> Extent {
        self.lines.give_up()
    }

    fn row(&mut self, record: &str) -> Result<Option<Row>, Problem> {
        let line = without_end(record);
        if line.is_empty() {
            return Ok(None);
        }
        let mut rest = line.split('\t');
        let cells: Result<Vec<_>, Problem> = rest
            .by_ref()
            .take(self.naming.most_cells())
            .map(unescaped)
            .collect();
        let cells = cells?;
        let count = cells.len() + rest.count();
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::of_header(&cells, count, &self.naming)?);
            return Ok(None);
        };
        columns.row(&cells, count).map(Some)
    }
}
