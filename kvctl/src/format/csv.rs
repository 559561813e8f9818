//! Comma-separated values, quoted as in RFC 4180; line ends `\n` or `\r\n`.

use std::io::{self, Read, Write};

use bytes::Bytes;

use super::bounded::{Leash, Leashed};
use super::{Columns, Numbered, Problem, ReadError, Row, cells};

pub(super) fn write(row: &Row, out: &mut impl Write) -> io::Result<()> {
    let mut writer = csv::WriterBuilder::new().from_writer(out);
    writer.write_record(cells(row)).map_err(io_error)?;
    writer.flush()
}

fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Reads rows from CSV. Empty lines are skipped.
pub(super) struct Reader<R> {
    input: csv::Reader<Leashed<R>>,
    leash: Leash,
    /// None until the header has been read.
    columns: Option<Columns>,
    record: csv::ByteRecord,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R, header: bool) -> Self {
        let (leashed, leash) = Leashed::new(input);
        Self {
            input: csv::ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .from_reader(leashed),
            leash,
            columns: (!header).then(Columns::bare),
            record: csv::ByteRecord::new(),
        }
    }

    /// Reads one record into `self.record`; the line it began on, or `None` at the end.
    fn read_record(&mut self) -> Result<Option<u64>, ReadError> {
        let began = self.input.position().line();
        let more = self.input.read_byte_record(&mut self.record);
        if !more.map_err(|error| read_error(error, began))? {
            return Ok(None);
        }
        self.leash.move_to(self.input.position().byte());
        Ok(Some(
            self.record.position().map_or(began, csv::Position::line),
        ))
    }

    fn next_row(&mut self) -> Result<Option<Numbered>, ReadError> {
        let malformed = |line, problem| ReadError::Malformed { line, problem };
        if self.columns.is_none() {
            let Some(line) = self.read_record()? else {
                return Ok(None);
            };
            let columns = Columns::of_header(self.record.iter());
            self.columns = Some(columns.map_err(|problem| malformed(line, problem))?);
        }
        let Some(line) = self.read_record()? else {
            return Ok(None);
        };
        let cells: Vec<Bytes> = self.record.iter().map(Bytes::copy_from_slice).collect();
        let columns = self.columns.as_ref();
        let row = columns.map_or(Err(Problem::NoHeader), |columns| columns.row(&cells));
        match row {
            Ok(row) => Ok(Some(Numbered { line, row })),
            Err(problem) => Err(malformed(line, problem)),
        }
    }
}

fn read_error(error: csv::Error, line: u64) -> ReadError {
    match io_error(error) {
        error if error.kind() == io::ErrorKind::FileTooLarge => ReadError::Malformed {
            line,
            problem: Problem::TooLong,
        },
        error => ReadError::Io(error),
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Numbered, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}
