//! Copies sealed slices between replicas: to a new replica from the one that it displaces, or from
//! those that it merges.
//!
//! The replica decides when slices may be served and when they come into force. That decision and
//! the access to the store happen under one lock, so the epoch cannot change in between.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;
use torc_proto::v1::CopySlicesRequest;
use torc_proto::{Fault, Reason};
use torc_record::Epoch;
use torc_replication::{Input, LogPosition};
use torc_ring::{NodeId, Partition};
use torc_store::{SealedPartition, StoreError};

use super::Registers;
use crate::moves::slices::{Received, receive};
use crate::replica::MAX_HAVE;
use crate::shared::{Shared, store_fault};

/// Pause after a failed copy, before the replica may ask again.
const PAUSE: Duration = Duration::from_millis(200);

/// Slices that a replica asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) partition: Partition,
    pub(super) from: NodeId,
    pub(super) epoch: Epoch,
}

/// Copies the slices that replicas ask for, a few partitions at a time, until the node stops.
pub(super) fn run(
    shared: &Arc<Shared>,
    registers: &Arc<Registers>,
    mut wanted: mpsc::Receiver<Wanted>,
    tasks: &TaskTracker,
) {
    let copier = Arc::new(Copier {
        shared: Arc::clone(shared),
        registers: Arc::clone(registers),
        places: Semaphore::new(shared.settings.transfer_parallel),
        under_way: Mutex::default(),
    });
    let spawner = tasks.clone();
    let cancel = shared.cancel.clone();
    tasks.spawn(async move {
        let spawning = async {
            while let Some(wanted) = wanted.recv().await {
                let copy = (wanted.partition, wanted.from);
                if copier.under_way.lock().insert(copy) {
                    let (copier, cancel) = (Arc::clone(&copier), copier.shared.cancel.clone());
                    spawner.spawn(async move {
                        let copying = Box::pin(copier.copy(wanted));
                        cancel.run_until_cancelled(copying).await;
                        copier.under_way.lock().remove(&copy);
                    });
                }
            }
        };
        cancel.run_until_cancelled(spawning).await;
    });
}

struct Copier {
    shared: Arc<Shared>,
    registers: Arc<Registers>,
    places: Semaphore,
    /// Copies under way, and copies that wait for a permit.
    under_way: Mutex<HashSet<(Partition, NodeId)>>,
}

impl Copier {
    async fn copy(&self, wanted: Wanted) {
        let Wanted {
            partition, epoch, ..
        } = wanted;
        let Err(fault) = self.try_copy(wanted).await else {
            return;
        };
        self.shared.metrics.transfer_retries.inc();
        if fault.reason == Reason::Corrupt {
            // The replica now copies records one by one, and reconciles those that cannot be read.
            tracing::warn!(%partition, %fault, "could not copy slices");
            return self.registers.tell(partition, Input::NoSlices { epoch });
        }
        tracing::debug!(%partition, %fault, "could not copy slices yet; retrying");
        tokio::time::sleep(PAUSE).await;
    }

    async fn try_copy(&self, wanted: Wanted) -> Result<(), Fault> {
        let Wanted {
            partition,
            from,
            epoch,
        } = wanted;
        let place = self.places.acquire().await;
        if !self.registers.takes_slices(wanted) {
            return Ok(());
        }
        let source = self.shared.recipient(from)?;
        let held = self.shared.store.sealed(partition);
        let held = held.map_err(|error| store_fault(&error))?;
        // A slice whose digest cannot be read is not listed, so it is copied again.
        let infos = held.slices.iter().take(MAX_HAVE);
        let infos = infos.filter_map(|slice| slice.info().ok());
        let request = CopySlicesRequest {
            partition: partition.0,
            epoch: epoch.0,
            have: infos.map(|it| it.digest.to_vec().into()).collect(),
            generation: 0,
        };
        let Received {
            ingest,
            sizes,
            through,
        } = receive(&self.shared, &source, request).await?;
        // Other copies may receive data while these slices wait for the store.
        drop(place);
        if let Some(ingest) = ingest {
            let publishing = {
                let mut turn = self.registers.turn(partition);
                let takes = turn.slot(partition).takes_slices(from, epoch);
                let publishing = takes.then(|| ingest.publish());
                turn.end();
                publishing
            };
            let Some(publishing) = publishing else {
                return Ok(());
            };
            publishing.await.map_err(|error| store_fault(&error))?;
        }
        self.shared
            .metrics
            .transfer_received_records
            .inc_by(sizes.records);
        let input = Input::SlicesCopied {
            from,
            epoch,
            through: LogPosition(through),
        };
        self.registers.tell(partition, input);
        Ok(())
    }
}

impl Registers {
    /// A partition's slices, if its replica here serves them in that epoch. They are not compacted
    /// until the partition is stable again, so the copied slices stay the ones in use.
    pub(crate) fn sealed(
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

    fn takes_slices(&self, wanted: Wanted) -> bool {
        let mut turn = self.turn(wanted.partition);
        let takes = turn
            .slot(wanted.partition)
            .takes_slices(wanted.from, wanted.epoch);
        turn.end();
        takes
    }
}
