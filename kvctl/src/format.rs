//! Files of records: NDJSON, CSV and TSV, read by `load` and written by `dump`.
//!
//! Invariant: writing rows and reading them back gives the same rows, byte for byte, in
//! every format. Text is written as text; a key or value that is not UTF-8 is written
//! in base64 under another name. So a file is always valid UTF-8 and describes its own
//! encoding. The reader does not guess: a malformed row is a [`BadRow`].
//!
//! `FORMATS.md` beside this crate describes the formats for users.
//!
//! Absent on purpose: versions. A version has a meaning only in the cluster that
//! assigned it.

#[cfg(feature = "arrow")]
pub(crate) mod arrow;
#[cfg(any(feature = "parquet", feature = "arrow"))]
mod columnar;
mod csv;
mod json;
mod naming;
mod ndjson;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
mod reading;
mod tsv;

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use self::csv::Csv;
use self::naming::Places;
use self::ndjson::Ndjson;
use self::reading::Records;
use self::tsv::Tsv;
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use torc_objects::ObjectError;

pub(crate) use naming::{Chosen, ChosenValue, Naming};
pub(crate) use ndjson::JsonRow;

/// Longest row that is read, bytes: the largest value with every byte escaped as
/// `\u0000`, and room for the rest.
const MAX_ROW_LEN: usize = 8 << 20;

/// Standard alphabet; written with padding, read with or without.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How a file holds records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// One JSON object per line.
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

/// A row and its first line, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// Line of the file.
    pub(crate) line: u64,
    /// The row.
    pub(crate) row: Row,
}

/// Why a row could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// A row that is malformed or beyond the limits.
    #[error(transparent)]
    Bad(#[from] BadRow),
    /// The file itself failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
    /// A record of a backup could not be read.
    #[error(transparent)]
    Backup(Box<torc_backup::BackupError>),
    /// A bad row could not be set aside.
    #[error("cannot write to {path}: {source}")]
    Aside {
        /// The file for bad rows.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

impl ReadError {
    /// The failure of the object store behind it.
    pub(crate) fn of_object(&self) -> Option<&ObjectError> {
        match self {
            Self::Io(error) => error.get_ref()?.downcast_ref(),
            _ => None,
        }
    }
}

/// A row that cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(crate) struct BadRow {
    /// Its first line, counted from 1.
    pub(crate) line: u64,
    /// Its last line.
    pub(crate) last_line: u64,
    /// What is wrong with it.
    pub(crate) problem: Problem,
    /// The bytes of the row, with the line end; the first 8 MiB of a longer row.
    pub(crate) bytes: Bytes,
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("the row is longer than {MAX_ROW_LEN} bytes")]
    TooLong,
    #[error("the quote that opens here is never closed")]
    OpenQuote,
    #[error(
        "a quote inside an unquoted cell: put the cell in quotes and write \
         this quote twice"
    )]
    BareQuote,
    #[error("text after a closing quote: inside quotes, write a quote twice")]
    BehindQuote,
    #[error("a carriage return without a line feed: quote the cell, or write \\r in TSV")]
    CarriageReturn,
    #[error("a JSON array: write one object per line, for example with `jq -c '.[]'`")]
    Array,
    #[error("unexpected JSON: {0}")]
    Json(String),
    #[error("not UTF-8: pass such bytes in `key_base64` or `value_base64`")]
    NotUtf8,
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("`{0}` is empty: every row needs a key")]
    EmptyKey(String),
    #[error("both `{0}` and `{0}_base64` are set: use one")]
    Both(&'static str),
    #[error("`{0}_base64` is not base64")]
    Base64(&'static str),
    #[error("the value is null: use a string, a number, true, false, an object or an array")]
    NullValue,
    #[error("`expires_at_ms` is not a whole number of milliseconds since 1970")]
    Expiry,
    #[error("{found} cells instead of {expected}")]
    CellCount { found: usize, expected: usize },
    #[error("unknown escape `\\{0}`: use \\t, \\n, \\r, or \\\\ for a backslash")]
    Escape(String),
    /// Beyond the limits of keys and values.
    #[error("{0}")]
    OutOfBounds(String),
    #[error(
        "the header lacks `key` or `value`: name the columns, or pass --no-header if the \
         file has no header"
    )]
    NoHeader,
    #[cfg(any(feature = "parquet", feature = "arrow"))]
    #[error("`{0}` is null: every row needs a value")]
    NullColumn(String),
    #[cfg(any(feature = "parquet", feature = "arrow"))]
    #[error("`{0}` is infinite or not a number")]
    NotFinite(String),
    #[cfg(any(feature = "parquet", feature = "arrow"))]
    #[error(
        "the column `{0}` is not read from Parquet and Arrow: choose the columns with --key and --value"
    )]
    UnreadColumn(&'static str),
    #[cfg(any(feature = "parquet", feature = "arrow"))]
    #[error(
        "the type of `{column}`, {found}, is not supported: use text, binary, a number, a boolean or a time"
    )]
    ColumnType { column: String, found: String },
    #[error("no column `{0}`")]
    NoColumn(String),
    #[error("the header names `{0}` twice")]
    ColumnTwice(String),
    #[error(
        "the header names `{0}`: the columns are key, key_base64, value, value_base64 and \
         expires_at_ms, each at most once"
    )]
    UnknownColumn(String),
}

