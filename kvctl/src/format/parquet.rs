//! Rows of Parquet files: columns by name, a batch of rows at a time.
//!
//! Text and binary columns stay unchanged; numbers, booleans and timestamps become text. Another
//! type of column is an error of the row, and so is a null key or value.
//!
//! The library panics on some damaged files; we turn the panic into an error of the file.

mod columns;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader as _, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::{SchemaDescriptor, Type};
use serde_json::Value;

use self::columns::{Cell, Column, column, ended};
use super::columnar::{bad, calmly, chosen, invalid, number, row, short_number};
use super::json::object;
use super::{Chosen, ChosenValue, Naming, Numbered, Problem, ReadError, Row, Rows};

/// Rows whose columns are read at a time.
const READ_ROWS: usize = 1 << 10;
/// Rows share memory until they have this many bytes.
const SHARED_BYTES: usize = 64 << 10;

/// Reads the rows of a file. Returns also how many it says it has.
///
/// # Errors
/// The file is not Parquet, has a column of other formats without a choice of columns, or lacks the chosen columns.
pub(crate) fn rows(
    file: impl ChunkReader + 'static,
    naming: &Naming,
) -> Result<(Rows, u64), ReadError> {
    let (chosen, refused) = chosen(naming);
    let reader = calmly(|| Reader::open(file, chosen, refused))??;
    let metadata = reader.file.metadata().file_metadata();
    let count = u64::try_from(metadata.num_rows()).unwrap_or(0);
    let rows = Batches(Some(reader)).flat_map(|batch| {
        let (rows, error) = match batch {
            Ok(rows) => (rows, None),
            Err(error) => (Vec::new(), Some(Err(error))),
        };
        rows.into_iter().map(Ok).chain(error)
    });
    let rows = (1..).zip(rows).map(|(line, row)| {
        let row = row?.map_err(|problem| bad(line, problem))?;
        Ok(Numbered { line, row })
    });
    Ok((Box::new(rows), count))
}

/// Some rows that follow each other.
type Batch = Vec<Result<Row, Problem>>;

/// The batches of a file. An error is the last: the rest of the file is not trusted.
struct Batches<R: ChunkReader>(Option<Reader<R>>);

impl<R: ChunkReader + 'static> Iterator for Batches<R> {
    type Item = Result<Batch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.0.as_mut()?;
        let batch = calmly(|| reader.batch().map_err(failed));
        let batch = batch.and_then(|it| it).transpose();
        if !matches!(batch, Some(Ok(_))) {
            self.0 = None;
        }
        batch
    }
}

struct Reader<R: ChunkReader> {
    file: SerializedFileReader<R>,
    chosen: Arc<Chosen>,
    /// The places of the chosen columns, the key first.
    places: Vec<usize>,
    /// These columns of the current row group.
    columns: Vec<Box<dyn Column>>,
    next_group: usize,
    /// Rows of the group that were not read.
    unread: usize,
    /// Rows that were read and not taken.
    untaken: usize,
}

