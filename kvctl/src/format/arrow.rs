//! Rows of Arrow IPC, a record batch at a time: streams, and files, which are a stream between two marks.
//!
//! Text and binary columns stay unchanged; numbers, booleans, dates and timestamps become text. A
//! column of another type is refused before the first row, and a null key or value is an error of its
//! row.
//!
//! Memory is bounded: by [`MOST_BODY`] for the bytes of a batch, and again for what they are
//! decompressed to. Lengths that a file claims cost no memory before the bytes are there. Dictionaries
//! are skipped.

use std::collections::HashMap;
use std::io::{self, Chain, Cursor, Read};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::{Message, MessageHeader, root_as_message};
use arrow_schema::{DataType, Schema, TimeUnit};
use bytes::Bytes;
use serde_json::Value;

use super::columnar::{bad, calmly, chosen, invalid, number, row, short_number};
use super::json::object;
use super::{Chosen, ChosenValue, Naming, Numbered, Problem, ReadError, Row, Rows};

/// At both ends of a file; zeros follow the first one.
const MARK: &[u8] = b"ARROW1";
/// Most zeros after it, in eights.
const MOST_PADDING: usize = 64;
/// Before the length of each message, except in files of old releases.
const CONTINUES: [u8; 4] = [0xff; 4];
/// Longest description of a message, and longest body, bytes.
const MOST_METADATA: u64 = 16 << 20;
const MOST_BODY: u64 = 1 << 30;
/// Bytes to make room for at a time.
const STEP: u64 = 16 << 20;

/// Reads the rows of a file or stream.
///
/// # Errors
/// It is not Arrow IPC, lacks a chosen column or has it twice, or a column has a type that is not read.
pub(crate) fn rows(input: impl Read + Send + 'static, naming: &Naming) -> Result<Rows, ReadError> {
    let (chosen, refused) = chosen(naming);
    let mut messages = Messages::of(input)?;
    let first = messages.next()?;
    let (metadata, _) = first.ok_or_else(|| invalid("it has no schema"))?;
    let schema = calmly(|| schema(&metadata))??;
    let columns = columns(&schema, &chosen, refused).map_err(|problem| bad(1, problem))?;
    let batches = Batches {
        messages,
        schema: Arc::new(schema),
        columns,
    };
    let batches = batches.map(move |batch| {
        let chosen = Arc::clone(&chosen);
        let (batch, error) = match batch {
            Ok(batch) => (Some(batch), None),
            Err(error) => (None, Some(Err(error))),
        };
        let rows = batch.into_iter().flat_map(move |batch| {
            let chosen = Arc::clone(&chosen);
            (0..batch.num_rows()).map(move |at| Ok(row_of(&batch, at, &chosen)))
        });
        rows.chain(error)
    });
    Ok(Box::new((1..).zip(batches.flatten()).map(|(line, row)| {
        let row = row?.map_err(|problem| bad(line, problem))?;
        Ok(Numbered { line, row })
    })))
}

fn message(metadata: &[u8]) -> Result<Message<'_>, ReadError> {
    root_as_message(metadata).map_err(|_| other())
}

fn other() -> ReadError {
    invalid("this is not Arrow IPC")
}

fn schema(metadata: &[u8]) -> Result<Schema, ReadError> {
    let message = message(metadata)?;
    let schema = message.header_as_schema();
    let schema = schema.ok_or_else(|| invalid("it does not begin with a schema"))?;
    if !schema.endianness().equals_to_target_endianness() {
        return Err(invalid("its byte order differs from this machine's"));
    }
    arrow_ipc::convert::try_fb_to_schema(schema).map_err(invalid)
}

