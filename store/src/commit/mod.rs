//! Group commit: writes wait in a queue, and one thread makes them durable batch by batch.
//!
//! While a batch is synced the next one fills; a short wait may be added when it is known to
//! pay off ([`gather`]). An operation is acknowledged after its batch was synced and
//! applied, in that order.

mod changes;
mod committer;
mod gather;
mod queue;

pub use changes::{Applied, LogSync};
pub(crate) use changes::{Change, Changes, Parts, Report};
pub(crate) use committer::Committer;
pub(crate) use queue::Queue;

use std::fmt;

use tokio::sync::oneshot;
use torc_record::HybridTime;
use torc_ring::Partition;

use crate::{Seq, StoreError};

/// Receives an operation's outcome. The receiver may be gone.
pub(crate) type Done<T> = oneshot::Sender<Result<T, StoreError>>;

/// Called with an outcome for which no task waits.
pub(crate) struct Callback(Option<Box<Told>>);

type Told = dyn FnOnce(Result<(), StoreError>) + Send;

impl Callback {
    pub(crate) fn new(told: impl FnOnce(Result<(), StoreError>) + Send + 'static) -> Self {
        Self(Some(Box::new(told)))
    }

    fn call(mut self, outcome: Result<(), StoreError>) {
        if let Some(told) = self.0.take() {
            told(outcome);
        }
    }
}

/// Dropping it without a call means that the thread has panicked.
impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(told) = self.0.take() {
            told(Err(StoreError::panicked()));
        }
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

/// An operation of the committer.
#[derive(Debug)]
pub(crate) enum Op {
    /// Writes these changes of partitions in one batch.
    Apply(Changes),
    /// Raises the ceiling of the node's clock.
    Ceiling { time: HybridTime, done: Callback },
    /// Accepts changes of this partition again after one has failed.
    Resume { partition: Partition },
    /// Returns the memory that the committer allocated for flushed records.
    ReleaseMemory,
    /// Starts a new segment, so that a flush covers all entries before it.
    Rotate { done: Done<Rotated> },
}

/// The border of a flush in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotated {
    /// The segment that starts there.
    pub(crate) segment: u64,
    /// The last entry before that segment; it is applied.
    pub(crate) through: Seq,
}

impl Op {
    /// Memory reserved for it in the memtable.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        match self {
            Self::Apply(changes) => changes.reserved_bytes,
            _ => 0,
        }
    }

    /// Approximate bytes in the log.
    pub(crate) fn log_bytes(&self) -> usize {
        const OTHERS: usize = 128;
        match self {
            Self::Apply(changes) => changes.log_bytes(),
            _ => OTHERS,
        }
    }

    /// Drops it without reporting an outcome.
    pub(crate) fn discard(self) {
        if let Self::Ceiling { mut done, .. } = self {
            done.0 = None;
        }
    }

    pub(crate) fn refuse(self, error: StoreError) {
        // Sending fails if the caller is gone and needs no answer.
        match self {
            Self::Rotate { done } => drop(done.send(Err(error))),
            Self::Ceiling { done, .. } => done.call(Err(error)),
            Self::Apply(mut changes) => {
                changes.refuse(&error);
                changes.complete(None);
            }
            Self::Resume { .. } | Self::ReleaseMemory => {}
        }
    }
}
