//! Sealed slices between replicas: which a replica asks for, and which it serves.
//!
//! The replica decides when slices may be served and when they come into force. That decision and
//! the access to the store happen under one lock, so the epoch cannot change in between.

use torc_record::Epoch;
use torc_replication::{Input, LogPosition};
use torc_ring::{NodeId, Partition};
use torc_store::{Ingest, SealedPartition, Seq, StoreError};

use super::Registers;

/// Slices that a replica asks for.
#[derive(Debug, Clone, Copy)]
pub struct WantedSlices {
    /// Their partition.
    pub partition: Partition,
    /// The node that has them.
    pub from: NodeId,
    /// The epoch in which the replica asks.
    pub epoch: Epoch,
}

/// Slices of other replicas.
impl Registers {
    /// A partition's slices, if its replica here serves them in that epoch. While this node runs,
    /// they are not compacted until the partition is stable again, so the copied slices stay the
    /// ones in use.
    ///
    /// The slices stand alone: with a version that a collection hides, they also have the tombstone
    /// that hides it. A newcomer cannot rely on the tail of the log for that tombstone: the newcomer
    /// forgets at a restart where the tail begins, and a compaction here drops the tombstone. A
    /// flush of the memtable suffices, because no collection begins during a move, and every
    /// replica stores the begin of a collection before any replica ends it.
    pub async fn sealed(
        &self,
        partition: Partition,
        epoch: Epoch,
    ) -> Option<Result<SealedPartition, StoreError>> {
        match self.sealed_now(partition, epoch)? {
            Ok(sealed) if sealed.needs_flush => {}
            sealed => return Some(sealed),
        }
        match self.store.flush().await {
            Ok(_) => self.sealed_now(partition, epoch),
            // A full disk must not prevent the move: every record is in the tail then.
            Err(StoreError::OutOfSpace) => Some(Ok(SealedPartition::of(Vec::new()))),
            Err(error) => Some(Err(error)),
        }
    }

    fn sealed_now(
        &self,
        partition: Partition,
        epoch: Epoch,
    ) -> Option<Result<SealedPartition, StoreError>> {
        let mut turn = self.turn(partition);
        let slot = turn.slot(partition);
        let sealed = slot.replica.serves_slices(epoch).then(|| {
            slot.pin_slices(&self.store, partition);
            self.store.sealed(partition)
        });
        turn.end();
        sealed
    }

    /// Whether the replica still takes slices that it asked for.
    pub fn takes_slices(&self, wanted: WantedSlices) -> bool {
        let mut turn = self.turn(wanted.partition);
        let slot = turn.slot(wanted.partition);
        let takes = slot.takes_slices(wanted.from, wanted.epoch);
        turn.end();
        takes
    }

    /// Puts received slices in force, if the replica still takes them.
    pub fn publish_slices(
        &self,
        wanted: WantedSlices,
        ingest: Ingest,
    ) -> Option<impl Future<Output = Result<Seq, StoreError>> + use<>> {
        let mut turn = self.turn(wanted.partition);
        let slot = turn.slot(wanted.partition);
        let takes = slot.takes_slices(wanted.from, wanted.epoch);
        let publishing = takes.then(|| ingest.publish());
        turn.end();
        publishing
    }

    /// Tells the replica that the slices are in force, as of this position of the source's log.
    pub fn slices_copied(&self, wanted: WantedSlices, through: u64) {
        let input = Input::SlicesCopied {
            from: wanted.from,
            epoch: wanted.epoch,
            through: LogPosition(through),
        };
        self.tell(wanted.partition, input);
    }

    /// Tells the replica that it cannot have the slices: it copies records one by one instead, and
    /// reconciles those that cannot be read.
    pub fn no_slices(&self, wanted: WantedSlices) {
        let epoch = wanted.epoch;
        self.tell(wanted.partition, Input::NoSlices { epoch });
    }
}