/// The places of the chosen columns, the key first.
fn columns(
    schema: &Schema,
    chosen: &Chosen,
    refused: &[&'static str],
) -> Result<Vec<usize>, Problem> {
    let fields = schema.fields();
    if let Some(name) = refused.iter().find(|name| schema.index_of(name).is_ok()) {
        return Err(Problem::UnreadColumn(name));
    }
    let place = |name: &String| {
        let mut found = (0..).zip(fields).filter(|(_, field)| field.name() == name);
        let (place, field) = match (found.next(), found.next()) {
            (Some(found), None) => found,
            (Some(_), Some(_)) => return Err(Problem::ColumnTwice(name.clone())),
            (None, _) => return Err(Problem::NoColumn(name.clone())),
        };
        if !is_read(field.data_type()) {
            return Err(other_type(name, field.data_type()));
        }
        Ok(place)
    };
    chosen.names().into_iter().map(place).collect()
}

fn other_type(column: &str, found: &DataType) -> Problem {
    Problem::ColumnType {
        column: column.to_owned(),
        found: crate::text::shortened(found.to_string().as_bytes(), 80),
    }
}

/// Whether [`json`] reads a type.
const fn is_read(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(
        data_type,
        T::Utf8
            | T::LargeUtf8
            | T::Utf8View
            | T::Binary
            | T::LargeBinary
            | T::BinaryView
            | T::FixedSizeBinary(_)
            | T::Boolean
            | T::Int8
            | T::Int16
            | T::Int32
            | T::Int64
            | T::UInt8
            | T::UInt16
            | T::UInt32
            | T::UInt64
            | T::Float32
            | T::Float64
            | T::Date32
            | T::Timestamp(..)
    )
}

/// The record batches of a stream.
struct Batches<R> {
    messages: Messages<R>,
    schema: Arc<Schema>,
    columns: Vec<usize>,
}

impl<R: Read> Batches<R> {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, ReadError> {
        while let Some((metadata, body)) = self.messages.next()? {
            let message = message(&metadata)?;
            match message.header_type() {
                MessageHeader::DictionaryBatch => continue,
                MessageHeader::RecordBatch => {}
                _ => return Err(invalid("expected a record batch, found another message")),
            }
            let batch = message.header_as_record_batch();
            let batch = batch.ok_or_else(|| invalid("a record batch is malformed"))?;
            if batch.compression().is_some() {
                let places = batch.buffers().into_iter().flatten();
                let places = places.map(|place| (place.offset(), place.length()));
                check_decompressed(places, &body)?;
            }
            let read = arrow_ipc::reader::read_record_batch(
                &body.into(),
                batch,
                Arc::clone(&self.schema),
                &HashMap::new(),
                Some(&self.columns),
                &message.version(),
            );
            return read.map(Some).map_err(invalid);
        }
        Ok(None)
    }
}

impl<R: Read> Iterator for Batches<R> {
    type Item = Result<RecordBatch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        // After an error, the build ends.
        calmly(|| self.next_batch()).and_then(|it| it).transpose()
    }
}

/// Refuses a batch that would be decompressed to more than [`MOST_BODY`]. Each buffer begins with its
/// length, or with -1 if it is not compressed.
fn check_decompressed(
    places: impl Iterator<Item = (i64, i64)>,
    body: &[u8],
) -> Result<(), ReadError> {
    let mut total: u64 = 0;
    for (at, len) in places {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let claimed = body.get(at..).and_then(<[u8]>::first_chunk);
        let claimed = claimed.map_or(0, |bytes| i64::from_le_bytes(*bytes));
        // An uncompressed one is a part of the body, which the reader of the batch checks.
        if len > 0 {
            total = total.saturating_add(u64::try_from(claimed).unwrap_or(0));
        }
    }
    if total > MOST_BODY {
        return Err(too_long(total));
    }
    Ok(())
}

fn too_long(bytes: u64) -> ReadError {
    invalid(format!(
        "a record batch of {bytes} bytes exceeds the limit of {MOST_BODY}: write smaller batches"
    ))
}

/// The description of a message, and its body.
type Parts = (Vec<u8>, Vec<u8>);

/// The messages of a stream, or of a file.
struct Messages<R> {
    input: Chain<Cursor<Vec<u8>>, R>,
    is_file: bool,
}

impl<R: Read> Messages<R> {
    fn of(mut input: R) -> Result<Self, ReadError> {
        let mut next = || {
            let mut next = Vec::new();
            (&mut input).take(8).read_to_end(&mut next).map(|_| next)
        };
        let mut first = next()?;
        let is_file = first.starts_with(MARK);
        if is_file {
            first = next()?;
            // Some pad the mark to 8 bytes, others to 64.
            for _ in 0..MOST_PADDING {
                if first.iter().any(|byte| *byte != 0) {
                    break;
                }
                first = next()?;
            }
        }
        let input = Cursor::new(first).chain(input);
        Ok(Self { input, is_file })
    }

    /// The next message and its body; `None` at the end.
    fn next(&mut self) -> Result<Option<Parts>, ReadError> {
        let mut first = Vec::new();
        (&mut self.input).take(4).read_to_end(&mut first)?;
        if first.is_empty() && !self.is_file {
            return Ok(None);
        }
        if first == CONTINUES {
            first = self.bytes(4)?;
        }
        let len = first.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let len = u64::from(len.ok_or_else(cut_off)?);
        if len == 0 {
            return self.end().map(|()| None);
        }
        if len > MOST_METADATA {
            return Err(other());
        }
        let metadata = self.bytes(len)?;
        let message = message(&metadata)?;
        let len = u64::try_from(message.bodyLength()).map_err(invalid)?;
        if len > MOST_BODY {
            return Err(too_long(len));
        }
        let body = self.bytes(len)?;
        Ok(Some((metadata, body)))
    }

