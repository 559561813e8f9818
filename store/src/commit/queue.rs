//! The queue of the committer, bounded in bytes.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the limit is at most u32::MAX"
)]

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Semaphore;

use super::gather::Gather;
use super::{Changes, Op};
use crate::StoreError;
use crate::counters::Counter;

/// A batch takes no more operations once it has this many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Approximate memory of an operation without its records.
const OP_BYTES: usize = 128;

/// Operations that wait to be committed.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    room: Semaphore,
    limit: usize,
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
    /// Its share of the queue's capacity.
    room: usize,
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
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        let limit = limit.min(u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        Self {
            state: Mutex::default(),
            ready: Condvar::new(),
            room: Semaphore::new(limit),
            limit,
        }
    }

    /// Adds an operation as soon as there is room; counts a stall if it has to wait.
    pub(crate) async fn push(&self, op: Op, stalls: &Counter) -> Result<(), StoreError> {
        let bytes = op.log_bytes();
        let room = (bytes + OP_BYTES).min(self.limit);
        let permits = if let Ok(permits) = self.room.try_acquire_many(room as u32) {
            permits
        } else {
            stalls.add(1);
            let waited = self.room.acquire_many(room as u32).await;
            waited.map_err(|_| self.why_ended())?
        };
        let waiting = Waiting { op, bytes, room };
        self.push_waiting(waiting).map_err(|refusal| refusal.1)?;
        // The committer releases the room when it takes the operation.
        permits.forget();
        Ok(())
    }

    /// Adds an operation that takes no room: one of the store's own, or one with another limit.
    /// Returns it with the reason if the queue accepts no more.
    pub(crate) fn push_control(&self, op: Op) -> Result<(), Refusal> {
        let bytes = op.log_bytes();
        self.push_waiting(Waiting { op, bytes, room: 0 })
    }

    /// Adds changes next to each other, in the same way.
    pub(crate) fn push_changes(&self, parts: Vec<Changes>) -> Result<(), Refusal<Vec<Changes>>> {
        let mut state = self.state.lock();
        if let Err(why) = state.check() {
            return Err(Box::new((parts, why)));
        }
        for changes in parts {
            let bytes = changes.log_bytes();
            let op = Op::Apply(changes);
            state.ops.push_back(Waiting { op, bytes, room: 0 });
        }
        self.wake(&mut state);
        Ok(())
    }

    fn push_waiting(&self, waiting: Waiting) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if let Err(why) = state.check() {
            return Err(Box::new((waiting.op, why)));
        }
        state.ops.push_back(waiting);
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
        let (ops, room) = state.next_batch();
        drop(state);
        self.room.add_permits(room);
        Taken::Ops(ops)
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
        let waiting = state.ops.drain(..).map(|one| one.op).collect();
        drop(state);
        self.room.close();
        waiting
    }

    fn why_ended(&self) -> StoreError {
        let state = self.state.lock();
        state.ended.clone().unwrap_or(StoreError::Closed)
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

    /// Removes the operations of the next batch; returns them and their room in the queue.
    fn next_batch(&mut self) -> (Vec<Op>, usize) {
        let mut batch = Vec::with_capacity(self.ops.len().min(1024));
        let (mut bytes, mut room) = (0, 0);
        while let Some(next) = self.ops.front() {
            let is_rotation = matches!(next.op, Op::Rotate { .. });
            bytes += next.bytes;
            if !batch.is_empty() && (is_rotation || bytes > BATCH_BYTES) {
                break;
            }
            if let Some(next) = self.ops.pop_front() {
                room += next.room;
                batch.push(next.op);
            }
            if is_rotation {
                break;
            }
        }
        (batch, room)
    }
}
