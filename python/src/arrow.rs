//! Columns with the Arrow PyCapsule interface, from pyarrow, polars and others; this module depends
//! on none of them.
//!
//! Input is borrowed from its producer until it has been sent; each value is copied once. Text
//! becomes its UTF-8 bytes.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::ffi_stream::ArrayStreamReader;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, Int32Array, LargeBinaryArray, StructArray, make_array};
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use torc_client::Value;

fn refused(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Whether an object has the Arrow interface.
pub(crate) fn is_arrow(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    Ok(object.hasattr(intern!(py, "__arrow_c_stream__"))?
        || object.hasattr(intern!(py, "__arrow_c_array__"))?)
}

type Chunks = Box<dyn Iterator<Item = PyResult<ArrayRef>>>;

/// The chunks of a column or table, as its producer makes them.
fn chunks(object: &Bound<'_, PyAny>) -> PyResult<Chunks> {
    let py = object.py();
    if object.hasattr(intern!(py, "__arrow_c_stream__"))? {
        let capsule = object.call_method0(intern!(py, "__arrow_c_stream__"))?;
        let capsule = capsule.cast::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
        // SAFETY: the interface specifies what a capsule of this name points to, and allows moving
        // it out.
        let reader = unsafe { ArrayStreamReader::from_raw(pointer.as_ptr().cast()) };
        return Ok(Box::new(
            reader.map_err(refused)?.map(|chunk| chunk.map_err(refused)),
        ));
    }
    let pair = object.call_method0(intern!(py, "__arrow_c_array__"))?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?;
    let array = array.pointer_checked(Some(c"arrow_array"))?;
    // SAFETY: as above; `schema` outlives the borrow, because its capsule does.
    let data = unsafe {
        let array = FFI_ArrowArray::from_raw(array.as_ptr().cast());
        from_ffi(array, schema.cast::<FFI_ArrowSchema>().as_ref())
    };
    let chunk = make_array(data.map_err(refused)?);
    Ok(Box::new(std::iter::once(Ok(chunk))))
}

/// A column of byte strings without nulls.
pub(crate) struct Column(ArrayRef);

impl Column {
    fn new(array: ArrayRef, name: &str) -> PyResult<Self> {
        match array.data_type() {
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View => {}
            other => {
                let message =
                    format!("the column `{name}` has the type {other}: use binary or text");
                return Err(PyTypeError::new_err(message));
            }
        }
        if array.logical_null_count() > 0 {
            let message = format!("the column `{name}` has nulls: remove these rows");
            return Err(PyValueError::new_err(message));
        }
        Ok(Self(array))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, row: usize) -> Bytes {
        let array = &self.0;
        Bytes::copy_from_slice(match array.data_type() {
            DataType::Binary => array.as_binary::<i32>().value(row),
            DataType::LargeBinary => array.as_binary::<i64>().value(row),
            DataType::BinaryView => array.as_binary_view().value(row),
            DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(row),
            DataType::Utf8 => array.as_string::<i32>().value(row).as_bytes(),
            DataType::LargeUtf8 => array.as_string::<i64>().value(row).as_bytes(),
            _ => array.as_string_view().value(row).as_bytes(),
        })
    }
}

/// Keys: a column, or an iterable of bytes.
pub(crate) fn keys(object: &Bound<'_, PyAny>) -> PyResult<Vec<Bytes>> {
    if !is_arrow(object)? {
        return crate::convert::keys(object);
    }
    let mut keys = Vec::new();
    for chunk in chunks(object)? {
        let column = Column::new(chunk?, "keys")?;
        keys.extend((0..column.len()).map(|row| column.get(row)));
    }
    Ok(keys)
}

/// Rows of a table: columns of the same length.
pub(crate) struct Rows {
    pub(crate) keys: Column,
    pub(crate) values: Column,
    buckets: Option<ArrayRef>,
}

impl Rows {
    /// The bucket that the table gives for a row.
    pub(crate) fn bucket(&self, row: usize) -> Option<u32> {
        let buckets = self.buckets.as_ref()?.as_primitive::<Int32Type>();
        // Bucket numbers of a plan are not negative.
        Some(buckets.value(row).cast_unsigned())
    }
}

/// The rows of a table, a chunk at a time. `bucket` names a column of buckets, if there is one.
pub(crate) fn rows(
    table: &Bound<'_, PyAny>,
    (key, value): (&str, &str),
    bucket: Option<&str>,
) -> PyResult<impl Iterator<Item = PyResult<Rows>>> {
    if !is_arrow(table)? {
        let message = "the table needs the Arrow PyCapsule interface, as in pyarrow and polars";
        return Err(PyTypeError::new_err(message));
    }
    let rows = move |chunk: &ArrayRef| {
        Ok(Rows {
            keys: Column::new(column(chunk, key)?, key)?,
            values: Column::new(column(chunk, value)?, value)?,
            buckets: bucket.map(|name| buckets(chunk, name)).transpose()?,
        })
    };
    Ok(chunks(table)?.map(move |chunk| rows(&chunk?)))
}

fn buckets(chunk: &ArrayRef, name: &str) -> PyResult<ArrayRef> {
    let found = column(chunk, name)?;
    if *found.data_type() != DataType::Int32 || found.null_count() > 0 {
        let message =
            format!("the column `{name}` must have buckets: integers of 32 bits without nulls");
        return Err(PyTypeError::new_err(message));
    }
    Ok(found)
}

fn column(chunk: &ArrayRef, name: &str) -> PyResult<ArrayRef> {
    let table = chunk.as_any().downcast_ref::<StructArray>();
    let table = table.ok_or_else(|| {
        PyTypeError::new_err("pass a table with a column of keys and one of values")
    })?;
    let found = table.column_by_name(name);
    let found =
        found.ok_or_else(|| PyValueError::new_err(format!("the table has no column `{name}`")))?;
    Ok(Arc::clone(found))
}

fn schema_capsule<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(array.data_type()).map_err(refused)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

fn array_capsules<'py>(
    py: Python<'py>,
    array: &dyn Array,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let (array, schema) = to_ffi(&array.to_data()).map_err(refused)?;
    let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
    Ok((
        schema,
        PyCapsule::new_with_value(py, array, c"arrow_array")?,
    ))
}

/// Buckets in the order of their keys. pyarrow.array() and others use it without a copy.
#[pyclass(frozen, module = "torc")]
pub(crate) struct Buckets(Int32Array);

impl Buckets {
    pub(crate) fn new(buckets: Vec<i32>) -> Self {
        Self(buckets.into())
    }
}

#[pymethods]
impl Buckets {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.0)
    }

    /// The type is `int32` whatever is requested, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        array_capsules(py, &self.0)
    }
}

/// Values in the order of their keys, null for absent keys. pyarrow.array(), polars.Series() and
/// others use it without a copy.
#[pyclass(frozen, module = "torc")]
pub(crate) struct Values(LargeBinaryArray);

impl Values {
    pub(crate) fn new(values: &[Option<Value>]) -> Self {
        let bytes = values
            .iter()
            .map(|value| value.as_ref().map(|value| &value.value[..]));
        Self(bytes.collect())
    }
}

#[pymethods]
impl Values {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.0)
    }

    /// The type is `large_binary` whatever is requested, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        array_capsules(py, &self.0)
    }
}