    fn bytes(&mut self, len: u64) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        let mut left = len;
        while left > 0 {
            let step = left.min(STEP);
            bytes.reserve_exact(torc_record::to_usize(step));
            let read = (&mut self.input).take(step).read_to_end(&mut bytes)?;
            if read as u64 != step {
                return Err(cut_off());
            }
            left -= step;
        }
        Ok(bytes)
    }

    /// After its last message, a file has a list of them, which is not needed, and the mark.
    fn end(&mut self) -> Result<(), ReadError> {
        let (mut last, mut buffer) = (Vec::new(), [0; 1 << 12]);
        loop {
            let read = match self.input.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            last.extend_from_slice(&buffer[..read]);
            last.drain(..last.len().saturating_sub(MARK.len()));
            if read == 0 {
                break;
            }
        }
        if self.is_file && last != MARK {
            return Err(cut_off());
        }
        Ok(())
    }
}

fn cut_off() -> ReadError {
    invalid("it is cut off")
}

/// A row of a batch of the chosen columns.
fn row_of(batch: &RecordBatch, at: usize, chosen: &Chosen) -> Result<Row, Problem> {
    let column = |place: usize, name: &String| {
        let column = batch.columns().get(place);
        column.ok_or_else(|| Problem::NoColumn(name.clone()))
    };
    let key = text(&chosen.key, column(0, &chosen.key)?, at)?;
    let value = match &chosen.value {
        ChosenValue::Empty => Bytes::new(),
        ChosenValue::Column(name) => text(name, column(1, name)?, at)?,
        ChosenValue::Json(names) => {
            let fields = (1..).zip(names).map(|(place, name)| {
                let value = json(name, column(place, name)?, at)?;
                Ok((name.as_str(), value))
            });
            object(&fields.collect::<Result<Vec<_>, Problem>>()?)?
        }
    };
    row(key, value)
}

/// The bytes of text or of a binary value.
fn raw(array: &dyn Array, at: usize) -> Option<&[u8]> {
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(at).as_bytes(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(at).as_bytes(),
        DataType::Utf8View => array.as_string_view().value(at).as_bytes(),
        DataType::Binary => array.as_binary::<i32>().value(at),
        DataType::LargeBinary => array.as_binary::<i64>().value(at),
        DataType::BinaryView => array.as_binary_view().value(at),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(at),
        _ => return None,
    })
}

/// A cell as the bytes of a key or value.
fn text(column: &str, array: &dyn Array, at: usize) -> Result<Bytes, Problem> {
    if array.is_null(at) {
        return Err(Problem::NullColumn(column.to_owned()));
    }
    match raw(array, at) {
        Some(bytes) => Ok(Bytes::copy_from_slice(bytes)),
        None => Ok(json(column, array, at)?.to_string().into()),
    }
}

