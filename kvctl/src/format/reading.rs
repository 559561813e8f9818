//! Reads records of an untrusted file, one after the other, in bounded memory.
//!
//! A [`Grammar`] finds the end of a record and its meaning; this module reads the
//! bytes, counts lines, and checks UTF-8 and the limits of keys and values.
//!
//! Invariant: the records and bad rows, in order, cover every byte of the file. Each
//! row is either understood in full or reported.

use std::fmt::Display;
use std::io::{self, Read};

use bytes::Bytes;
use torc_record::{Key, MAX_VALUE_LEN, RecordError};

use super::{BadRow, MAX_ROW_LEN, Numbered, Problem, ReadError, Row};

/// Bytes to read at a time.
const READ_LEN: usize = 1 << 16;
/// Some editors write this before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The length of the record at the start of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extent {
    /// The record continues beyond these bytes.
    More,
    /// The record has this many bytes, with its line end.
    Record(usize),
    /// This many bytes are malformed, for this reason.
    Bad(usize, Problem),
    /// The record is longer than [`MAX_ROW_LEN`].
    TooLong,
}

/// A format of records.
pub(super) trait Grammar {
    /// Finds the end of the record at the start of `bytes`. After [`Extent::More`], the
    /// caller repeats the call with more bytes of the same record. If `all` is set, the
    /// file ends with `bytes`, and [`Extent::More`] is not allowed.
    fn extent(&mut self, bytes: &[u8], all: bool) -> Extent;

    /// Called when the record exceeds [`MAX_ROW_LEN`]. Returns [`Extent::TooLong`], or
    /// the part of the bytes that is bad. The next call starts another record.
    fn give_up(&mut self, bytes: &[u8]) -> Extent;

    /// The row of the record found last; `None` for a header or a blank line.
    fn row(&mut self, record: &str) -> Result<Option<Row>, Problem>;
}

/// Reads rows by a grammar.
pub(super) struct Records<R, G> {
    input: R,
    grammar: G,
    /// Bytes read; those from `start` on are not parsed yet.
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
    /// The line of `start`, counted from 1; 0 before the first byte.
    line: u64,
}

impl<R: Read, G: Grammar> Records<R, G> {
    pub(super) fn new(input: R, grammar: G) -> Self {
        Self {
            input,
            grammar,
            buffer: Vec::new(),
            start: 0,
            ended: false,
            line: 0,
        }
    }

    fn front(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Reads once more.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let len = self.buffer.len();
        self.buffer.resize(len + READ_LEN, 0);
        let read = loop {
            match self.input.read(&mut self.buffer[len..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer
            .truncate(len + read.as_ref().copied().unwrap_or(0));
        self.ended = read? == 0;
        Ok(())
    }

    /// Skips a byte order mark, which only the first line may have.
    fn begin(&mut self) -> io::Result<()> {
        while self.front().len() < BYTE_ORDER_MARK.len() && !self.ended {
            self.fill()?;
        }
        if self.front().starts_with(BYTE_ORDER_MARK) {
            self.start += BYTE_ORDER_MARK.len();
        }
        self.line = 1;
        Ok(())
    }

    /// The extent of the next record; `None` at the end of the file.
    fn find(&mut self) -> io::Result<Option<Extent>> {
        loop {
            if self.front().is_empty() && self.ended {
                return Ok(None);
            }
            let front = self.buffer.get(self.start..).unwrap_or_default();
            match self.grammar.extent(front, self.ended) {
                Extent::More if front.len() > MAX_ROW_LEN => {
                    return Ok(Some(self.grammar.give_up(front)));
                }
                Extent::More => self.fill()?,
                found => return Ok(Some(found)),
            }
        }
    }

    fn next_row(&mut self) -> Result<Option<Numbered>, ReadError> {
        if self.line == 0 {
            self.begin()?;
        }
        while let Some(extent) = self.find()? {
            let line = self.line;
            let cut = extent == Extent::TooLong;
            let (len, problem) = match extent {
                Extent::Record(len) => (len, None),
                Extent::Bad(len, problem) => (len, Some(problem)),
                Extent::More | Extent::TooLong => (MAX_ROW_LEN, Some(Problem::TooLong)),
            };
            let bytes = &self.buffer[self.start..][..len];
            let lines = bytes.split(|byte| *byte == b'\n').count() as u64 - 1;
            let row = match problem {
                None => parse(&mut self.grammar, bytes),
                Some(problem) => Err(problem),
            };
            let bad = row.map_err(|problem| BadRow {
                line,
                last_line: line + lines.saturating_sub(u64::from(bytes.ends_with(b"\n"))),
                problem,
                bytes: Bytes::copy_from_slice(bytes),
            });
            self.start += len;
            self.line += lines;
            if cut {
                self.skip_line()?;
            }
            if let Some(row) = bad? {
                return Ok(Some(Numbered { line, row }));
            }
        }
        Ok(None)
    }

    /// Skips to the end of a line that is too long to be kept.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            if let Some(end) = self.front().iter().position(|byte| *byte == b'\n') {
                self.start += end + 1;
                self.line += 1;
                return Ok(());
            }
            self.start = self.buffer.len();
            if self.ended {
                return Ok(());
            }
            self.fill()?;
        }
    }
}

fn parse(grammar: &mut impl Grammar, record: &[u8]) -> Result<Option<Row>, Problem> {
    let record = std::str::from_utf8(record).map_err(|_| Problem::NotUtf8)?;
    let Some(row) = grammar.row(record)? else {
        return Ok(None);
    };
    let beyond = |error: &dyn Display| Problem::OutOfBounds(error.to_string());
    Key::new(row.key.clone()).map_err(|error| beyond(&error))?;
    let len = row.value.len();
    if len > MAX_VALUE_LEN {
        return Err(beyond(&RecordError::ValueTooLong { len }));
    }
    Ok(Some(row))
}

impl<R: Read, G: Grammar> Iterator for Records<R, G> {
    type Item = Result<Numbered, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

/// Finds lines, for grammars in which a line feed ends every record.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Bytes of the line scanned without finding a line feed.
    scanned: usize,
}

impl Lines {
    pub(super) fn extent(&mut self, bytes: &[u8], all: bool) -> Extent {
        let new = bytes.get(self.scanned..).unwrap_or_default();
        let end = new.iter().position(|byte| *byte == b'\n');
        let extent = match end {
            Some(end) => Extent::Record(self.scanned + end + 1),
            None if all => Extent::Record(bytes.len()),
            None => Extent::More,
        };
        self.scanned = match extent {
            Extent::More => bytes.len(),
            _ => 0,
        };
        extent
    }

    pub(super) fn give_up(&mut self) -> Extent {
        self.scanned = 0;
        Extent::TooLong
    }
}

/// A line without its line end, `\n` or `\r\n`.
pub(super) fn without_end(line: &str) -> &str {
    match line.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line),
        None => line,
    }
}
