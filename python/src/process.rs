//! The runtime of this process, and objects that must not cross a fork.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::error::{self, Unusable};

/// It drives connections and the operations of event loops; other threads poll their own
/// operations.
const WORKERS: usize = 1;
/// How often a wait checks for Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// The runtime and the id of its process. Locked only while holding the GIL, which a fork also
/// holds, so no child inherits it locked.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// The one runtime of this process, for all clients.
pub(crate) fn runtime(_: Python<'_>) -> PyResult<&'static Runtime> {
    let pid = process::id();
    let mut known = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    match *known {
        Some((owner, runtime)) if owner == pid => Ok(runtime),
        _ => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(WORKERS).thread_name("torc");
            // It lives as long as the process; a parent's has no threads here.
            let runtime: &'static Runtime = Box::leak(Box::new(builder.enable_all().build()?));
            *known = Some((pid, runtime));
            Ok(runtime)
        }
    }
}

/// Waits without the GIL.
///
/// The thread polls by itself. `Runtime::block_on` with a timeout for signals would also work, but
/// its timer, being the earliest, would wake the runtime's thread in each operation.
///
/// # Errors
/// Exceptions of signal handlers, above all `KeyboardInterrupt`. They drop the future.
pub(crate) fn wait<F>(py: Python<'_>, runtime: &Runtime, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    py.detach(|| {
        let _entered = runtime.enter();
        let woken = Arc::new(Woken {
            thread: thread::current(),
            is_woken: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut checked = Instant::now();
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Ok(output);
            }
            while !woken.is_woken.swap(false, Ordering::Acquire) {
                thread::park_timeout(SIGNALS_EVERY);
                // Also if answers keep waking the thread.
                if checked.elapsed() >= SIGNALS_EVERY {
                    check_signals()?;
                    checked = Instant::now();
                }
            }
        }
    })
}

/// A thread that waits.
struct Woken {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "it would be of one lifetime only"
)]
fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// An object that only its own process may use. A forked child leaks its copy, because locks in
/// it may be held by threads that the child does not have.
pub(crate) struct Owned<T> {
    pid: u32,
    inner: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(inner: T) -> Self {
        let pid = process::id();
        let inner = ManuallyDrop::new(inner);
        Self { pid, inner }
    }

    /// # Errors
    /// [`Unusable::Forked`].
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        if self.pid == process::id() {
            Ok(&self.inner)
        } else {
            Err(error::unusable(py, Unusable::Forked))
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.pid == process::id() {
            // SAFETY: nothing uses `inner` after this, which is the end of its owner.
            unsafe { ManuallyDrop::drop(&mut self.inner) }
        }
    }
}