/// A cell as JSON.
fn json(column: &str, array: &dyn Array, at: usize) -> Result<Value, Problem> {
    if array.is_null(at) {
        return Ok(Value::Null);
    }
    if let Some(bytes) = raw(array, at) {
        let text = std::str::from_utf8(bytes).map_err(|_| Problem::NotUtf8)?;
        return Ok(Value::from(text));
    }
    macro_rules! value {
        ($type:ty) => {
            Value::from(array.as_primitive::<$type>().value(at))
        };
    }
    Ok(match array.data_type() {
        DataType::Boolean => Value::from(array.as_boolean().value(at)),
        DataType::Int8 => value!(Int8Type),
        DataType::Int16 => value!(Int16Type),
        DataType::Int32 => value!(Int32Type),
        DataType::Int64 => value!(Int64Type),
        DataType::UInt8 => value!(UInt8Type),
        DataType::UInt16 => value!(UInt16Type),
        DataType::UInt32 => value!(UInt32Type),
        DataType::UInt64 => value!(UInt64Type),
        DataType::Date32 => value!(Date32Type),
        DataType::Timestamp(TimeUnit::Second, _) => value!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => value!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => value!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => value!(TimestampNanosecondType),
        DataType::Float32 => short_number(column, array.as_primitive::<Float32Type>().value(at))?,
        DataType::Float64 => number(column, array.as_primitive::<Float64Type>().value(at))?,
        other => return Err(other_type(column, other)),
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, DictionaryArray,
        FixedSizeBinaryArray, Float32Array, Float64Array, Int64Array, LargeBinaryArray,
        LargeStringArray, StringArray, StringViewArray, TimestampMillisecondArray, UInt8Array,
    };
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};

    use super::*;

    const LONG: &str = "longer than the twelve bytes that a view keeps in place";

    /// Two rows, with a column of each type that is read, and one of a type that is not.
    fn batch() -> RecordBatch {
        let text = ["a", LONG];
        let bytes = [&b"\xff"[..], LONG.as_bytes()];
        let fixed = FixedSizeBinaryArray::try_from_iter([b"12", b"34"].into_iter()).unwrap();
        let dictionary: DictionaryArray<Int32Type> = text.into_iter().collect();
        let columns: [(&str, ArrayRef); 16] = [
            ("dictionary", Arc::new(dictionary)),
            ("utf8", Arc::new(StringArray::from(text.to_vec()))),
            (
                "large_utf8",
                Arc::new(LargeStringArray::from(text.to_vec())),
            ),
            ("utf8_view", Arc::new(StringViewArray::from(text.to_vec()))),
            ("binary", Arc::new(BinaryArray::from(bytes.to_vec()))),
            (
                "large_binary",
                Arc::new(LargeBinaryArray::from(bytes.to_vec())),
            ),
            (
                "binary_view",
                Arc::new(BinaryViewArray::from(bytes.to_vec())),
            ),
            ("fixed", Arc::new(fixed)),
            ("int", Arc::new(Int64Array::from(vec![Some(-1), None]))),
            ("small", Arc::new(UInt8Array::from(vec![0, 255]))),
            (
                "float",
                Arc::new(Float32Array::from(vec![0.1, f32::INFINITY])),
            ),
            ("double", Arc::new(Float64Array::from(vec![0.1, 2.0]))),
            ("boolean", Arc::new(BooleanArray::from(vec![true, false]))),
            (
                "time",
                Arc::new(TimestampMillisecondArray::from(vec![7, 8])),
            ),
            ("twice", Arc::new(StringArray::from(vec!["x", "y"]))),
            ("twice", Arc::new(StringArray::from(vec!["x", "y"]))),
        ];
        let fields = columns.iter().map(|(name, column)| {
            arrow_schema::Field::new(*name, column.data_type().clone(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns = columns.into_iter().map(|(_, column)| column);
        RecordBatch::try_new(schema, columns.collect()).unwrap()
    }

    fn options(compression: Option<CompressionType>) -> IpcWriteOptions {
        let options = IpcWriteOptions::default();
        options.try_with_compression(compression).unwrap()
    }

    fn file(batch: &RecordBatch, times: usize, compression: Option<CompressionType>) -> Vec<u8> {
        let (schema, options) = (batch.schema(), options(compression));
        let mut writer = FileWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
        for _ in 0..times {
            writer.write(batch).unwrap();
        }
        writer.into_inner().unwrap()
    }

    fn stream(batch: &RecordBatch, times: usize) -> Vec<u8> {
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        for _ in 0..times {
            writer.write(batch).unwrap();
        }
        writer.into_inner().unwrap()
    }

    fn naming(key: &str, value: ChosenValue) -> Naming {
        let key = key.to_owned();
        Naming::Chosen(Arc::new(Chosen { key, value }))
    }

    fn column(name: &str) -> ChosenValue {
        ChosenValue::Column(name.to_owned())
    }

    fn read(bytes: &[u8], naming: &Naming) -> Result<Vec<(Bytes, Bytes)>, String> {
        let rows = rows(Cursor::new(bytes.to_vec()), naming).map_err(|error| error.to_string())?;
        let row = |row: Result<Numbered, ReadError>| {
            let row = row.map_err(|error| error.to_string())?.row;
            Ok((row.key, row.value))
        };
        rows.map(row).collect()
    }

    #[test]
    fn keys_and_values_are_of_every_type_in_files_and_streams() {
        let batch = batch();
        let compressed = [CompressionType::LZ4_FRAME, CompressionType::ZSTD];
        let compressed = compressed.map(|it| file(&batch, 2, Some(it)));
        for bytes in [file(&batch, 2, None), stream(&batch, 2)]
            .iter()
            .chain(&compressed)
        {
            for name in ["utf8", "large_utf8", "utf8_view"] {
                let found = read(bytes, &naming(name, column(name))).unwrap();
                let texts = ["a", LONG, "a", LONG];
                assert_eq!(found, texts.map(|it| (it.into(), it.into())), "{name}");
            }
            for name in ["binary", "large_binary", "binary_view"] {
                let found = read(bytes, &naming(name, column(name))).unwrap();
                assert_eq!(found[0].0, &b"\xff"[..], "{name}");
                assert_eq!(found[3], (LONG.into(), LONG.into()), "{name}");
            }
            for (name, wanted) in [
                ("fixed", ["12", "34"]),
                ("small", ["0", "255"]),
                ("double", ["0.1", "2.0"]),
                ("boolean", ["true", "false"]),
                ("time", ["7", "8"]),
            ] {
                let found = read(bytes, &naming(name, ChosenValue::Empty)).unwrap();
                let keys: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
                assert_eq!(keys, [wanted, wanted].concat(), "{name}");
            }
            let names = ["int", "utf8", "boolean"].map(str::to_owned);
            let found = read(bytes, &naming("utf8", ChosenValue::Json(names.into()))).unwrap();
            assert_eq!(found[0].1, r#"{"int":-1,"utf8":"a","boolean":true}"#);
            let null = format!(r#"{{"int":null,"utf8":"{LONG}","boolean":false}}"#);
            assert_eq!(found[1].1, null);
        }
    }

    #[test]
    fn what_cannot_be_taken_is_named_before_the_first_row_if_it_is_a_column() {
        let bytes = file(&batch(), 1, None);
        let refused = |key: &str, value| {
            let rows = rows(Cursor::new(bytes.clone()), &naming(key, value));
            rows.err().unwrap().to_string()
        };
        let other = refused("dictionary", ChosenValue::Empty);
        assert!(
            other.contains("`dictionary`, Dictionary(Int32, Utf8)"),
            "{other}"
        );
        let other = refused("utf8", column("dictionary"));
        assert!(
            other.contains("`dictionary`, Dictionary(Int32, Utf8)"),
            "{other}"
        );
        let none = refused("utf8", column("none"));
        assert!(none.contains("no column `none`"), "{none}");
        let twice = refused("twice", ChosenValue::Empty);
        assert!(twice.contains("`twice` twice"), "{twice}");
        for (value, says) in [
            ("int", "line 2: `int` is null"),
            ("float", "line 2: `float` is infinite"),
        ] {
            let error = read(&bytes, &naming("utf8", column(value))).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let json = ChosenValue::Json(vec!["binary".to_owned()]);
        let error = read(&bytes, &naming("utf8", json)).unwrap_err();
        assert!(error.contains("not UTF-8"), "{error}");
        for other in [&b""[..], b"key,value\na,b\n", b"PAR1", b"ARROW1\0\0"] {
            assert!(read(other, &naming("utf8", ChosenValue::Empty)).is_err());
        }
        let mut columns = batch();
        columns = columns.project(&[1]).unwrap();
        let none = read(
            &file(&columns, 0, None),
            &naming("utf8", ChosenValue::Empty),
        );
        assert_eq!(none.unwrap(), [], "no row is no error");
    }

    #[test]
    fn a_file_that_is_cut_off_is_never_taken_for_a_shorter_one() {
        let naming = naming("utf8", column("binary_view"));
        let bytes = file(&batch(), 3, None);
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len], &naming).is_err(), "{len}");
        }
        assert_eq!(read(&bytes, &naming).unwrap().len(), 6);
    }

    #[test]
    fn no_damage_makes_the_reader_panic() {
        let batch = batch();
        let lz4 = file(&batch, 1, Some(CompressionType::LZ4_FRAME));
        for good in [file(&batch, 1, None), stream(&batch, 1), lz4] {
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 0x55;
                let all = naming("utf8_view", ChosenValue::Json(vec!["double".to_owned()]));
                if let Ok(rows) = rows(Cursor::new(bad), &all) {
                    rows.take(10).for_each(drop);
                }
            }
        }
    }

    #[test]
    fn lengths_that_a_file_claims_cost_no_memory() {
        let mut long = CONTINUES.to_vec();
        long.extend(u32::MAX.to_le_bytes());
        assert!(
            read(&long, &naming("a", ChosenValue::Empty))
                .unwrap_err()
                .contains("not Arrow")
        );
        let mut messages = Messages::of(Cursor::new(vec![0; 100])).unwrap();
        let cut_off = messages.bytes(MOST_BODY).unwrap_err();
        assert!(cut_off.to_string().contains("cut off"), "{cut_off}");

        // Two buffers that say they become 1 GiB, and one that is not compressed.
        let mut body = MOST_BODY.to_le_bytes().to_vec();
        body.extend((-1_i64).to_le_bytes());
        let one = (0, 8);
        check_decompressed([one, (8, 8)].into_iter(), &body).unwrap();
        let two = check_decompressed([one, one].into_iter(), &body).unwrap_err();
        assert!(two.to_string().contains("write smaller batches"), "{two}");
    }
}
