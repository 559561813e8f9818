//! Builds and reads generations: the whole content of a static namespace, in a directory.

use std::path::PathBuf;

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use torc_build::{Answer, Build, BuildError, BuildOptions, Duplicates, Shape, Target};
use torc_objects::ObjectError;
use torc_ring::Partitions;

use crate::{arrow, convert, error};

/// Most rows to take from Python at a time, and their most bytes.
const BATCH_ROWS: usize = 1 << 10;
const BATCH_BYTES: usize = 1 << 20;

/// The target and options of a build, as a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct BuildSettings {
    pub(crate) out: PathBuf,
    shape: String,
    payload_bytes: u8,
    fingerprint_bits: u8,
    duplicates: String,
    digest_key: Vec<u8>,
    partitions: u32,
    reservation: Option<PathBuf>,
    memory: u64,
    workers: usize,
    gate_rate: f64,
    source: String,
}

impl BuildSettings {
    pub(crate) fn target(&self, py: Python<'_>) -> PyResult<Target> {
        if let Some(path) = &self.reservation {
            return Target::read(path).map_err(|failed| raised(py, failed));
        }
        let digest_key = self.digest_key.as_slice().try_into();
        let digest_key =
            digest_key.map_err(|_| PyValueError::new_err("digest_key must have 32 bytes"))?;
        let partitions = Partitions::new(self.partitions);
        let partitions = partitions.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Target {
            partitions,
            ..Target::offline(digest_key)
        })
    }

    pub(crate) fn options(&self) -> PyResult<BuildOptions> {
        let keyless = |payload_bytes| Shape::Keyless {
            fingerprint_bits: self.fingerprint_bits,
            payload_bytes,
        };
        let shape = match self.shape.as_str() {
            "values" => Shape::Values,
            "keyless" => keyless(self.payload_bytes),
            "set" => keyless(0),
            "ids" => Shape::Ids,
            _ => {
                return Err(PyValueError::new_err(
                    "shape must be values, keyless, set or ids",
                ));
            }
        };
        let duplicates = match self.duplicates.as_str() {
            "error" => Duplicates::Error,
            "first" => Duplicates::First,
            "last" => Duplicates::Last,
            _ => {
                return Err(PyValueError::new_err(
                    "duplicates must be error, first or last",
                ));
            }
        };
        if !(0.0001..=0.5).contains(&self.gate_rate) {
            return Err(PyValueError::new_err("gate_rate must be 0.0001 to 0.5"));
        }
        if !(1..=64).contains(&self.workers) {
            return Err(PyValueError::new_err("workers must be 1 to 64"));
        }
        Ok(BuildOptions {
            source: self.source.clone(),
            shape,
            duplicates,
            gate_rate: self.gate_rate,
            memory: self.memory,
            workers: self.workers,
            ..BuildOptions::default()
        })
    }
}

/// A row and its given bucket.
type Row = (Bytes, Bytes, Option<u32>);

/// Feeds rows to a build in batches: takes them from Python with the GIL, and stores them without
/// it.
pub(crate) struct Feed<P> {
    push: P,
    /// Rows that the build already has.
    skip: u64,
    keeps_values: bool,
    batch: Vec<Row>,
    bytes: usize,
}

impl<P: FnMut(Row) -> Result<(), BuildError> + Send> Feed<P> {
    pub(crate) fn new(push: P, skip: u64, shape: Shape) -> Self {
        let drops_values = matches!(
            shape,
            Shape::Ids
                | Shape::Keyless {
                    payload_bytes: 0,
                    ..
                }
        );
        Self {
            push,
            skip,
            keeps_values: !drops_values,
            batch: Vec::with_capacity(BATCH_ROWS),
            bytes: 0,
        }
    }

    fn add(&mut self, py: Python<'_>, row: impl FnOnce() -> PyResult<Row>) -> PyResult<()> {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        let (key, mut value, bucket) = row()?;
        if !self.keeps_values {
            value = Bytes::new();
        }
        self.bytes += key.len() + value.len();
        self.batch.push((key, value, bucket));
        if self.batch.len() < BATCH_ROWS && self.bytes < BATCH_BYTES {
            return Ok(());
        }
        self.flush(py)
    }

