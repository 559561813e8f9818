//! Conversion of Python arguments: byte strings, times, conditions.

use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDelta, PyMapping, PyMemoryView, PyString};
use torc_client::{ClientTls, Condition, PutOptions};

use crate::version::Version;

/// Copies any object with a buffer.
///
/// # Errors
/// `TypeError`, also for text, because it has many encodings and reads return bytes.
pub(crate) fn bytes(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Bytes> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    if let Ok(array) = object.cast::<PyByteArray>() {
        return Ok(array.to_vec().into());
    }
    let refused = |hint: &str| {
        let given = object.get_type().name();
        let given = given.map_or_else(|_| "that".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("a {what} must be bytes, not {given}{hint}"))
    };
    if object.is_instance_of::<PyString>() {
        return Err(refused(": encode it, for example with .encode()"));
    }
    let view = PyMemoryView::from(object).map_err(|_| refused(""))?;
    let copied = view.call_method0("tobytes")?;
    Ok(Bytes::copy_from_slice(copied.cast::<PyBytes>()?.as_bytes()))
}

pub(crate) fn keys(keys: &Bound<'_, PyAny>) -> PyResult<Vec<Bytes>> {
    // A single key is iterable as well.
    if keys.is_instance_of::<PyBytes>() || keys.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "pass keys as a list or another iterable",
        ));
    }
    let len = keys.len().unwrap_or_default().min(1 << 16);
    let mut copied = Vec::with_capacity(len);
    for key in keys.try_iter()? {
        copied.push(bytes(&key?, "key")?);
    }
    Ok(copied)
}

/// Pairs of key and value, also of a mapping.
pub(crate) fn pairs<'py>(records: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match records.cast::<PyMapping>() {
        Ok(mapping) => Ok(mapping.items()?.into_any()),
        Err(_) => Ok(records.clone()),
    }
}

pub(crate) fn record(pair: &Bound<'_, PyAny>) -> PyResult<(Bytes, Bytes)> {
    let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
    Ok((bytes(&key, "key")?, bytes(&value, "value")?))
}

pub(crate) fn records(records: &Bound<'_, PyAny>) -> PyResult<Vec<(Bytes, Bytes)>> {
    let pairs = pairs(records)?;
    pairs.try_iter()?.map(|pair| record(&pair?)).collect()
}

/// Seconds or a `timedelta`.
pub(crate) fn duration(time: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds: f64 = if time.is_instance_of::<PyDelta>() {
        time.call_method0("total_seconds")?.extract()?
    } else {
        time.extract()?
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!(
            "{seconds} seconds is not a valid time: use more than 0"
        ))
    })
}

fn version(version: &Bound<'_, PyAny>) -> PyResult<torc_client::Version> {
    version
        .extract::<Version>()
        .map(|version| version.0)
        .map_err(|_| {
            PyTypeError::new_err(
                "a version must be a torc.Version: convert text with torc.Version(text)",
            )
        })
}

pub(crate) fn if_version(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Condition>> {
    given
        .map(|given| version(given).map(Condition::IfVersion))
        .transpose()
}

/// The conditions of a put, as given.
#[derive(Default)]
pub(crate) struct Conditions<'a, 'py> {
    pub(crate) absent: bool,
    pub(crate) version: Option<&'a Bound<'py, PyAny>>,
    pub(crate) older_than: Option<&'a Bound<'py, PyAny>>,
}

pub(crate) fn put_options(
    given: &Conditions<'_, '_>,
    ttl: Option<&Bound<'_, PyAny>>,
) -> PyResult<PutOptions> {
    let older = given.older_than.map(version).transpose()?;
    let conditions = [
        given.absent.then_some(Condition::IfAbsent),
        if_version(given.version)?,
        older.map(Condition::IfOlderThan),
    ];
    let mut conditions = conditions.into_iter().flatten();
    let condition = conditions.next();
    if conditions.next().is_some() {
        let why = "if_absent, if_version and if_older_than exclude each other";
        return Err(PyValueError::new_err(why));
    }
    let ttl = ttl.map(duration).transpose()?;
    Ok(PutOptions {
        condition,
        ttl,
        expires_at_ms: None,
    })
}

/// The arguments of `connect`, as a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    endpoints: Vec<String>,
    namespace: String,
    #[pyo3(from_py_with = duration)]
    timeout: Duration,
    #[pyo3(from_py_with = duration)]
    connect_timeout: Duration,
    tls_ca: Option<std::path::PathBuf>,
    tls_cert: Option<std::path::PathBuf>,
    tls_key: Option<std::path::PathBuf>,
    token: Option<String>,
    token_file: Option<std::path::PathBuf>,
}

impl Settings {
    /// A client that has not connected yet.
    pub(crate) fn client(self, py: Python<'_>) -> PyResult<torc_client::Client> {
        let own = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
            (None, None) => None,
            _ => {
                return Err(PyValueError::new_err(
                    "tls_cert and tls_key need each other",
                ));
            }
        };
        let token = self.token()?;
        let mut builder = torc_client::Client::builder()
            .endpoints(self.endpoints)
            .namespace(self.namespace)
            .deadline(self.timeout)
            .connect_timeout(self.connect_timeout);
        match &self.tls_ca {
            Some(authorities) => {
                let tls = ClientTls::open(authorities, own);
                builder =
                    builder.tls(tls.map_err(|error| PyValueError::new_err(error.to_string()))?);
            }
            None if own.is_some() => {
                return Err(PyValueError::new_err("tls_cert needs tls_ca"));
            }
            None => {}
        }
        if let Some(token) = token {
            builder = builder.token(token);
        }
        builder
            .connect_lazy()
            .map_err(|error| crate::error::raised(py, &error))
    }

    /// The token, perhaps from its file.
    fn token(&self) -> PyResult<Option<String>> {
        let (given, file) = (&self.token, &self.token_file);
        let Some(path) = file else {
            return Ok(given.clone());
        };
        if given.is_some() {
            let why = "token and token_file exclude each other";
            return Err(PyValueError::new_err(why));
        }
        let text = std::fs::read_to_string(path).map_err(|error| {
            PyValueError::new_err(format!("cannot read {}: {error}", path.display()))
        })?;
        Ok(Some(text.trim().to_owned()))
    }
}
