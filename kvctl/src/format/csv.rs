//! Comma-separated values, quoted exactly as in RFC 4180; lines end in `\n` or `\r\n`.
//!
//! The reader does not guess at rows with wrong quotes: neither their values nor their
//! ends are certain. Such a bad row ends with the line on which the error shows. If a
//! quote is never closed, its first line is the bad row.

use std::borrow::Cow;
use std::io::{self, Write};

use super::reading::{Extent, Grammar, without_end};
use super::{Columns, Naming, Problem, Row, cells};

pub(super) fn write(row: &Row, out: &mut impl Write) -> io::Result<()> {
    for (index, cell) in cells(row).into_iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        if cell.contains([',', '"', '\r', '\n']) {
            write!(out, "\"{}\"", cell.replace('"', "\"\""))?;
        } else {
            out.write_all(cell.as_bytes())?;
        }
    }
    out.write_all(b"\n")
}

/// The place of a cell in its record, without the quotes around it.
#[derive(Debug, Clone, Copy)]
struct Cell {
    start: usize,
    end: usize,
    /// It holds quotes, each written twice.
    quotes: bool,
}

impl Cell {
    fn text(self, record: &str) -> Cow<'_, str> {
        let text = record.get(self.start..self.end).unwrap_or_default();
        if self.quotes {
            Cow::Owned(text.replace("\"\"", "\""))
        } else {
            Cow::Borrowed(text)
        }
    }
}

/// The state of a record's scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum At {
    /// The first byte of a cell.
    #[default]
    Cell,
    /// Inside a cell that began without a quote.
    Plain,
    /// Inside quotes.
    Quoted,
    /// After a quote inside quotes: it ends the cell unless it is doubled.
    Quote,
    /// After a carriage return outside of quotes.
    Return,
    /// The record is bad; looking for the end of the line.
    Bad(Problem),
}

/// A scan of one record, which may arrive in parts.
#[derive(Debug, Default)]
struct Scan {
    at: At,
    /// Bytes scanned.
    len: usize,
    cell: usize,
    quotes: bool,
    /// At most the limit; further cells are only counted.
    cells: Vec<Cell>,
    most_cells: usize,
    count: usize,
}

impl Scan {
    /// Scans new bytes.
    fn advance(&mut self, bytes: &[u8]) -> Option<Extent> {
        while let Some(&byte) = bytes.get(self.len) {
            let next = match (&self.at, byte) {
                (At::Quoted, b'"') => At::Quote,
                (At::Cell, b'"') => {
                    self.cell = self.len + 1;
                    At::Quoted
                }
                (At::Quote, b'"') => {
                    self.quotes = true;
                    At::Quoted
                }
                (At::Plain, b'"') => At::Bad(Problem::BareQuote),
                (At::Cell | At::Plain | At::Quote, b',' | b'\r' | b'\n') => {
                    self.end_cell();
                    match byte {
                        b',' => At::Cell,
                        b'\r' => At::Return,
                        _ => return Some(Extent::Record(self.len + 1)),
                    }
                }
                (At::Return, b'\n') => return Some(Extent::Record(self.len + 1)),
                (At::Bad(problem), b'\n') => {
                    return Some(Extent::Bad(self.len + 1, problem.clone()));
                }
                (At::Return, _) => At::Bad(Problem::CarriageReturn),
                (At::Quote, _) => At::Bad(Problem::BehindQuote),
                (At::Cell | At::Plain, _) => self.skip(bytes, b",\"\r\n", At::Plain),
                (At::Quoted, _) => self.skip(bytes, b"\"", At::Quoted),
                (At::Bad(problem), _) => {
                    let problem = problem.clone();
                    self.skip(bytes, b"\n", At::Bad(problem))
                }
            };
            self.at = next;
            self.len += 1;
        }
        None
    }

    /// Skips to the last byte before one of `until`.
    fn skip(&mut self, bytes: &[u8], until: &[u8], at: At) -> At {
        let rest = bytes.get(self.len + 1..).unwrap_or_default();
        let len = rest.iter().position(|byte| until.contains(byte));
        self.len += len.unwrap_or(rest.len());
        at
    }

    fn end_cell(&mut self) {
        let end = self.len - usize::from(self.at == At::Quote);
        if self.cells.len() < self.most_cells {
            self.cells.push(Cell {
                start: self.cell,
                end,
                quotes: self.quotes,
            });
        }
        self.count += 1;
        self.cell = self.len + 1;
        self.quotes = false;
    }

    /// Ends the scan at the end of the file.
    fn end(&mut self, bytes: &[u8]) -> Extent {
        match &self.at {
            At::Cell | At::Plain | At::Quote => {
                self.end_cell();
                Extent::Record(self.len)
            }
            At::Return => Extent::Bad(self.len, Problem::CarriageReturn),
            At::Bad(problem) => Extent::Bad(self.len, problem.clone()),
            At::Quoted => Extent::Bad(first_line(bytes), Problem::OpenQuote),
        }
    }
}

/// Length of the first line, its end included.
fn first_line(bytes: &[u8]) -> usize {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.map_or(bytes.len(), |end| end + 1)
}

/// Rows from CSV. Empty lines are skipped.
#[derive(Debug)]
pub(super) struct Csv {
    /// `None` until the header has been read.
    columns: Option<Columns>,
    naming: Naming,
    scan: Scan,
    /// The scan has found its record.
    found: bool,
}

impl Csv {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            columns: matches!(naming, Naming::None).then(Columns::bare),
            scan: Scan {
                most_cells: naming.most_cells(),
                ..Scan::default()
            },
            naming,
            found: false,
        }
    }
}

impl Grammar for Csv {
    fn extent(&mut self, bytes: &[u8], all: bool) -> Extent {
        if std::mem::take(&mut self.found) {
            let mut cells = std::mem::take(&mut self.scan.cells);
            cells.clear();
            self.scan = Scan {
                cells,
                most_cells: self.naming.most_cells(),
                ..Scan::default()
            };
        }
        let extent = match self.scan.advance(bytes) {
            None if all => self.scan.end(bytes),
            extent => extent.unwrap_or(Extent::More),
        };
        self.found = extent != Extent::More;
        extent
    }

    fn give_up(&mut self, bytes: &[u8]) -> Extent {
        self.found = true;
        match first_line(bytes) {
            len if self.scan.at == At::Quoted && len < bytes.len() => {
                Extent::Bad(len, Problem::OpenQuote)
            }
            _ => Extent::TooLong,
        }
    }

    fn row(&mut self, record: &str) -> Result<Option<Row>, Problem> {
        if without_end(record).is_empty() {
            return Ok(None);
        }
        let cells = self.scan.cells.iter().map(|cell| cell.text(record));
        let cells: Vec<_> = cells.collect();
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::of_header(&cells, self.scan.count, &self.naming)?);
            return Ok(None);
        };
        columns.row(&cells, self.scan.count).map(Some)
    }
}