impl<R: ChunkReader + 'static> Reader<R> {
    fn open(file: R, chosen: Arc<Chosen>, refused: &[&'static str]) -> Result<Self, ReadError> {
        let file = SerializedFileReader::new(file).map_err(failed)?;
        let schema = file.metadata().file_metadata().schema_descr();
        let mut fields = schema.root_schema().get_fields().iter();
        if let Some(name) = fields.find_map(|field| refused.iter().find(|it| **it == field.name()))
        {
            return Err(bad(1, Problem::UnreadColumn(name)));
        }
        let places = places(schema, &chosen).map_err(|problem| bad(1, problem))?;
        Ok(Self {
            file,
            chosen,
            places,
            columns: Vec::new(),
            next_group: 0,
            unread: 0,
            untaken: 0,
        })
    }

    /// The next rows, at least one; `None` at the end.
    fn batch(&mut self) -> Result<Option<Batch>, ParquetError> {
        while self.untaken == 0 {
            if self.unread == 0 && !self.begin_group()? {
                return Ok(None);
            }
            let rows = self.unread.min(READ_ROWS);
            for column in &mut self.columns {
                column.read(rows)?;
            }
            self.unread -= rows;
            self.untaken = rows;
        }
        let (mut bytes, mut rows) = (Vec::with_capacity(SHARED_BYTES), Vec::new());
        while self.untaken > 0 && bytes.len() < SHARED_BYTES {
            let start = bytes.len();
            rows.push(match self.put(&mut bytes) {
                Ok(middle) => Ok((start, middle, bytes.len())),
                Err(Refused::Row(problem)) => Err(problem),
                Err(Refused::File(error)) => return Err(error),
            });
            self.columns.iter_mut().for_each(|column| column.advance());
            self.untaken -= 1;
        }
        let bytes = Bytes::from(bytes);
        let cut = |(start, middle, end)| row(bytes.slice(start..middle), bytes.slice(middle..end));
        let rows = rows.into_iter().map(|row| row.and_then(cut));
        Ok(Some(rows.collect()))
    }

    /// Begins the next row group, if there is one.
    fn begin_group(&mut self) -> Result<bool, ParquetError> {
        if self.next_group == self.file.num_row_groups() {
            return Ok(false);
        }
        let group = self.file.get_row_group(self.next_group)?;
        self.next_group += 1;
        let columns = self.places.iter();
        let columns = columns.map(|place| column(group.as_ref(), *place));
        self.columns = columns.collect::<Result<_, _>>()?;
        self.unread = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        Ok(true)
    }

    /// Appends the current row: key and value. Returns where the value begins.
    fn put(&self, to: &mut Vec<u8>) -> Result<usize, Refused> {
        let (key, values) = self.columns.split_first().ok_or_else(ended)?;
        text(&self.chosen.key, key.cell()?, to)?;
        let middle = to.len();
        match &self.chosen.value {
            ChosenValue::Empty => {}
            ChosenValue::Column(name) => {
                let value = values.first().ok_or_else(ended)?;
                text(name, value.cell()?, to)?;
            }
            ChosenValue::Json(names) => {
                let fields = names
                    .iter()
                    .zip(values)
                    .map(|(name, value)| Ok((name.as_str(), json(name, value.cell()?)?)));
                to.extend_from_slice(&object(&fields.collect::<Result<Vec<_>, Refused>>()?)?);
            }
        }
        Ok(middle)
    }
}

/// Why there is no row.
enum Refused {
    Row(Problem),
    File(ParquetError),
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Row(problem)
    }
}

impl From<ParquetError> for Refused {
    fn from(error: ParquetError) -> Self {
        Self::File(error)
    }
}

/// The places of the chosen columns, the key first.
fn places(schema: &SchemaDescriptor, chosen: &Chosen) -> Result<Vec<usize>, Problem> {
    let place = |name: &String| {
        let fields = schema.root_schema().get_fields().iter();
        let mut found = fields.filter(|it| it.name() == name);
        let field = match (found.next(), found.next()) {
            (Some(field), None) => field,
            (Some(_), Some(_)) => return Err(Problem::ColumnTwice(name.clone())),
            (None, _) => return Err(Problem::NoColumn(name.clone())),
        };
        if let Some(found) = unread(field) {
            let (column, found) = (name.clone(), found.to_owned());
            return Err(Problem::ColumnType { column, found });
        }
        // Columns within groups have places, too.
        let mut columns = schema.columns().iter();
        let place = columns.position(|it| it.path().parts() == std::slice::from_ref(name));
        place.ok_or_else(|| Problem::NoColumn(name.clone()))
    };
    chosen.names().into_iter().map(place).collect()
}

/// The name of a type that [`json`] does not read.
fn unread(field: &Type) -> Option<&'static str> {
    if field.is_group() {
        return Some("list, map or group");
    }
    let info = field.get_basic_info();
    if info.has_repetition() && info.repetition() == Repetition::REPEATED {
        return Some("list");
    }
    match (info.converted_type(), info.logical_type_ref()) {
        (ConvertedType::DECIMAL, _) | (_, Some(LogicalType::Decimal { .. })) => Some("decimal"),
        (_, Some(LogicalType::Float16)) => Some("16-bit float"),
        _ => None,
    }
}

/// Appends a value as the bytes of a key or value.
fn text(column: &str, cell: Cell<'_>, to: &mut Vec<u8>) -> Result<(), Problem> {
    match cell {
        Cell::Bytes(bytes) => to.extend_from_slice(bytes),
        Cell::Null => return Err(Problem::NullColumn(column.to_owned())),
        cell @ Cell::Field(_) => {
            to.extend_from_slice(json(column, cell)?.to_string().as_bytes());
        }
    }
    Ok(())
}

