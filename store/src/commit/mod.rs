//! Group commit: writes gather in a queue, one thread makes them durable batch by batch.
//!
//! While a batch is being synced the next one gathers; a moment's wait may be added when it
//! is known to pay ([`gather`]). An operation is acknowledged after its batch was synced and
//! applied, in that order.

mod committer;
mod gather;
mod queue;

pub(crate) use committer::Committer;
pub(crate) use queue::Queue;

use tokio::sync::oneshot;
use torc_ring::Partition;

use crate::packed::Packed;
use crate::{DropReport, Seq, StoreError, overlay};

/// Where an operation's outcome goes. Nobody may be waiting any more.
pub(crate) type Done<T> = oneshot::Sender<Result<T, StoreError>>;

/// A record on its way into the log.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) packed: Packed,
    pub(crate) fingerprint: u128,
}

/// What the committer does.
#[derive(Debug)]
pub(crate) enum Op {
    /// These records, in one batch.
    Write {
        records: Vec<Offered>,
        done: Done<()>,
    },
    Drop {
        partition: Partition,
        done: Done<DropReport>,
    },
    /// Starts a new segment, for a checkpoint of all before it.
    Rotate { done: Done<Rotated> },
}

/// The border that a checkpoint is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotated {
    /// The segment that starts there.
    pub(crate) segment: u64,
    /// The last entry before it; it is applied.
    pub(crate) through: Seq,
}

impl Op {
    /// Memory of the overlay that the operation may add.
    pub(crate) fn overlay_cost(&self) -> u64 {
        match self {
            Self::Write { records, .. } => records
                .iter()
                .map(|offered| overlay::cost(&offered.packed))
                .sum(),
            Self::Drop { .. } | Self::Rotate { .. } => 0,
        }
    }

    /// Bytes in the log, about.
    pub(crate) fn log_bytes(&self) -> usize {
        match self {
            Self::Write { records, .. } => records
                .iter()
                .map(|offered| offered.packed.bytes().len())
                .sum(),
            Self::Drop { .. } | Self::Rotate { .. } => 8,
        }
    }

    pub(crate) fn refuse(self, error: StoreError) {
        // An operation whose caller has gone needs no answer.
        match self {
            Self::Write { done, .. } => drop(done.send(Err(error))),
            Self::Drop { done, .. } => drop(done.send(Err(error))),
            Self::Rotate { done } => drop(done.send(Err(error))),
        }
    }
}
