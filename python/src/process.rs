//! The runtime of this process, and what must not cross a fork.

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

/// It drives connections and what event loops wait for; threads poll what they wait for.
const WORKERS: usize = 1;
/// A wait takes note of Ctrl-C so often.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// The runtime, with the process that it runs in. Locked only with the GIL held, which a fork holds too: no child
/// inherits it locked.
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

/// Waits outside of the GIL.
///
/// The thread polls by itself. `Runtime::block_on` with a timeout for signals would do the same, but a timer that ends
/// before all others wakes the runtime's thread up, with each operation.
///
/// # Errors
/// What a signal handler raises, `KeyboardInterrupt` above all. The future is dropped then.
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
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Ok(output);
            }
            while !woken.is_woken.swap(false, Ordering::Acquire) {
                let began = Instant::now();
                thread::park_timeout(SIGNALS_EVERY);
                if began.elapsed() >= SIGNALS_EVERY {
                    check_signals()?;
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

/// What only the process that made it may use. Another one, a forked child, leaks its copy: locks
/// in there may be held by threads that it does not have.
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