    /// Takes pairs, or the columns of a table.
    pub(crate) fn take_all(
        &mut self,
        rows: &Bound<'_, PyAny>,
        columns: (&str, &str),
        bucket: Option<&str>,
    ) -> PyResult<()> {
        let py = rows.py();
        if bucket.is_some() || arrow::is_arrow(rows)? {
            for chunk in arrow::rows(rows, columns, bucket)? {
                let chunk = chunk?;
                for row in 0..chunk.keys.len() {
                    self.add(py, || {
                        let bucket = chunk.bucket(row);
                        Ok((chunk.keys.get(row), chunk.values.get(row), bucket))
                    })?;
                }
            }
        } else {
            for row in convert::pairs(rows)?.try_iter()? {
                let row = row?;
                self.add(py, || {
                    let (key, value) = convert::record(&row)?;
                    Ok((key, value, None))
                })?;
            }
        }
        self.flush(py)
    }

    /// Stores the rows taken from Python.
    fn store(&mut self) -> Result<(), BuildError> {
        self.bytes = 0;
        self.batch.drain(..).try_for_each(&mut self.push)
    }

    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        let pushed = py.detach(|| self.store());
        pushed.map_err(|failed| raised(py, failed))?;
        py.check_signals()
    }
}

/// Builds a generation; `torc.build` has the details.
#[pyfunction]
pub(crate) fn build(
    rows: &Bound<'_, PyAny>,
    settings: BuildSettings,
    key: &str,
    value: &str,
) -> PyResult<Generation> {
    let py = rows.py();
    let (target, options) = (settings.target(py)?, settings.options()?);
    let shape = options.shape;
    let mut build =
        Build::create(&settings.out, target, options).map_err(|failed| raised(py, failed))?;
    if !build.has_all_rows() {
        let taken = build.rows_taken();
        let mut feed = Feed::new(|(key, value, _)| build.push(key, value), taken, shape);
        if let Err(failed) = feed.take_all(rows, (key, value), None) {
            // Makes rows durable for a call that continues the build. If that fails, the call takes
            // these rows again.
            let stored = py.detach(|| feed.store());
            drop(feed);
            let _ = py.detach(|| stored.and_then(|()| build.checkpoint()));
            return Err(failed);
        }
    }
    let finished = py.detach(|| build.finish(|_| ()));
    finished.map_err(|failed| raised(py, failed))?;
    Generation::open(py, settings.out)
}

/// A generation in a directory, with indexes in memory and values in files.
#[pyclass(frozen, module = "torc")]
pub(crate) struct Generation(torc_build::Generation);

#[pymethods]
impl Generation {
    #[new]
    pub(crate) fn open(py: Python<'_>, directory: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| torc_build::Generation::open(&directory));
        opened.map(Self).map_err(|failed| raised(py, failed))
    }

    /// The value of a key, or `None`.
    fn get<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (py, key) = (key.py(), convert::bytes(key, "key")?);
        match py
            .detach(|| self.0.get(&key))
            .map_err(|failed| raised(py, failed))?
        {
            Answer::Absent => Ok(None),
            Answer::Value(value) => Ok(Some(PyBytes::new(py, &value))),
            Answer::Id(id) => Ok(Some(PyBytes::new(py, id.to_string().as_bytes()))),
            Answer::Probably { payload, .. } => Ok(Some(PyBytes::new(py, &payload))),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        usize::try_from(self.0.manifest().records)
            .map_err(|_| PyTypeError::new_err("too many records"))
    }

    /// Its identity: the same rows give the same digest.
    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.manifest().digest())
    }

    #[getter]
    fn duplicates(&self) -> u64 {
        self.0.manifest().duplicates
    }

    #[getter]
    fn file_bytes(&self) -> u64 {
        self.0.manifest().file_bytes()
    }

    #[getter]
    fn index_bytes(&self) -> u64 {
        self.0.index_bytes()
    }

    #[getter]
    fn false_positive_rate(&self) -> f64 {
        self.0.manifest().shape.false_positive_rate()
    }
}

/// The exception of a failed build. Earlier files stay; the message says what to do.
pub(crate) fn raised(py: Python<'_>, failed: BuildError) -> PyErr {
    let message = failed.to_string();
    match failed {
        BuildError::Io { source, .. } => match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, message)),
            None => PyOSError::new_err(message),
        },
        BuildError::SumsDiffer { .. }
        | BuildError::Store(_)
        | BuildError::Objects(ObjectError::Damaged { .. }) => {
            error::of_build(py, "corrupt", message)
        }
        BuildError::Objects(error @ ObjectError::Object { .. }) if !error.is_denied() => {
            error::of_build(py, "unavailable", message)
        }
        BuildError::Objects(ObjectError::Io { .. }) => PyOSError::new_err(message),
        _ => error::of_build(py, "refused", message),
    }
}
