//! Files of records: NDJSON, CSV and TSV, read by `load` and written by `dump`.
//!
//! Invariant: reading what was written gives the same rows, byte for byte, in every
//! format and for any bytes. Text is written as text; a key or value that is not
//! UTF-8 is written in base64 under another name, so that a file is always valid
//! UTF-8 and says itself how to read it.
//!
//! The formats, for users, are written down in `FORMATS.md` beside this crate.
//!
//! Absent on purpose: versions. A version belongs to the cluster that gave it; a file
//! holds what was stored, not when.

mod bounded;
mod csv;
mod ndjson;
mod tsv;

use std::io::{self, Write};
use std::path::Path;

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use torc_record::{Key, MAX_VALUE_LEN, RecordError};

pub(crate) use ndjson::JsonRow;

/// Longest line that is read, bytes: the largest value with every byte escaped as
/// `\u0000`, and room for the rest.
const MAX_LINE_LEN: usize = 8 << 20;

/// Standard alphabet; written with padding, read with or without.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How a file holds records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// One JSON object a line.
    Ndjson,
    /// Comma-separated, quoted as in RFC 4180.
    Csv,
    /// Tab-separated, with backslash escapes.
    Tsv,
}

/// A record as a file holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// At least one byte.
    pub(crate) key: Bytes,
    /// May be empty.
    pub(crate) value: Bytes,
    /// Unix milliseconds from which on the key counts as absent.
    pub(crate) expires_at_ms: Option<u64>,
}

/// A row and the line it began on, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// Line of the file.
    pub(crate) line: u64,
    /// What it says.
    pub(crate) row: Row,
}

/// Why a file could not be read on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// A line that is not in the format.
    #[error("line {line}: {problem}")]
    Malformed {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: Problem,
    },
    /// A well-formed line whose key or value no cluster would take.
    #[error("line {line}: {problem}")]
    OutOfBounds {
        /// Counted from 1.
        line: u64,
        /// Which limit, and what was found.
        problem: String,
    },
    /// The file itself failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("longer than {MAX_LINE_LEN} bytes (or a quote is never closed)")]
    TooLong,
    #[error("not the JSON expected: {0}")]
    Json(String),
    #[error("not UTF-8")]
    NotUtf8,
    #[error("it has no `{0}`")]
    Missing(&'static str),
    #[error("it has both `{0}` and `{0}_base64`: give one")]
    Both(&'static str),
    #[error("`{0}_base64` is not base64")]
    Base64(&'static str),
    #[error("the value is null: give a string, a number, true, false, an object or an array")]
    NullValue,
    #[error("`expires_at_ms` is not a whole number of milliseconds since 1970")]
    Expiry,
    #[error("{found} fields, but the header names {expected}")]
    FieldCount { found: usize, expected: usize },
    #[error("`\\{0}` is no escape: use \\t, \\n, \\r, and \\\\ for a backslash")]
    Escape(String),
    #[error(
        "the header names no `key` and `value`: name the columns, or pass --no-header if the \
         file has no header"
    )]
    NoHeader,
    #[error(
        "the header names `{0}`: the columns are key, key_base64, value, value_base64 and \
         expires_at_ms, each at most once"
    )]
    UnknownColumn(String),
}

impl ReadError {
    /// The line at fault, and whether the lines behind it can be read all the same.
    pub(crate) const fn line(&self) -> Option<(u64, bool)> {
        match self {
            Self::OutOfBounds { line, .. } => Some((*line, true)),
            Self::Malformed { line, problem } => Some((*line, problem.leaves_the_next_row_whole())),
            Self::Io(_) => None,
        }
    }
}

impl Problem {
    /// Without a header, or inside a quote that was never closed, no row can be told.
    const fn leaves_the_next_row_whole(&self) -> bool {
        !matches!(
            self,
            Self::TooLong | Self::NoHeader | Self::UnknownColumn(_)
        )
    }
}

/// What a reader yields. Behind an error it may yield more, see [`ReadError::line`].
pub(crate) type Rows = Box<dyn Iterator<Item = Result<Numbered, ReadError>> + Send>;

impl Format {
    /// By the file's extension; `None` when it says nothing.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "ndjson" | "jsonl" | "json" => Some(Self::Ndjson),
            "csv" => Some(Self::Csv),
            "tsv" | "tab" => Some(Self::Tsv),
            _ => None,
        }
    }

    /// Reads rows, checking each against the limits of keys and values. `header`
    /// says whether a CSV or TSV file begins with the names of its columns.
    ///
    /// Memory is bounded by the longest line allowed, whatever the file holds.
    pub(crate) fn read(self, input: impl io::Read + Send + 'static, header: bool) -> Rows {
        match self {
            Self::Ndjson => Box::new(checked(ndjson::Reader::new(input))),
            Self::Csv => Box::new(checked(csv::Reader::new(input, header))),
            Self::Tsv => Box::new(checked(tsv::Reader::new(input, header))),
        }
    }

    /// Writes what comes before the first row.
    pub(crate) fn write_header(self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Ndjson => Ok(()),
            Self::Csv => writeln!(out, "{}", COLUMNS.join(",")),
            Self::Tsv => writeln!(out, "{}", COLUMNS.join("\t")),
        }
    }

    /// Writes one row.
    pub(crate) fn write_row(self, row: &Row, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Ndjson => ndjson::write(row, out),
            Self::Csv => csv::write(row, out),
            Self::Tsv => tsv::write(row, out),
        }
    }
}

