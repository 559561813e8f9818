//! A build that tasks carry out, on one machine or many.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Deserialize, Serialize};
use torc_build::{BuildError, Plan, Receipt, Shape, Task};
use torc_objects::{Location, url_of};

use crate::arrow::{self, Buckets};
use crate::generation::{BuildSettings, Feed, raised};
use crate::process;

/// The state that a driver and its tasks share. Like a reservation, its text contains the secret
/// digest key.
#[derive(Serialize, Deserialize)]
struct Planned {
    /// The URL of the location.
    out: String,
    shape: Shape,
    plan: Plan,
}

/// A build that tasks carry out.
#[pyclass(frozen, module = "torc")]
pub(crate) struct BuildPlan(Planned);

/// Makes a plan; `torc.plan_build` has the details.
#[pyfunction]
pub(crate) fn plan_build(
    py: Python<'_>,
    settings: BuildSettings,
    buckets: u32,
) -> PyResult<BuildPlan> {
    let options = settings.options()?;
    let plan = Plan::for_tasks(settings.target(py)?, &options, buckets);
    let out = url(&settings.out).map_err(|failed| raised(py, failed))?;
    Ok(BuildPlan(Planned {
        plan: plan.map_err(|failed| raised(py, failed))?,
        shape: options.shape,
        out,
    }))
}

/// The URL that a path is, or the URL of the path.
fn url(out: &Path) -> Result<String, BuildError> {
    match out.to_str() {
        Some(url) if url.contains("://") || url.starts_with("file:") => Ok(url.to_owned()),
        _ => Ok(url_of(out)?),
    }
}

fn no_json(what: &'static str) -> impl FnOnce(serde_json::Error) -> PyErr {
    move |error| PyValueError::new_err(format!("this is not a {what}: {error}"))
}

#[pymethods]
impl BuildPlan {
    /// Restores a pickled plan.
    #[new]
    fn of(text: &str) -> PyResult<Self> {
        let planned = serde_json::from_str(text);
        planned.map(Self).map_err(no_json("plan"))
    }

    fn __getnewargs__(&self) -> PyResult<(String,)> {
        let text = serde_json::to_string(&self.0).map_err(no_json("plan"))?;
        Ok((text,))
    }

    #[getter]
    fn out(&self) -> &str {
        &self.0.out
    }

    #[getter]
    fn buckets(&self) -> u32 {
        self.0.plan.buckets()
    }

    fn buckets_of(&self, keys: &Bound<'_, PyAny>) -> PyResult<Buckets> {
        let keys = arrow::keys(keys)?;
        let bucket = |key| self.0.plan.bucket_of(key).cast_signed();
        Ok(Buckets::new(keys.iter().map(|key| bucket(key)).collect()))
    }

    #[pyo3(signature = (*, overwrite = false))]
    fn begin(&self, py: Python<'_>, overwrite: bool) -> PyResult<()> {
        let to = self.location(py)?;
        waited(py, self.0.plan.begin(&to, overwrite))
    }

    #[pyo3(signature = (rows, *, key = "key", value = "value", bucket = None, scratch = None))]
    fn write<'py>(
        &self,
        rows: &Bound<'py, PyAny>,
        key: &str,
        value: &str,
        bucket: Option<&str>,
        scratch: Option<PathBuf>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let py = rows.py();
        let scratch = scratch.unwrap_or_else(std::env::temp_dir);
        let begun = Task::begin(self.0.plan.clone(), self.location(py)?, &scratch);
        let mut task = begun.map_err(|failed| raised(py, failed))?;
        let push = |(key, value, bucket)| task.push(key, value, bucket);
        Feed::new(push, 0, self.0.shape).take_all(rows, (key, value), bucket)?;
        let receipt = waited(py, task.finish())?;
        let text = serde_json::to_vec(&receipt).map_err(no_json("receipt"))?;
        Ok(PyBytes::new(py, &text))
    }

    #[pyo3(signature = (receipts, *, overwrite = false))]
    fn commit(&self, receipts: &Bound<'_, PyAny>, overwrite: bool) -> PyResult<String> {
        let py = receipts.py();
        let mut parsed: Vec<Receipt> = Vec::new();
        for receipt in receipts.try_iter()? {
            let receipt = receipt?;
            let text = receipt.cast::<PyBytes>()?.as_bytes();
            parsed.push(serde_json::from_slice(text).map_err(no_json("receipt"))?);
        }
        let to = self.location(py)?;
        let committed = waited(py, self.0.plan.commit(to, &parsed, overwrite))?;
        Ok(committed.url().to_owned())
    }
}

impl BuildPlan {
    fn location(&self, py: Python<'_>) -> PyResult<Location> {
        Location::open(&self.0.out).map_err(|failed| raised(py, failed.into()))
    }
}

/// Waits in the runtime, which object stores need.
fn waited<T: Send>(
    py: Python<'_>,
    done: impl Future<Output = Result<T, BuildError>> + Send,
) -> PyResult<T> {
    let done = process::wait(py, process::runtime(py)?, done)?;
    done.map_err(|failed| raised(py, failed))
}
