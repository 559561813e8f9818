//! Scans: single records for Python, from pages that the client library reads ahead.

use std::future::Future;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use futures::{FutureExt as _, StreamExt as _};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use torc_client::{Entry, Error, ScanCursor};

use crate::process::{Owned, runtime, wait};
use crate::{answer, error};

/// A record, an error, or the end.
type Step = Option<Result<Entry, Error>>;

/// State that a scan and its waiting task share.
#[derive(Clone)]
pub(crate) struct Records {
    state: Arc<Mutex<State>>,
    /// The position after the last record returned, while a wait holds the lock on the state.
    position: Arc<StdMutex<Option<ScanCursor>>>,
}

struct State {
    scan: torc_client::Scan,
    ahead: Option<Step>,
}

impl Records {
    pub(crate) fn new(scan: torc_client::Scan) -> Self {
        Self {
            state: Arc::new(Mutex::new(State { scan, ahead: None })),
            position: Arc::default(),
        }
    }

    /// The next step if it is available. `None`: wait for [`ahead`](Self::ahead).
    fn now(&self, runtime: &Runtime) -> Option<Step> {
        let mut state = self.state.try_lock().ok()?;
        let _entered = runtime.enter();
        let ahead = state.ahead.take();
        let step = ahead.or_else(|| state.scan.next().now_or_never())?;
        self.set_position(None);
        Some(step)
    }

    /// Ends when the next step is available. Dropping it loses no record.
    pub(crate) fn ahead(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = self.clone();
        async move {
            let mut state = shared.state.lock().await;
            if state.ahead.is_none() {
                shared.set_position(Some(state.scan.cursor()));
                state.ahead = Some(state.scan.next().await);
            }
        }
    }

    fn set_position(&self, position: Option<ScanCursor>) {
        *self.position.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }

    fn cursor(&self) -> ScanCursor {
        loop {
            let position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(position) = &*position {
                return position.clone();
            }
            drop(position);
            // A waiting task holds the lock and is about to set the position.
            if let Ok(state) = self.state.try_lock() {
                return state.scan.cursor();
            }
            std::thread::yield_now();
        }
    }
}

/// An iterator over records in ring order, which looks random. `torc.aio` turns it into an
/// asynchronous one.
#[pyclass(frozen, module = "torc")]
pub(crate) struct Scan(Owned<Records>);

impl Scan {
    pub(crate) fn new(records: Records) -> Self {
        Self(Owned::new(records))
    }

    pub(crate) fn records(&self, py: Python<'_>) -> PyResult<&Records> {
        self.0.get(py)
    }
}

#[pymethods]
impl Scan {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (records, runtime) = (self.records(py)?, runtime(py)?);
        loop {
            if let Some(step) = records.now(runtime) {
                return given(py, step);
            }
            wait(py, runtime, records.ahead())?;
        }
    }

    /// Whether the next step is known, and its record; `None` at the end.
    fn step<'py>(&self, py: Python<'py>) -> PyResult<(bool, Option<Bound<'py, PyAny>>)> {
        match self.records(py)?.now(runtime(py)?) {
            Some(step) => Ok((true, given(py, step)?)),
            None => Ok((false, None)),
        }
    }

    /// The position after the last record returned: `scan(after=cursor)` continues there, in any
    /// process.
    #[getter]
    fn cursor<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.records(py)?.cursor().as_bytes()))
    }
}

fn given(py: Python<'_>, step: Step) -> PyResult<Option<Bound<'_, PyAny>>> {
    match step {
        Some(Ok(entry)) => answer::entry(py, entry).map(Some),
        Some(Err(failed)) => Err(error::raised(py, &failed)),
        None => Ok(None),
    }
}
