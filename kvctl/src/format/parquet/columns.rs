//! Columns of a row group, some rows at a time. Text and binary values are not copied.

use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::RowGroupReader;
use parquet::record::Field;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};

/// A value of a row.
pub(super) enum Cell<'a> {
    Null,
    /// Text, which is UTF-8 then, or binary.
    Bytes(&'a [u8]),
    /// A value of another type.
    Field(Field),
}

/// A column that is neither nested nor a list.
pub(super) trait Column: Send {
    /// Reads the next rows, this many, and forgets the rows before.
    fn read(&mut self, rows: usize) -> Result<()>;

    /// The value of the current row, at first the first of these.
    fn cell(&self) -> Result<Cell<'_>>;

    /// Goes to the next row.
    fn advance(&mut self);
}

/// The column at a place of a row group.
pub(super) fn column(group: &dyn RowGroupReader, place: usize) -> Result<Box<dyn Column>> {
    use ColumnReader as R;
    let reader = group.get_column_reader(place)?;
    let descr = group.metadata().column(place).column_descr_ptr();
    Ok(match reader {
        R::BoolColumnReader(it) => typed(it, descr, |it, value| {
            Ok(Cell::Field(Field::convert_bool(it, *value)))
        }),
        R::Int32ColumnReader(it) => typed(it, descr, |it, value| {
            Ok(Cell::Field(Field::convert_int32(it, *value)))
        }),
        R::Int64ColumnReader(it) => typed(it, descr, |it, value| {
            Ok(Cell::Field(Field::convert_int64(it, *value)))
        }),
        R::Int96ColumnReader(it) => typed(it, descr, |it, value| {
            Ok(Cell::Field(Field::convert_int96(it, *value)))
        }),
        R::FloatColumnReader(it) => typed(it, descr, |it, value| {
            Ok(Cell::Field(Field::convert_float(it, *value)))
        }),
        R::DoubleColumnReader(it) => typed(it, descr, |it, value| {
            Ok(Cell::Field(Field::convert_double(it, *value)))
        }),
        R::ByteArrayColumnReader(it) if is_text(&descr) => typed(it, descr, |_, value| {
            value.as_utf8()?;
            Ok(Cell::Bytes(value.data()))
        }),
        R::ByteArrayColumnReader(it) if is_binary(&descr) => {
            typed(it, descr, |_, value| Ok(Cell::Bytes(value.data())))
        }
        R::FixedLenByteArrayColumnReader(it) if is_binary(&descr) => {
            typed(it, descr, |_, value| Ok(Cell::Bytes(value.data())))
        }
        R::ByteArrayColumnReader(it) => typed(it, descr, |it, value| {
            Ok(Cell::Field(Field::convert_byte_array(it, value.clone())?))
        }),
        R::FixedLenByteArrayColumnReader(it) => typed(it, descr, |it, value| {
            Ok(Cell::Field(Field::convert_byte_array(
                it,
                ByteArray::from(value.clone()),
            )?))
        }),
    })
}

fn is_text(column: &ColumnDescriptor) -> bool {
    use ConvertedType as T;
    matches!(column.converted_type(), T::UTF8 | T::ENUM | T::JSON)
}

fn is_binary(column: &ColumnDescriptor) -> bool {
    let is_bytes = matches!(
        column.converted_type(),
        ConvertedType::NONE | ConvertedType::BSON
    );
    is_bytes && column.logical_type_ref() != Some(&LogicalType::Float16)
}

struct Typed<T: DataType> {
    reader: ColumnReaderImpl<T>,
    descr: ColumnDescPtr,
    cell: for<'a> fn(&ColumnDescPtr, &'a T::T) -> Result<Cell<'a>>,
    /// One for each row: whether it has a value. Empty if the column has no nulls.
    levels: Vec<i16>,
    values: Vec<T::T>,
    row: usize,
    value: usize,
}

fn typed<T: DataType>(
    reader: ColumnReaderImpl<T>,
    descr: ColumnDescPtr,
    cell: for<'a> fn(&ColumnDescPtr, &'a T::T) -> Result<Cell<'a>>,
) -> Box<dyn Column> {
    Box::new(Typed {
        reader,
        descr,
        cell,
        levels: Vec::new(),
        values: Vec::new(),
        row: 0,
        value: 0,
    })
}

impl<T: DataType> Column for Typed<T> {
    fn read(&mut self, rows: usize) -> Result<()> {
        self.levels.clear();
        self.values.clear();
        (self.row, self.value) = (0, 0);
        let levels = Some(&mut self.levels);
        let read = self
            .reader
            .read_records(rows, levels, None, &mut self.values);
        let (read, _, _) = read?;
        if read == rows { Ok(()) } else { Err(ended()) }
    }

    fn cell(&self) -> Result<Cell<'_>> {
        if self.is_null() {
            return Ok(Cell::Null);
        }
        let value = self.values.get(self.value).ok_or_else(ended)?;
        (self.cell)(&self.descr, value)
    }

    fn advance(&mut self) {
        self.value += usize::from(!self.is_null());
        self.row += 1;
    }
}

impl<T: DataType> Typed<T> {
    fn is_null(&self) -> bool {
        let level = self.levels.get(self.row);
        level.is_some_and(|level| *level < self.descr.max_def_level())
    }
}

pub(super) fn ended() -> ParquetError {
    ParquetError::EOF("a column has fewer rows than its row group".to_owned())
}
