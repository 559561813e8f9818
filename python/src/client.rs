//! The client for threads: every call waits for its answer.

use pyo3::prelude::*;
use tokio::runtime::Runtime;

use crate::convert::{Conditions, Settings};
use crate::error;
use crate::operations::{Operation, Operations};
use crate::process::{runtime, wait};
use crate::scan::Scan;

/// A client of a cluster, in one namespace. Threads may share it.
#[pyclass(frozen, module = "torc")]
pub(crate) struct Client {
    operations: Operations,
    runtime: &'static Runtime,
}

impl Client {
    fn wait<'py>(&self, py: Python<'py>, operation: impl Operation) -> PyResult<Bound<'py, PyAny>> {
        match wait(py, self.runtime, operation)? {
            Ok(answer) => answer.into_python(py),
            Err(failed) => Err(error::raised(py, &failed)),
        }
    }

    fn beside(&self, operations: Operations) -> Self {
        let runtime = self.runtime;
        Self {
            operations,
            runtime,
        }
    }
}

#[pymethods]
impl Client {
    #[new]
    fn new(py: Python<'_>, settings: Settings) -> PyResult<Self> {
        let operations = Operations::new(py, settings)?;
        let runtime = runtime(py)?;
        let client = Self {
            operations,
            runtime,
        };
        client.wait(py, client.operations.reach(py)?)?;
        Ok(client)
    }

    fn namespace(&self, py: Python<'_>, name: String) -> PyResult<Self> {
        Ok(self.beside(self.operations.namespace(py, name)?))
    }

    fn with_timeout(&self, timeout: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(self.beside(self.operations.with_timeout(timeout)?))
    }

    #[pyo3(signature = (key, *, stale = false))]
    fn get<'py>(&self, key: &Bound<'py, PyAny>, stale: bool) -> PyResult<Bound<'py, PyAny>> {
        self.wait(key.py(), self.operations.get(key, stale, false)?)
    }

    #[pyo3(signature = (key, *, stale = false))]
    fn get_versioned<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        stale: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.wait(key.py(), self.operations.get(key, stale, true)?)
    }

    #[pyo3(signature = (key, value, *, if_absent = false, if_version = None, if_older_than = None, ttl = None))]
    fn put<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        if_absent: bool,
        if_version: Option<&Bound<'py, PyAny>>,
        if_older_than: Option<&Bound<'py, PyAny>>,
        ttl: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let conditions = Conditions {
            absent: if_absent,
            version: if_version,
            older_than: if_older_than,
        };
        let put = self.operations.put(key, value, &conditions, ttl)?;
        self.wait(key.py(), put)
    }

    #[pyo3(signature = (key, *, if_version = None))]
    fn delete<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        if_version: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.wait(key.py(), self.operations.delete(key, if_version)?)
    }

    #[pyo3(signature = (keys, *, return_exceptions = false))]
    fn get_many<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        return_exceptions: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.wait(
            keys.py(),
            self.operations.get_many(keys, return_exceptions)?,
        )
    }

    #[pyo3(signature = (records, *, ttl = None, return_exceptions = false))]
    fn put_many<'py>(
        &self,
        records: &Bound<'py, PyAny>,
        ttl: Option<&Bound<'py, PyAny>>,
        return_exceptions: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.wait(
            records.py(),
            self.operations.put_many(records, ttl, return_exceptions)?,
        )
    }

    fn get_arrow<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.wait(keys.py(), self.operations.get_arrow(keys)?)
    }

    #[pyo3(signature = (table, *, key = "key", value = "value", ttl = None))]
    fn put_arrow<'py>(
        &self,
        table: &Bound<'py, PyAny>,
        key: &str,
        value: &str,
        ttl: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.wait(
            table.py(),
            self.operations.put_arrow(table, key, value, ttl)?,
        )
    }

    #[pyo3(signature = (*, keys_only = false, limit = None, contains = None, after = None))]
    fn scan(
        &self,
        py: Python<'_>,
        keys_only: bool,
        limit: Option<u64>,
        contains: Option<&Bound<'_, PyAny>>,
        after: Option<&[u8]>,
    ) -> PyResult<Scan> {
        let records = self
            .operations
            .scan(py, keys_only, limit, contains, after)?;
        Ok(Scan::new(records))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.operations.close(py)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        self.close(py)
    }
}
