//! The queue of the committer. What waits in it is bounded by the memory that its callers reserve.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::gather::Gather;
use super::{Changes, Op};
use crate::StoreError;

/// A batch takes no more operations once it has this many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// Operations that wait to be committed.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ops: VecDeque<Waiting>,
    is_closing: bool,
    ended: Option<StoreError>,
    /// The committer sleeps until this many operations wait.
    wake_at: Option<usize>,
}

#[derive(Debug)]
struct Waiting {
    op: Op,
    /// Approximate bytes in the log.
    bytes: usize,
}

/// Operations that the queue refuses, and the reason.
pub(crate) type Refusal<T = Op> = Box<(T, StoreError)>;

/// The result of taking from the queue.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A batch, oldest operation first; a rotation is always alone.
    Ops(Vec<Op>),
    /// Nothing arrived before the timeout.
    Idle,
    /// The queue was closed and is empty.
    Closed,
}

impl Queue {
    /// Adds an operation, or returns it with the reason if the queue accepts no more.
    pub(crate) fn push(&self, op: Op) -> Result<(), Refusal> {
        let bytes = op.log_bytes();
        let mut state = self.state.lock();
        if let Err(why) = state.check() {
            return Err(Box::new((op, why)));
        }
        state.ops.push_back(Waiting { op, bytes });
        self.wake(&mut state);
        Ok(())
    }

    /// Adds changes next to each other, as [`Queue::push`].
    pub(crate) fn push_changes(&self, parts: Vec<Changes>) -> Result<(), Refusal<Vec<Changes>>> {
        let mut state = self.state.lock();
        if let Err(why) = state.check() {
            return Err(Box::new((parts, why)));
        }
        for changes in parts {
            let bytes = changes.log_bytes();
            let op = Op::Apply(changes);
            state.ops.push_back(Waiting { op, bytes });
        }
        self.wake(&mut state);
        Ok(())
    }

    fn wake(&self, state: &mut State) {
        if state.wake_at.is_some_and(|count| state.ops.len() >= count) {
            state.wake_at = None;
            self.ready.notify_one();
        }
    }

    /// The number of waiting operations.
    pub(super) fn len(&self) -> usize {
        self.state.lock().ops.len()
    }

    /// The next batch. Waits until there is one, at most for `timeout` if given, then waits for it
    /// to grow up to the target of `gather`.
    pub(super) fn take(&self, timeout: Option<Duration>, gather: &mut Gather) -> Taken {
        let mut state = self.state.lock();
        while state.ops.is_empty() {
            if state.is_closing {
                return Taken::Closed;
            }
            if !self.wait(&mut state, 1, timeout) {
                return Taken::Idle;
            }
        }
        if let Some((count, longest)) = gather.target()
            && state.ops.len() < count
            && !state.is_closing
        {
            self.wait(&mut state, count, Some(longest));
            gather.note_wait(state.ops.len() >= count);
        }
        Taken::Ops(state.next_batch())
    }

    /// Sleeps until this many operations wait or the queue is closed; returns false on timeout. May
    /// wake up early.
    fn wait(
        &self,
        state: &mut MutexGuard<'_, State>,
        count: usize,
        timeout: Option<Duration>,
    ) -> bool {
        state.wake_at = Some(count);
        let in_time = match timeout {
            None => {
                self.ready.wait(state);
                true
            }
            Some(timeout) => !self.ready.wait_for(state, timeout).timed_out(),
        };
        state.wake_at = None;
        in_time
    }

    /// Accepts no new operations; waiting ones are still carried out.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        self.ready.notify_one();
    }

    /// Ends the queue for good. Returns the operations that were waiting.
    pub(crate) fn end(&self, why: &StoreError) -> Vec<Op> {
        let mut state = self.state.lock();
        state.ended.get_or_insert_with(|| why.clone());
        state.ops.drain(..).map(|one| one.op).collect()
    }
}

impl State {
    fn check(&self) -> Result<(), StoreError> {
        match &self.ended {
            Some(why) => Err(why.clone()),
            None if self.is_closing => Err(StoreError::Closed),
            None => Ok(()),
        }
    }

    /// Removes the operations of the next batch.
    fn next_batch(&mut self) -> Vec<Op> {
        let mut batch = Vec::with_capacity(self.ops.len().min(1024));
        let mut bytes = 0;
        while let Some(next) = self.ops.front() {
            let is_rotation = matches!(next.op, Op::Rotate { .. });
            bytes += next.bytes;
            if !batch.is_empty() && (is_rotation || bytes > BATCH_BYTES) {
                break;
            }
            if let Some(next) = self.ops.pop_front() {
                batch.push(next.op);
            }
            if is_rotation {
                break;
            }
        }
        batch
    }
}
