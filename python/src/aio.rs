//! The core of `torc.aio`: operations of one event loop.
//!
//! Each operation is a task of the runtime and a future of the loop. A finished task puts its
//! answer into a queue; the first in the queue writes a byte to a socket that the loop watches, and
//! the loop then takes the whole queue. So many answers cost the loop one wake-up, and only the
//! loop's thread ever waits for the GIL.

use std::io::{Read as _, Write as _};
use std::mem;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use torc_client::Error;

use crate::answer::Answer;
use crate::convert::{Conditions, Settings};
use crate::error;
use crate::operations::{Operation, Operations};
use crate::process::{Owned, runtime};
use crate::scan::Scan;

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

/// A future of the loop and its operation's result; `None`: it was cancelled.
type Done = (Py<PyAny>, Option<Result<Answer, Error>>);

struct Queue {
    done: Mutex<Vec<Done>>,
    under_way: AtomicUsize,
    /// The loop watches `ready`; a byte arrives when the queue is no longer empty.
    wake: UnixStream,
    ready: UnixStream,
}

impl Queue {
    fn new() -> std::io::Result<Self> {
        let (wake, ready) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        ready.set_nonblocking(true)?;
        Ok(Self {
            done: Mutex::default(),
            under_way: AtomicUsize::new(0),
            wake,
            ready,
        })
    }

    fn push(&self, done: Done) {
        let mut queue = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = queue.is_empty();
        queue.push(done);
        drop(queue);
        if was_empty {
            // It can fail only if unread bytes fill the socket: the loop then wakes up anyway.
            let _ = (&self.wake).write(&[1]);
        }
    }

    fn take(&self) -> Vec<Done> {
        // First, so that an answer queued from now on wakes the loop again.
        let _ = (&self.ready).read(&mut [0; 64]);
        mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reports a task's end to the loop, even if it was aborted.
struct Report {
    queue: Arc<Queue>,
    future: Option<Py<PyAny>>,
    outcome: Option<Result<Answer, Error>>,
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.queue.push((future, self.outcome.take()));
        }
    }
}

/// A running operation.
#[pyclass(frozen, module = "torc")]
pub(crate) struct Ticket(AbortHandle);

#[pymethods]
impl Ticket {
    /// Drops the operation.
    fn cancel(&self) {
        self.0.abort();
    }
}

/// A client and the running operations of one event loop.
#[pyclass(frozen, module = "torc")]
pub(crate) struct Core {
    operations: Operations,
    queue: Owned<Arc<Queue>>,
    runtime: &'static Runtime,
}

impl Core {
    fn start(&self, future: Object<'_, '_>, operation: impl Operation) -> PyResult<Ticket> {
        let queue = Arc::clone(self.queue.get(future.py())?);
        queue.under_way.fetch_add(1, Ordering::Relaxed);
        let mut report = Report {
            queue,
            future: Some(future.clone().unbind()),
            outcome: None,
        };
        let task = async move {
            report.outcome = Some(operation.await);
            drop(report);
        };
        Ok(Ticket(self.runtime.spawn(task).abort_handle()))
    }

    fn beside(&self, py: Python<'_>, operations: Operations) -> PyResult<Self> {
        let queue = Owned::new(Arc::clone(self.queue.get(py)?));
        Ok(Self {
            operations,
            queue,
            runtime: self.runtime,
        })
    }
}

#[pymethods]
impl Core {
    #[new]
    fn new(py: Python<'_>, settings: Settings) -> PyResult<Self> {
        let operations = Operations::new(py, settings)?;
        let queue = Owned::new(Arc::new(Queue::new()?));
        Ok(Self {
            operations,
            queue,
            runtime: runtime(py)?,
        })
    }

