//! A build that tasks carry out, on one machine or many.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Deserialize, Serialize};
use torc_build::{Plan, Receipt, Shape, Task};

use crate::arrow::{self, Buckets};
use crate::generation::{BuildSettings, Feed, Generation, raised};

/// The state that a driver and its tasks share. Like a reservation, its text contains the secret
/// digest key.
#[derive(Serialize, Deserialize)]
struct Planned {
    out: PathBuf,
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
    Ok(BuildPlan(Planned {
        plan: plan.map_err(|failed| raised(py, failed))?,
        shape: options.shape,
        out: settings.out,
    }))
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
    fn out(&self) -> &Path {
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
        let begun = py.detach(|| self.0.plan.begin(&self.0.out, overwrite));
        begun.map_err(|failed| raised(py, failed))
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
        let begun = Task::begin(self.0.plan.clone(), &self.0.out, &scratch);
        let mut task = begun.map_err(|failed| raised(py, failed))?;
        let push = |(key, value, bucket)| task.push(key, value, bucket);
        Feed::new(push, 0, self.0.shape).take_all(rows, (key, value), bucket)?;
        let receipt = py.detach(|| task.finish());
        let receipt = receipt.map_err(|failed| raised(py, failed))?;
        let text = serde_json::to_vec(&receipt).map_err(no_json("receipt"))?;
        Ok(PyBytes::new(py, &text))
    }

    #[pyo3(signature = (receipts, *, overwrite = false))]
    fn commit(&self, receipts: &Bound<'_, PyAny>, overwrite: bool) -> PyResult<Generation> {
        let py = receipts.py();
        let mut parsed: Vec<Receipt> = Vec::new();
        for receipt in receipts.try_iter()? {
            let receipt = receipt?;
            let text = receipt.cast::<PyBytes>()?.as_bytes();
            parsed.push(serde_json::from_slice(text).map_err(no_json("receipt"))?);
        }
        let committed = py.detach(|| self.0.plan.commit(&self.0.out, &parsed, overwrite));
        committed.map_err(|failed| raised(py, failed))?;
        Generation::open(py, self.0.out.clone())
    }
}