/// Turns the first row that breaks a limit into an error.
fn checked(
    rows: impl Iterator<Item = Result<Numbered, ReadError>> + Send,
) -> impl Iterator<Item = Result<Numbered, ReadError>> + Send {
    rows.map(|numbered| {
        let numbered = numbered?;
        let out_of_bounds = |problem: String| ReadError::OutOfBounds {
            line: numbered.line,
            problem,
        };
        Key::new(numbered.row.key.clone()).map_err(|error| out_of_bounds(error.to_string()))?;
        let len = numbered.row.value.len();
        if len > MAX_VALUE_LEN {
            return Err(out_of_bounds(RecordError::ValueTooLong { len }.to_string()));
        }
        Ok(numbered)
    })
}

/// Columns of CSV and TSV, as `dump` writes them.
const COLUMNS: [&str; 5] = [
    "key",
    "value",
    "key_base64",
    "value_base64",
    "expires_at_ms",
];

/// Which cell of a line is what.
#[derive(Debug, Clone, Default)]
struct Columns {
    /// Position of each of [`COLUMNS`] in a line.
    places: [Option<usize>; COLUMNS.len()],
    width: usize,
}

impl Columns {
    /// Key and value, as in a file without a header.
    const fn bare() -> Self {
        Self {
            places: [Some(0), Some(1), None, None, None],
            width: 2,
        }
    }

    fn of_header<'a>(cells: impl Iterator<Item = &'a [u8]>) -> Result<Self, Problem> {
        let mut columns = Self::default();
        let mut unknown = None;
        for (place, cell) in cells.enumerate() {
            let name = String::from_utf8_lossy(cell).trim().to_owned();
            columns.width += 1;
            match COLUMNS.iter().position(|column| *column == name) {
                Some(column) if columns.places[column].is_none() => {
                    columns.places[column] = Some(place);
                }
                _ => unknown = unknown.or(Some(name)),
            }
        }
        let [key, value, key_base64, value_base64, _] = columns.places;
        if key.or(key_base64).is_none() || value.or(value_base64).is_none() {
            return Err(Problem::NoHeader);
        }
        match unknown {
            None => Ok(columns),
            Some(name) => Err(Problem::UnknownColumn(crate::text::shortened(
                name.as_bytes(),
                40,
            ))),
        }
    }

    /// A row from the cells of a line.
    fn row(&self, cells: &[Bytes]) -> Result<Row, Problem> {
        if cells.len() != self.width {
            return Err(Problem::FieldCount {
                found: cells.len(),
                expected: self.width,
            });
        }
        let cell = |column: usize| self.places[column].map(|place| cells[place].clone());
        let [key, value, key_base64, value_base64, expires] = [0, 1, 2, 3, 4].map(cell);
        let key = either("key", key, key_base64)?;
        Ok(Row {
            key: if key.is_empty() {
                return Err(Problem::Missing("key"));
            } else {
                key
            },
            value: either("value", value, value_base64)?,
            expires_at_ms: expires
                .filter(|cell| !cell.is_empty())
                .map(|cell| parse_expiry(&cell))
                .transpose()?,
        })
    }
}

fn either(
    name: &'static str,
    text: Option<Bytes>,
    base64: Option<Bytes>,
) -> Result<Bytes, Problem> {
    let text = text.unwrap_or_default();
    match base64.filter(|cell| !cell.is_empty()) {
        None => Ok(text),
        Some(_) if !text.is_empty() => Err(Problem::Both(name)),
        Some(cell) => decode_base64(name, &cell),
    }
}

fn decode_base64(name: &'static str, text: &[u8]) -> Result<Bytes, Problem> {
    let decoded = BASE64.decode(text).map_err(|_| Problem::Base64(name))?;
    Ok(Bytes::from(decoded))
}

fn parse_expiry(cell: &Bytes) -> Result<u64, Problem> {
    let text = std::str::from_utf8(cell).map_err(|_| Problem::Expiry)?;
    text.trim().parse().map_err(|_| Problem::Expiry)
}

/// Cells of a row in the order of [`COLUMNS`]. A key or value that is text goes into
/// its text column, any other into its base64 column.
fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let split = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), String::new()),
        Err(_) => (String::new(), BASE64.encode(bytes)),
    };
    let (key, key_base64) = split(&row.key);
    let (value, value_base64) = split(&row.value);
    let expires = row
        .expires_at_ms
        .map_or_else(String::new, |at| at.to_string());
    [key, value, key_base64, value_base64, expires]
}

#[cfg(test)]
mod tests;