    /// The descriptor for the loop to watch; when it is readable, call `drain`.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.queue.get(py)?.ready.as_raw_fd())
    }

    /// Gives each future its answer. Returns the number of operations still running.
    fn drain(&self, py: Python<'_>) -> PyResult<usize> {
        let queue = self.queue.get(py)?;
        let done = queue.take();
        let count = done.len();
        for (future, outcome) in done {
            let future = future.bind(py);
            // The loop may have cancelled the future in the meantime.
            if future.call_method0(intern!(py, "done"))?.is_truthy()? {
                continue;
            }
            let Some(outcome) = outcome else {
                let ended = "the operation ended without an answer, which is a bug: report it";
                let raised = PyRuntimeError::new_err(ended).into_value(py);
                future.call_method1(intern!(py, "set_exception"), (raised,))?;
                continue;
            };
            let given = outcome
                .map_err(|failed| error::raised(py, &failed))
                .and_then(|answer| answer.into_python(py));
            match given {
                Ok(answer) => future.call_method1(intern!(py, "set_result"), (answer,))?,
                Err(raised) => {
                    let raised = raised.into_value(py);
                    future.call_method1(intern!(py, "set_exception"), (raised,))?
                }
            };
        }
        Ok(queue.under_way.fetch_sub(count, Ordering::Relaxed) - count)
    }

    /// Operations whose end the loop does not know yet.
    #[getter]
    fn under_way(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.queue.get(py)?.under_way.load(Ordering::Relaxed))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.operations.close(py)
    }

    fn namespace(&self, py: Python<'_>, name: String) -> PyResult<Self> {
        self.beside(py, self.operations.namespace(py, name)?)
    }

    fn with_timeout(&self, timeout: Object<'_, '_>) -> PyResult<Self> {
        self.beside(timeout.py(), self.operations.with_timeout(timeout)?)
    }

    fn reach(&self, future: Object<'_, '_>) -> PyResult<Ticket> {
        self.start(future, self.operations.reach(future.py())?)
    }

    fn get(
        &self,
        future: Object<'_, '_>,
        key: Object<'_, '_>,
        stale: bool,
        versioned: bool,
    ) -> PyResult<Ticket> {
        self.start(future, self.operations.get(key, stale, versioned)?)
    }

    #[expect(clippy::too_many_arguments, reason = "as in Python")]
    fn put(
        &self,
        future: Object<'_, '_>,
        key: Object<'_, '_>,
        value: Object<'_, '_>,
        if_absent: bool,
        if_version: Option<Object<'_, '_>>,
        if_older_than: Option<Object<'_, '_>>,
        ttl: Option<Object<'_, '_>>,
    ) -> PyResult<Ticket> {
        let conditions = Conditions {
            absent: if_absent,
            version: if_version,
            older_than: if_older_than,
        };
        let put = self.operations.put(key, value, &conditions, ttl)?;
        self.start(future, put)
    }

    fn delete(
        &self,
        future: Object<'_, '_>,
        key: Object<'_, '_>,
        if_version: Option<Object<'_, '_>>,
    ) -> PyResult<Ticket> {
        self.start(future, self.operations.delete(key, if_version)?)
    }

    fn get_many(
        &self,
        future: Object<'_, '_>,
        keys: Object<'_, '_>,
        return_exceptions: bool,
    ) -> PyResult<Ticket> {
        self.start(future, self.operations.get_many(keys, return_exceptions)?)
    }

    fn put_many(
        &self,
        future: Object<'_, '_>,
        records: Object<'_, '_>,
        ttl: Option<Object<'_, '_>>,
        return_exceptions: bool,
    ) -> PyResult<Ticket> {
        self.start(
            future,
            self.operations.put_many(records, ttl, return_exceptions)?,
        )
    }

    fn get_arrow(&self, future: Object<'_, '_>, keys: Object<'_, '_>) -> PyResult<Ticket> {
        self.start(future, self.operations.get_arrow(keys)?)
    }

    fn put_arrow(
        &self,
        future: Object<'_, '_>,
        table: Object<'_, '_>,
        key: &str,
        value: &str,
        ttl: Option<Object<'_, '_>>,
    ) -> PyResult<Ticket> {
        self.start(future, self.operations.put_arrow(table, key, value, ttl)?)
    }

    fn scan(
        &self,
        py: Python<'_>,
        keys_only: bool,
        limit: Option<u64>,
        contains: Option<Object<'_, '_>>,
        after: Option<&[u8]>,
    ) -> PyResult<Scan> {
        let records = self
            .operations
            .scan(py, keys_only, limit, contains, after)?;
        Ok(Scan::new(records))
    }

    /// Waits until a scan's next step is known.
    fn ahead(&self, future: Object<'_, '_>, scan: &Scan) -> PyResult<Ticket> {
        let ahead = scan.records(future.py())?.ahead();
        self.start(future, async move {
            ahead.await;
            Ok(Answer::Nothing)
        })
    }
}