/// A value as JSON.
fn json(column: &str, cell: Cell<'_>) -> Result<Value, Problem> {
    let field = match cell {
        Cell::Null => return Ok(Value::Null),
        Cell::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| Problem::NotUtf8)?;
            return Ok(Value::from(text));
        }
        Cell::Field(field) => field,
    };
    Ok(match field {
        Field::Bool(value) => Value::from(value),
        Field::Byte(value) => Value::from(value),
        Field::Short(value) => Value::from(value),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => Value::from(value),
        Field::Long(value)
        | Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => Value::from(value),
        Field::UByte(value) => Value::from(value),
        Field::UShort(value) => Value::from(value),
        Field::UInt(value) => Value::from(value),
        Field::ULong(value) => Value::from(value),
        Field::Float(value) => short_number(column, value)?,
        Field::Double(value) => number(column, value)?,
        _ => {
            let (column, found) = (column.to_owned(), "a nested one".to_owned());
            return Err(Problem::ColumnType { column, found });
        }
    })
}

fn failed(error: ParquetError) -> ReadError {
    match error {
        // Not the content, but reading it.
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => ReadError::Io(*error),
            Err(error) => invalid(ParquetError::External(error)),
        },
        error => invalid(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::io::{Seek as _, Write as _};

    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// Two row groups of URLs with a size, null if the size is `None`.
    pub(crate) fn file(rows: &[(&str, Option<i64>)]) -> File {
        let schema = "message urls { required binary url (UTF8); optional int64 size; required binary raw; }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = tempfile::tempfile().unwrap();
        let mut writer =
            SerializedFileWriter::new(file.try_clone().unwrap(), schema, Arc::default()).unwrap();
        for rows in rows.chunks(rows.len().div_ceil(2).max(1)) {
            let mut group = writer.next_row_group().unwrap();
            let urls: Vec<ByteArray> = rows.iter().map(|(url, _)| ByteArray::from(*url)).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column
                .typed::<ByteArrayType>()
                .write_batch(&urls, None, None)
                .unwrap();
            column.close().unwrap();
            let sizes: Vec<i64> = rows.iter().filter_map(|(_, size)| *size).collect();
            let there: Vec<i16> = rows
                .iter()
                .map(|(_, size)| i16::from(size.is_some()))
                .collect();
            let mut column = group.next_column().unwrap().unwrap();
            column
                .typed::<Int64Type>()
                .write_batch(&sizes, Some(&there), None)
                .unwrap();
            column.close().unwrap();
            let raw = vec![ByteArray::from(vec![0xff]); rows.len()];
            let mut column = group.next_column().unwrap().unwrap();
            column
                .typed::<ByteArrayType>()
                .write_batch(&raw, None, None)
                .unwrap();
            column.close().unwrap();
            group.close().unwrap();
        }
        writer.close().unwrap();
        file
    }

    fn read(file: File, value: ChosenValue) -> Result<Vec<(Bytes, Bytes)>, String> {
        let key = "url".to_owned();
        let naming = Naming::Chosen(Arc::new(Chosen { key, value }));
        let (rows, _) = rows(file, &naming).map_err(|error| error.to_string())?;
        let row = |row: Result<Numbered, ReadError>| {
            let row = row.map_err(|error| error.to_string())?.row;
            Ok((row.key, row.value))
        };
        rows.map(row).collect()
    }

    fn column(name: &str) -> ChosenValue {
        ChosenValue::Column(name.to_owned())
    }

    #[test]
    fn columns_are_keys_and_values_over_row_groups() {
        let rows: Vec<(String, Option<i64>)> = (0..1_000)
            .map(|number| (format!("u{number}"), Some(number)))
            .collect();
        let rows: Vec<_> = rows
            .iter()
            .map(|(url, size)| (url.as_str(), *size))
            .collect();
        let found = read(file(&rows), column("size")).unwrap();
        assert_eq!(found.len(), 1_000);
        for ((key, value), (url, size)) in found.iter().zip(&rows) {
            assert_eq!(key, url);
            assert_eq!(value, &size.unwrap().to_string());
        }
        let raw = read(file(&rows[..3]), column("raw")).unwrap();
        assert_eq!(raw[2].1, &b"\xff"[..]);
        let both = ChosenValue::Json(vec!["size".to_owned(), "url".to_owned()]);
        let objects = read(file(&[("a", Some(7)), ("b", None)]), both).unwrap();
        assert_eq!(objects[0].1, "{\"size\":7,\"url\":\"a\"}");
        assert_eq!(objects[1].1, "{\"size\":null,\"url\":\"b\"}");
    }

    #[test]
    fn rows_after_a_null_keep_their_own_values() {
        let keys: Vec<String> = (0..2 * READ_ROWS).map(|row| format!("u{row}")).collect();
        let size = |row: i64| (row % 3 > 0).then_some(row);
        let rows = (0..).zip(&keys);
        let given: Vec<_> = rows.map(|(row, key)| (key.as_str(), size(row))).collect();
        let naming = Naming::Chosen(Arc::new(Chosen {
            key: "url".to_owned(),
            value: column("size"),
        }));
        let (rows, _) = super::rows(file(&given), &naming).unwrap();
        let mut seen = 0;
        for (line, (row, (key, size))) in (1..).zip(rows.zip(&given)) {
            seen += 1;
            match (row, size) {
                (Ok(Numbered { line: at, row }), Some(size)) => {
                    let value = Bytes::from(size.to_string());
                    assert_eq!((at, &row.key[..], row.value), (line, key.as_bytes(), value));
                }
                (Err(ReadError::Bad(bad)), None) => assert_eq!(bad.line, line),
                (row, size) => panic!("{row:?} of {size:?}"),
            }
        }
        assert_eq!(seen, given.len());
    }

    #[test]
    fn what_cannot_be_taken_is_named() {
        let one = || file(&[("a", Some(1)), ("b", None)]);
        let null = read(one(), column("size")).unwrap_err();
        assert!(
            null.contains("line 2") && null.contains("`size` is null"),
            "{null}"
        );
        let missing = read(one(), column("title")).unwrap_err();
        assert!(missing.contains("no column `title`"), "{missing}");
        let empty = read(file(&[("", None)]), ChosenValue::Empty).unwrap_err();
        assert!(empty.contains("line 1"), "{empty}");
        let json = ChosenValue::Json(vec!["raw".to_owned()]);
        assert!(read(one(), json).unwrap_err().contains("not UTF-8"));
        let mut other = tempfile::tempfile().unwrap();
        other.write_all(b"key,value\na,b\n").unwrap();
        other.rewind().unwrap();
        assert!(read(other, ChosenValue::Empty).is_err());
    }

    #[test]
    fn columns_are_refused_by_the_schema_even_without_rows() {
        let refused = |value| read(file(&[]), value).unwrap_err();
        let missing = refused(column("title"));
        assert!(missing.contains("no column `title`"), "{missing}");
        assert_eq!(read(file(&[]), column("size")).unwrap(), []);
        let schema = "message urls {
            required binary url (UTF8);
            optional group tags (LIST) { repeated group list { optional binary element (UTF8); } }
            optional int64 price (DECIMAL(10, 2));
            repeated int64 sizes;
        }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        for (name, says) in [
            ("tags", "`tags`, list, map or group,"),
            ("price", "`price`, decimal,"),
            ("sizes", "`sizes`, list,"),
        ] {
            let file = tempfile::tempfile().unwrap();
            let to = file.try_clone().unwrap();
            let writer = SerializedFileWriter::new(to, Arc::clone(&schema), Arc::default());
            writer.unwrap().close().unwrap();
            let error = read(file, column(name)).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn no_damage_makes_the_reader_panic() {
        let mut good = Vec::new();
        let mut written = file(&[("https://example.org/", Some(1)), ("b", None)]);
        written.rewind().unwrap();
        io::Read::read_to_end(&mut written, &mut good).unwrap();
        for at in 0..good.len() {
            let mut bad = tempfile::tempfile().unwrap();
            let mut bytes = good.clone();
            bytes[at] ^= 0x55;
            bad.write_all(&bytes).unwrap();
            let naming = Naming::Chosen(Arc::new(Chosen {
                key: "url".to_owned(),
                value: ChosenValue::Empty,
            }));
            if let Ok((rows, _)) = rows(bad, &naming) {
                rows.take(10).for_each(drop);
            }
        }
    }
}
