//! Building and reading generations: the whole content of a static namespace, in a directory.

use std::path::PathBuf;

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use torc_build::{Answer, Build, BuildError, BuildOptions, Duplicates, Shape, Target};
use torc_ring::Partitions;

use crate::{arrow, convert, error};

/// Rows that are taken from Python at a time, at most, and bytes of them.
const BATCH_ROWS: usize = 1 << 10;
const BATCH_BYTES: usize = 1 << 20;

/// What `torc.build` takes beside rows, as a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct BuildSettings {
    out: PathBuf,
    shape: String,
    payload_bytes: u8,
    fingerprint_bits: u8,
    duplicates: String,
    digest_key: Vec<u8>,
    partitions: u32,
    memory: u64,
    workers: usize,
    gate_rate: f64,
    source: String,
    key: String,
    value: String,
}

impl BuildSettings {
    fn target(&self) -> PyResult<Target> {
        let digest_key = self.digest_key.as_slice().try_into();
        let digest_key =
            digest_key.map_err(|_| PyValueError::new_err("digest_key has 32 bytes"))?;
        let partitions = Partitions::new(self.partitions);
        let partitions = partitions.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Target {
            partitions,
            ..Target::offline(digest_key)
        })
    }

    fn options(&self) -> PyResult<BuildOptions> {
        let keyless = |payload_bytes| Shape::Keyless {
            fingerprint_bits: self.fingerprint_bits,
            payload_bytes,
        };
        let shape = match self.shape.as_str() {
            "values" => Shape::Values,
            "keyless" => keyless(self.payload_bytes),
            "set" => keyless(0),
            _ => return Err(PyValueError::new_err("shape is values, keyless or set")),
        };
        let duplicates = match self.duplicates.as_str() {
            "error" => Duplicates::Error,
            "first" => Duplicates::First,
            "last" => Duplicates::Last,
            _ => return Err(PyValueError::new_err("duplicates is error, first or last")),
        };
        if !(0.0001..=0.5).contains(&self.gate_rate) {
            return Err(PyValueError::new_err(
                "gate_rate is a share from 0.0001 to 0.5",
            ));
        }
        if !(1..=64).contains(&self.workers) {
            return Err(PyValueError::new_err("workers is 1 to 64"));
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

/// Rows on their way into a build, in batches: the GIL is held to take them from Python, not to store them.
struct Feed {
    build: Build,
    /// Rows that the build has from before.
    skip: u64,
    keeps_values: bool,
    batch: Vec<(Bytes, Bytes)>,
    bytes: usize,
}

impl Feed {
    fn add(
        &mut self,
        py: Python<'_>,
        row: impl FnOnce() -> PyResult<(Bytes, Bytes)>,
    ) -> PyResult<()> {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        let (key, value) = row()?;
        let value = if self.keeps_values {
            value
        } else {
            Bytes::new()
        };
        self.bytes += key.len() + value.len();
        self.batch.push((key, value));
        if self.batch.len() < BATCH_ROWS && self.bytes < BATCH_BYTES {
            return Ok(());
        }
        self.flush(py)
    }

    fn take_all(&mut self, rows: &Bound<'_, PyAny>, settings: &BuildSettings) -> PyResult<()> {
        let py = rows.py();
        if arrow::is_arrow(rows)? {
            for chunk in arrow::rows(rows, &settings.key, &settings.value)? {
                let (keys, values) = chunk?;
                for row in 0..keys.len() {
                    self.add(py, || Ok((keys.get(row), values.get(row))))?;
                }
            }
        } else {
            for row in convert::pairs(rows)?.try_iter()? {
                let row = row?;
                self.add(py, || convert::record(&row))?;
            }
        }
        self.flush(py)
    }

    /// Makes the rows so far durable, for the call that goes on. If that fails, it takes them again.
    fn keep(&mut self, py: Python<'_>) {
        let Self { build, batch, .. } = self;
        let _ = py.detach(|| {
            let mut rows = batch.drain(..);
            rows.try_for_each(|(key, value)| build.push(key, value))?;
            build.checkpoint()
        });
    }

    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        self.bytes = 0;
        let Self { build, batch, .. } = self;
        let push = |(key, value)| build.push(key, value);
        let pushed = py.detach(|| batch.drain(..).try_for_each(push));
        pushed.map_err(|failed| raised(py, failed))?;
        py.check_signals()
    }
}

/// Builds a generation; `torc.build` has the details.
#[pyfunction]
pub(crate) fn build(rows: &Bound<'_, PyAny>, settings: BuildSettings) -> PyResult<Generation> {
    let py = rows.py();
    let (target, options) = (settings.target()?, settings.options()?);
    let build =
        Build::create(&settings.out, target, options).map_err(|failed| raised(py, failed))?;
    let is_fed = build.has_all_rows();
    let mut feed = Feed {
        skip: build.rows_taken(),
        build,
        keeps_values: settings.shape != "set",
        batch: Vec::with_capacity(BATCH_ROWS),
        bytes: 0,
    };
    if !is_fed && let Err(failed) = feed.take_all(rows, &settings) {
        feed.keep(py);
        return Err(failed);
    }
    let finished = py.detach(|| feed.build.finish(|_| ()));
    finished.map_err(|failed| raised(py, failed))?;
    Generation::open(py, settings.out)
}

/// A generation in a directory: its indexes in memory, its values in their files.
#[pyclass(frozen, module = "torc")]
pub(crate) struct Generation(torc_build::Generation);

#[pymethods]
impl Generation {
    #[new]
    fn open(py: Python<'_>, directory: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| torc_build::Generation::open(&directory));
        opened.map(Self).map_err(|failed| raised(py, failed))
    }

    /// The value of a key, or none.
    fn get<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (py, key) = (key.py(), convert::bytes(key, "key")?);
        match py
            .detach(|| self.0.get(&key))
            .map_err(|failed| raised(py, failed))?
        {
            Answer::Absent => Ok(None),
            Answer::Value(value) => Ok(Some(PyBytes::new(py, &value))),
            Answer::Probably { payload, .. } => Ok(Some(PyBytes::new(py, &payload))),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        usize::try_from(self.0.manifest().records)
            .map_err(|_| PyTypeError::new_err("too many records"))
    }

    /// What it is named by: the same rows give the same.
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

/// What was built before stays; the message says what to do.
fn raised(py: Python<'_>, failed: BuildError) -> PyErr {
    let message = failed.to_string();
    match failed {
        BuildError::Io { source, .. } => match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, message)),
            None => PyOSError::new_err(message),
        },
        BuildError::SumsDiffer { .. } | BuildError::Store(_) => {
            error::of_build(py, "corrupt", message)
        }
        _ => error::of_build(py, "refused", message),
    }
}
