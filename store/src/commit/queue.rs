//! The queue before the committer, bounded by bytes.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Semaphore;

use super::Op;
use super::gather::Gather;
use crate::StoreError;
use crate::counters::Counter;

/// A batch takes no further operation beyond this.
const BATCH_BYTES: usize = 4 << 20;
/// Memory of an operation beyond its records, about.
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
    /// With the room each takes.
    ops: VecDeque<(Op, usize)>,
    is_closing: bool,
    ended: Option<StoreError>,
    /// The committer sleeps until this many operations wait.
    wake_at: Option<usize>,
}

/// An operation that is not taken, and why.
pub(crate) type Refusal = Box<(Op, StoreError)>;

/// What there is to do.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A batch, oldest first; a rotation comes alone.
    Ops(Vec<Op>),
    /// Nothing came in time.
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

    /// Adds an operation as soon as there is room for it; counts if it has to wait.
    pub(crate) async fn push(&self, op: Op, stalls: &Counter) -> Result<(), StoreError> {
        let room = (op.log_bytes() + OP_BYTES).min(self.limit);
        let permits = if let Ok(permits) = self.room.try_acquire_many(room as u32) {
            permits
        } else {
            stalls.add(1);
            let waited = self.room.acquire_many(room as u32).await;
            waited.map_err(|_| self.why_ended())?
        };
        self.push_with_room(op, room).map_err(|refusal| refusal.1)?;
        // The committer gives the room back when it takes the operation.
        permits.forget();
        Ok(())
    }

    /// Adds an operation that takes no room: one of the store's own, or one that is bounded
    /// otherwise. Gives it back with the reason if none are taken any more.
    pub(crate) fn push_control(&self, op: Op) -> Result<(), Refusal> {
        self.push_with_room(op, 0)
    }

    fn push_with_room(&self, op: Op, room: usize) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if let Some(why) = &state.ended {
            return Err(Box::new((op, why.clone())));
        }
        if state.is_closing {
            return Err(Box::new((op, StoreError::Closed)));
        }
        state.ops.push_back((op, room));
        if state.wake_at.is_some_and(|count| state.ops.len() >= count) {
            state.wake_at = None;
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Operations that wait now.
    pub(super) fn len(&self) -> usize {
        self.state.lock().ops.len()
    }

    /// The next batch; waits for one, at most for `patience` if there is any. Then waits
    /// for it to grow, as `gather` wishes.
    pub(super) fn take(&self, patience: Option<Duration>, gather: &mut Gather) -> Taken {
        let mut state = self.state.lock();
        while state.ops.is_empty() {
            if state.is_closing {
                return Taken::Closed;
            }
            if !self.wait(&mut state, 1, patience) {
                return Taken::Idle;
            }
        }
        if let Some((count, patience)) = gather.wish()
            && state.ops.len() < count
            && !state.is_closing
        {
            self.wait(&mut state, count, Some(patience));
            gather.note_wait(state.ops.len() >= count);
        }
        let (ops, room) = state.next_batch();
        drop(state);
        self.room.add_permits(room);
        Taken::Ops(ops)
    }

    /// Sleeps until so many operations wait, the queue is closed, or patience runs out, which
    /// gives false. May wake up early.
    fn wait(
        &self,
        state: &mut MutexGuard<'_, State>,
        count: usize,
        patience: Option<Duration>,
    ) -> bool {
        state.wake_at = Some(count);
        let in_time = match patience {
            None => {
                self.ready.wait(state);
                true
            }
            Some(patience) => !self.ready.wait_for(state, patience).timed_out(),
        };
        state.wake_at = None;
        in_time
    }

    /// Takes no new operations; those that wait are still to be done.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        self.ready.notify_one();
    }

    /// Ends the queue for good. Returns what was waiting.
    pub(crate) fn end(&self, why: &StoreError) -> Vec<Op> {
        let mut state = self.state.lock();
        state.ended.get_or_insert_with(|| why.clone());
        let waiting = state.ops.drain(..).map(|(op, _)| op).collect();
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
    /// Takes off what goes into one batch, and the room it took in the queue.
    fn next_batch(&mut self) -> (Vec<Op>, usize) {
        let mut batch = Vec::with_capacity(self.ops.len().min(1024));
        let (mut bytes, mut room) = (0, 0);
        while let Some((op, taken)) = self.ops.pop_front() {
            let is_rotation = matches!(op, Op::Rotate { .. });
            let is_full = bytes + op.log_bytes() > BATCH_BYTES;
            if !batch.is_empty() && (is_rotation || is_full) {
                self.ops.push_front((op, taken));
                break;
            }
            bytes += op.log_bytes();
            room += taken;
            batch.push(op);
            if is_rotation {
                break;
            }
        }
        (batch, room)
    }
}
