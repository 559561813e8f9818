//! Versions of records.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The version of a record. Versions of one key are ordered; a later write has a greater one.
#[pyclass(frozen, eq, ord, hash, str, from_py_object, module = "torc")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Version(pub(crate) torc_client::Version);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[pymethods]
impl Version {
    /// Parses the text of `str(version)`.
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        let version = text.parse::<torc_client::Version>();
        let version = version.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self(version))
    }

    fn __repr__(&self) -> String {
        format!("Version('{}')", self.0)
    }

    /// The arguments from which pickle and copy restore it.
    fn __getnewargs__(&self) -> (String,) {
        (self.to_string(),)
    }
}
