//! Tab-separated values with escapes: `\t`, `\n`, `\r` and `\\` stand for a tab, a
//! line feed, a carriage return and a backslash, as in the copies that PostgreSQL and
//! ClickHouse write. Quotes mean nothing.

use std::io::{self, Read, Write};

use bytes::Bytes;

use super::bounded::Lines;
use super::{Columns, Numbered, Problem, ReadError, Row, cells};

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

fn unescaped(cell: &[u8]) -> Result<Bytes, Problem> {
    if !cell.contains(&b'\\') {
        return Ok(Bytes::copy_from_slice(cell));
    }
    let mut out = Vec::with_capacity(cell.len());
    let mut bytes = cell.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next() {
                Some(b't') => b'\t',
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b'\\') => b'\\',
                other => return Err(no_escape(other)),
            },
            byte => byte,
        });
    }
    Ok(Bytes::from(out))
}

fn no_escape(byte: Option<&u8>) -> Problem {
    let shown = byte.map_or_else(String::new, |byte| {
        crate::text::escaped(std::slice::from_ref(byte)).into_owned()
    });
    Problem::Escape(shown)
}

/// Reads rows from TSV. Empty lines are skipped.
pub(super) struct Reader<R> {
    lines: Lines<R>,
    /// None until the header has been read.
    columns: Option<Columns>,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R, header: bool) -> Self {
        Self {
            lines: Lines::new(input),
            columns: (!header).then(Columns::bare),
        }
    }

    fn next_row(&mut self) -> Result<Option<Numbered>, ReadError> {
        while let Some((line, text)) = self.lines.next()? {
            if text.is_empty() {
                continue;
            }
            let malformed = |problem| ReadError::Malformed { line, problem };
            let cells = text.split(|byte| *byte == b'\t');
            let Some(columns) = &self.columns else {
                self.columns = Some(Columns::of_header(cells).map_err(malformed)?);
                continue;
            };
            let cells: Result<Vec<Bytes>, Problem> = cells.map(unescaped).collect();
            let row = cells
                .and_then(|cells| columns.row(&cells))
                .map_err(malformed)?;
            return Ok(Some(Numbered { line, row }));
        }
        Ok(None)
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Numbered, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}
