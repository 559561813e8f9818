//! Requests work from a background thread, and stops it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::StoreError;
use crate::commit::Done;

/// The requests of a thread; `T` is the report of a round.
#[derive(Debug)]
pub(crate) struct Requests<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    is_stopping: AtomicBool,
}

#[derive(Debug)]
struct State<T> {
    is_due: bool,
    is_working: bool,
    waiting: Vec<Done<T>>,
    has_ended: bool,
}

/// Why the thread wakes up.
#[derive(Debug)]
pub(crate) enum Wake<T> {
    /// A round was requested; these callers wait for the outcome.
    Asked(Vec<Done<T>>),
    /// No request for the given time.
    Idle,
    /// The store is closing.
    Stop,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                is_due: false,
                is_working: false,
                waiting: Vec::new(),
                has_ended: false,
            }),
            changed: Condvar::new(),
            is_stopping: AtomicBool::new(false),
        }
    }
}

impl<T: Clone> Requests<T> {
    /// Requests a round.
    pub(crate) fn want(&self) {
        let mut state = self.state.lock();
        if !state.is_due {
            state.is_due = true;
            self.changed.notify_one();
        }
    }

    /// Requests a round, unless one is in progress, which may do the work: the caller checks again
    /// after it has ended.
    pub(crate) fn want_unless_working(&self) {
        let mut state = self.state.lock();
        if !state.is_due && !state.is_working {
            state.is_due = true;
            self.changed.notify_one();
        }
    }

    /// The round has ended.
    pub(crate) fn finish(&self) {
        self.state.lock().is_working = false;
    }

    /// Requests a round that begins after this call.
    pub(crate) fn ask(&self, done: Done<T>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(StoreError::Closed);
        }
        state.waiting.push(done);
        self.changed.notify_one();
        Ok(())
    }

    /// Abandons the round in progress, and begins no other.
    pub(crate) fn stop(&self) {
        // The lock orders the flag before the thread's next check.
        let _state = self.state.lock();
        self.is_stopping.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Waits until there is something to do, at most for `timeout`.
    pub(crate) fn next(&self, timeout: Duration) -> Wake<T> {
        let mut state = self.state.lock();
        loop {
            if self.is_stopping() {
                return Wake::Stop;
            }
            let is_due = std::mem::take(&mut state.is_due);
            if is_due || !state.waiting.is_empty() {
                state.is_working = true;
                return Wake::Asked(std::mem::take(&mut state.waiting));
            }
            if self.changed.wait_for(&mut state, timeout).timed_out() {
                return Wake::Idle;
            }
        }
    }

    /// Answers all waiting callers, for good.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        for done in state.waiting.drain(..) {
            drop(done.send(Err(StoreError::Closed)));
        }
    }
}