impl Problem {
    /// Whether the following rows are still readable; false without a header.
    pub(crate) const fn is_of_one_row(&self) -> bool {
        !matches!(
            self,
            Self::NoHeader | Self::UnknownColumn(_) | Self::NoColumn(_) | Self::ColumnTwice(_)
        )
    }

    /// Whether the row is well-formed but beyond the limits of keys and values.
    pub(crate) const fn is_of_limits(&self) -> bool {
        matches!(self, Self::OutOfBounds(_))
    }
}

/// What a reader yields. It continues after a bad row, see [`Problem::is_of_one_row`].
pub(crate) type Rows = Box<dyn Iterator<Item = Result<Numbered, ReadError>> + Send>;

impl Format {
    /// By the file's extension; `None` if it is unknown.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "ndjson" | "jsonl" | "json" => Some(Self::Ndjson),
            "csv" => Some(Self::Csv),
            "tsv" | "tab" => Some(Self::Tsv),
            _ => None,
        }
    }

    /// Reads rows, checking each against the limits of keys and values. `naming` maps
    /// their columns.
    ///
    /// The longest allowed row bounds the memory, whatever the file holds.
    pub(crate) fn read(self, input: impl io::Read + Send + 'static, naming: Naming) -> Rows {
        match self {
            Self::Ndjson => Box::new(Records::new(input, Ndjson::new(&naming))),
            Self::Csv => Box::new(Records::new(input, Csv::new(naming))),
            Self::Tsv => Box::new(Records::new(input, Tsv::new(naming))),
        }
    }

    /// Writes the header of a file, if the format has one.
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

/// Columns of CSV and TSV, as `dump` writes them.
const COLUMNS: [&str; 5] = [
    "key",
    "value",
    "key_base64",
    "value_base64",
    "expires_at_ms",
];

/// The meaning of each cell of a line.
#[derive(Debug, Clone, Default)]
struct Columns {
    /// Position of each of [`COLUMNS`] in a line.
    places: [Option<usize>; COLUMNS.len()],
    /// Instead of `places`, if the columns have other names.
    chosen: Option<Places>,
    width: usize,
}

impl Columns {
    /// Key and value, as in a file without a header.
    const fn bare() -> Self {
        Self {
            places: [Some(0), Some(1), None, None, None],
            chosen: None,
            width: 2,
        }
    }

    /// The columns of a header of `count` cells.
    fn of_header(cells: &[Cow<'_, str>], count: usize, naming: &Naming) -> Result<Self, Problem> {
        if let Naming::Chosen(chosen) = naming {
            return Ok(Self {
                chosen: Some(chosen.places(cells)?),
                width: count,
                ..Self::default()
            });
        }
        let mut columns = Self {
            width: cells.len(),
            ..Self::default()
        };
        let mut unknown = None;
        for (place, name) in cells.iter().enumerate() {
            match COLUMNS.iter().position(|column| column == name) {
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

    /// A row from the first cells of a line that has `count` of them.
    fn row(&self, cells: &[Cow<'_, str>], count: usize) -> Result<Row, Problem> {
        if count != self.width {
            return Err(Problem::CellCount {
                found: count,
                expected: self.width,
            });
        }
        if let Some(places) = &self.chosen {
            return places.row(cells);
        }
        let cell = |column: usize| {
            let place = self.places.get(column).copied().flatten();
            place
                .and_then(|place| cells.get(place))
                .map_or("", |cell| cell)
        };
        let [key, value, key_base64, value_base64, expires] = [0, 1, 2, 3, 4].map(cell);
        let key = either("key", key, key_base64)?;
        if key.is_empty() {
            return Err(Problem::Missing("key"));
        }
        Ok(Row {
            key,
            value: either("value", value, value_base64)?,
            expires_at_ms: parse_expiry(expires)?,
        })
    }
}

fn either(name: &'static str, text: &str, base64: &str) -> Result<Bytes, Problem> {
    match (text, base64) {
        (text, "") => Ok(Bytes::copy_from_slice(text.as_bytes())),
        ("", base64) => decode_base64(name, base64),
        _ => Err(Problem::Both(name)),
    }
}

fn decode_base64(name: &'static str, text: &str) -> Result<Bytes, Problem> {
    let decoded = BASE64.decode(text).map_err(|_| Problem::Base64(name))?;
    Ok(Bytes::from(decoded))
}

fn parse_expiry(cell: &str) -> Result<Option<u64>, Problem> {
    match cell {
        "" => Ok(None),
        // `parse` would accept a sign.
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map(Some).map_err(|_| Problem::Expiry)
        }
        _ => Err(Problem::Expiry),
    }
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
