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

use crate::packed::Packed;
use crate::{DropReport, Seq, StoreError, partition_table};

/// Where an operation's outcome goes. Nobody may be waiting any more.
pub(crate) type Done<T> = oneshot::Sender<Result<T, StoreError>>;

/// Whom to tell of an outcome that nobody waits for.
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

/// One that is dropped unsaid was so by a panic.
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

/// What the committer does.
#[derive(Debug)]
pub(crate) enum Op {
    /// These records, in one batch.
    Write {
        records: Vec<Packed>,
        done: Done<()>,
    },
    Drop {
        partition: Partition,
        done: Done<DropReport>,
    },
    /// These changes of partitions, in one batch.
    Apply(Changes),
    /// A ceiling of the node's clock.
    Ceiling { time: HybridTime, done: Callback },
    /// Changes of this partition are taken again after some have failed.
    Resume { partition: Partition },
    /// After a flush: what the committer made for its records is free.
    ReleaseMemory,
    /// Starts a new segment, for a flush of all before it.
    Rotate { done: Done<Rotated> },
}

/// The border that a flush is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotated {
    /// The segment that starts there.
    pub(crate) segment: u64,
    /// The last entry before it; it is applied.
    pub(crate) through: Seq,
}

impl Op {
    /// Memory that was set aside for it in the memtable.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        match self {
            Self::Write { records, .. } => records.iter().map(partition_table::cost).sum(),
            Self::Apply(changes) => changes.reserved_bytes,
            _ => 0,
        }
    }

    /// Bytes in the log, about.
    pub(crate) fn log_bytes(&self) -> usize {
        const OTHERS: usize = 128;
        match self {
            Self::Write { records, .. } => {
                OTHERS + records.iter().map(|one| one.bytes().len()).sum::<usize>()
            }
            Self::Apply(changes) => changes.log_bytes(),
            _ => OTHERS,
        }
    }

    /// Forgets it without a word to whoever is to be told.
    pub(crate) fn discard(self) {
        if let Self::Ceiling { mut done, .. } = self {
            done.0 = None;
        }
    }

    pub(crate) fn refuse(self, error: StoreError) {
        // An operation whose caller has gone needs no answer.
        match self {
            Self::Write { done, .. } => drop(done.send(Err(error))),
            Self::Drop { done, .. } => drop(done.send(Err(error))),
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
