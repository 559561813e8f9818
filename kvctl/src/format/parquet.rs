//! Rows of Parquet files: columns by name, a row group at a time.
//!
//! Text and binary columns stay unchanged; numbers, booleans and timestamps become text. Another
//! type of column is an error of the row, and so is a null key or value.
//!
//! The library panics on some damaged files; we turn the panic into an error of the file.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader as _, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row as ParquetRow};
use parquet::schema::types::Type;
use serde_json::Value;

use super::columnar::{bad, calmly, chosen, invalid, number, short_number};
use super::json::object;
use super::{Chosen, ChosenValue, Naming, Numbered, Problem, ReadError, Row, Rows};

/// Reads the rows of a file. Returns also how many it says it has.
///
/// # Errors
/// The file is not Parquet, has a column of other formats without a choice of columns, or lacks the chosen columns.
pub(crate) fn rows(
    file: impl ChunkReader + 'static,
    naming: &Naming,
) -> Result<(Rows, u64), ReadError> {
    let (chosen, refused) = chosen(naming);
    let (mut rows, count) = calmly(|| open(file, &chosen, refused))??;
    let rows = std::iter::from_fn(move || match calmly(|| rows.next()) {
        Ok(row) => row.map(|row| row.map_err(failed)),
        // The rest of the file is not trusted.
        Err(panicked) => Some(Err(panicked)),
    });
    let rows = (1..).zip(rows).map(move |(line, row)| {
        let row = row?;
        let row = row_of(&row, &chosen).map_err(|problem| bad(line, problem))?;
        Ok(Numbered { line, row })
    });
    Ok((Box::new(rows), count))
}

fn open(
    file: impl ChunkReader + 'static,
    chosen: &Chosen,
    refused: &[&'static str],
) -> Result<(RowIter<'static>, u64), ReadError> {
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let metadata = reader.metadata().file_metadata();
    let mut fields = metadata.schema().get_fields().iter();
    if let Some(name) = fields.find_map(|field| refused.iter().find(|it| **it == field.name())) {
        return Err(bad(1, Problem::UnreadColumn(name)));
    }
    let columns = projection(metadata.schema(), chosen).map_err(|problem| bad(1, problem))?;
    let count = u64::try_from(metadata.num_rows()).unwrap_or(0);
    let rows = RowIter::from_file_into(Box::new(reader));
    let rows = rows.project(Some(columns)).map_err(failed)?;
    Ok((rows, count))
}

/// The chosen columns of a schema.
fn projection(schema: &Type, chosen: &Chosen) -> Result<Type, Problem> {
    let names = chosen.names();
    for name in &names {
        let mut found = schema.get_fields().iter().filter(|it| it.name() == **name);
        let field = match (found.next(), found.next()) {
            (Some(field), None) => field,
            (Some(_), Some(_)) => return Err(Problem::ColumnTwice((*name).clone())),
            (None, _) => return Err(Problem::NoColumn((*name).clone())),
        };
        if let Some(found) = unread(field) {
            let (column, found) = ((*name).clone(), found.to_owned());
            return Err(Problem::ColumnType { column, found });
        }
    }
    let fields = schema.get_fields().iter();
    let fields = fields.filter(|field| names.iter().any(|name| *name == field.name()));
    let fields = fields.map(Arc::clone).collect();
    let columns = Type::group_type_builder(schema.name()).with_fields(fields);
    columns
        .build()
        .map_err(|error| Problem::OutOfBounds(error.to_string()))
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

fn row_of(row: &ParquetRow, chosen: &Chosen) -> Result<Row, Problem> {
    let field = |name: &String| {
        let mut columns = row.get_column_iter();
        let found = columns.find(|(column, _)| *column == name);
        let (_, field) = found.ok_or_else(|| Problem::NoColumn(name.clone()))?;
        Ok(field)
    };
    let key = text(&chosen.key, field(&chosen.key)?)?;
    let value = match &chosen.value {
        ChosenValue::Empty => Bytes::new(),
        ChosenValue::Column(name) => text(name, field(name)?)?,
        ChosenValue::Json(names) => {
            let fields = names
                .iter()
                .map(|name| Ok((name.as_str(), json(name, field(name)?)?)));
            object(&fields.collect::<Result<Vec<_>, Problem>>()?)?
        }
    };
    super::columnar::row(key, value)
}

/// A field as the bytes of a key or value.
fn text(column: &str, field: &Field) -> Result<Bytes, Problem> {
    match field {
        Field::Str(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        Field::Bytes(bytes) => Ok(Bytes::copy_from_slice(bytes.data())),
        Field::Null => Err(Problem::NullColumn(column.to_owned())),
        other => Ok(json(column, other)?.to_string().into()),
    }
}

/// A field as JSON.
fn json(column: &str, field: &Field) -> Result<Value, Problem> {
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(value) => Value::from(*value),
        Field::Byte(value) => Value::from(*value),
        Field::Short(value) => Value::from(*value),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => Value::from(*value),
        Field::Long(value)
        | Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => Value::from(*value),
        Field::UByte(value) => Value::from(*value),
        Field::UShort(value) => Value::from(*value),
        Field::UInt(value) => Value::from(*value),
        Field::ULong(value) => Value::from(*value),
        Field::Float(value) => short_number(column, *value)?,
        Field::Double(value) => number(column, *value)?,
        Field::Str(text) => Value::from(text.as_str()),
        Field::Bytes(bytes) => Value::from(bytes.as_utf8().map_err(|_| Problem::NotUtf8)?),
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
