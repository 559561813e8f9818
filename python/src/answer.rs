//! Results of operations, and their conversion to Python objects.

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList};
use torc_client::{Entry, Error, Value};

use crate::arrow::Values;
use crate::error;
use crate::version::Version;

/// The result of an operation. Created without the GIL.
pub(crate) enum Answer {
    Nothing,
    Value(Option<Value>),
    Versioned(Option<Value>),
    Version(torc_client::Version),
    Existed(bool),
    Values(Many<Option<Value>>),
    Versions(Many<torc_client::Version>),
    /// Values as a column.
    Column(Many<Option<Value>>),
    /// The number of records that were put.
    Stored(Many<torc_client::Version>),
}

/// The outcomes of a batch.
pub(crate) struct Many<T> {
    pub(crate) outcomes: Vec<Result<T, Error>>,
    /// Put failures into the list instead of ending the call.
    pub(crate) return_exceptions: bool,
}

impl Answer {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Nothing => Ok(py.None().into_bound(py)),
            Self::Value(value) => Ok(value_of(py, value)),
            Self::Versioned(value) => versioned(py, value),
            Self::Version(version) => Version(version).into_bound_py_any(py),
            Self::Existed(existed) => existed.into_bound_py_any(py),
            Self::Values(many) => many.into_python(py, false, |value| Ok(value_of(py, value))),
            Self::Versions(many) => {
                many.into_python(py, true, |version| Version(version).into_bound_py_any(py))
            }
            Self::Column(many) => Values::new(&many.all(py, false)?).into_bound_py_any(py),
            Self::Stored(many) => many.all(py, true)?.len().into_bound_py_any(py),
        }
    }
}

impl<T> Many<T> {
    /// The outcomes of a call that fails if one of them does.
    pub(crate) const fn new(outcomes: Vec<Result<T, Error>>) -> Self {
        Self {
            outcomes,
            return_exceptions: false,
        }
    }

    fn into_python<'py>(
        self,
        py: Python<'py>,
        writes: bool,
        convert: impl Fn(T) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !self.return_exceptions
            && let Some(failed) = self.failure(py, writes)
        {
            return Err(failed);
        }
        let one = |outcome| match outcome {
            Ok(done) => convert(done),
            Err(failed) => Ok(error::raised(py, &failed)
                .into_value(py)
                .into_bound(py)
                .into_any()),
        };
        let objects: PyResult<Vec<_>> = self.outcomes.into_iter().map(one).collect();
        PyList::new(py, objects?).map(Bound::into_any)
    }

    /// The results, or the first failure.
    fn all(self, py: Python<'_>, writes: bool) -> PyResult<Vec<T>> {
        match self.failure(py, writes) {
            Some(failed) => Err(failed),
            None => Ok(self.outcomes.into_iter().flatten().collect()),
        }
    }

    /// The first failure. A batch of writes may have changed something unless every write certainly
    /// failed.
    fn failure(&self, py: Python<'_>, writes: bool) -> Option<PyErr> {
        let outcomes = self.outcomes.iter().enumerate();
        let mut failures =
            outcomes.filter_map(|(index, outcome)| Some((index, outcome.as_ref().err()?)));
        let (index, first) = failures.next()?;
        let may_change = |outcome: &Result<T, Error>| {
            outcome.as_ref().map_or_else(Error::maybe_applied, |_| true)
        };
        let changed = writes && self.outcomes.iter().any(may_change);
        let note = format!(
            "item {index} and {} more of {}: ",
            failures.count(),
            self.outcomes.len()
        );
        Some(error::with_note(py, first, &note, changed))
    }
}

fn value_of(py: Python<'_>, value: Option<Value>) -> Bound<'_, PyAny> {
    match value {
        Some(value) => PyBytes::new(py, &value.value).into_any(),
        None => py.None().into_bound(py),
    }
}

fn versioned(py: Python<'_>, value: Option<Value>) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Some(value) = value else {
        return Ok(py.None().into_bound(py));
    };
    let bytes = PyBytes::new(py, &value.value);
    let class = CLASS.import(py, "torc._types", "Versioned")?;
    class.call1((bytes, Version(value.version), value.expires_at_ms))
}

pub(crate) fn entry(py: Python<'_>, entry: Entry) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (key, value) = (PyBytes::new(py, &entry.key), PyBytes::new(py, &entry.value));
    let class = CLASS.import(py, "torc._types", "Entry")?;
    class.call1((key, value, Version(entry.version), entry.expires_at_ms))
}
