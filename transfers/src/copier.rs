//! Copies sealed slices between replicas: to a new replica from the one that it displaces, or from
//! those that it gathers from. The replica decides (`torc_driver`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;
use torc_driver::{Registers, WantedSlices};
use torc_member::fault::store_fault;
use torc_proto::v1::CopySlicesRequest;
use torc_proto::{Fault, MAX_HAVE, Reason};
use torc_ring::{NodeId, Partition};

use crate::Transfers;
use crate::receive::{Received, receive};

/// Pause after a failed copy, before the replica may ask again.
const PAUSE: Duration = Duration::from_millis(200);

/// Copies the slices that replicas ask for, `parallel` partitions at a time, until the node stops.
pub fn run(
    transfers: &Arc<Transfers>,
    registers: &Arc<Registers>,
    parallel: usize,
    mut wanted: mpsc::Receiver<WantedSlices>,
    tasks: &TaskTracker,
) {
    let copier = Arc::new(Copier {
        transfers: Arc::clone(transfers),
        registers: Arc::clone(registers),
        places: Semaphore::new(parallel),
        under_way: Mutex::default(),
    });
    let spawner = tasks.clone();
    let cancel = transfers.cancel.clone();
    tasks.spawn(async move {
        let spawning = async {
            while let Some(wanted) = wanted.recv().await {
                let copy = (wanted.partition, wanted.from);
                if copier.under_way.lock().insert(copy) {
                    let (copier, cancel) = (Arc::clone(&copier), copier.transfers.cancel.clone());
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
    transfers: Arc<Transfers>,
    registers: Arc<Registers>,
    places: Semaphore,
    /// Copies under way, and copies that wait for a permit.
    under_way: Mutex<HashSet<(Partition, NodeId)>>,
}

impl Copier {
    async fn copy(&self, wanted: WantedSlices) {
        let partition = wanted.partition;
        let Err(fault) = self.try_copy(wanted).await else {
            return;
        };
        self.transfers.metrics.retries.inc();
        if fault.reason == Reason::Corrupt {
            tracing::warn!(%partition, %fault, "could not copy slices");
            return self.registers.no_slices(wanted);
        }
        tracing::debug!(%partition, %fault, "could not copy slices yet; retrying");
        tokio::time::sleep(PAUSE).await;
    }

    async fn try_copy(&self, wanted: WantedSlices) -> Result<(), Fault> {
        let WantedSlices {
            partition,
            from,
            epoch,
        } = wanted;
        let place = self.places.acquire().await;
        if !self.registers.takes_slices(wanted) {
            return Ok(());
        }
        let source = self.transfers.member.recipient(from)?;
        let store = self.transfers.store.clone();
        let digests = move || {
            let slices = store.sealed(partition)?.slices.into_iter().take(MAX_HAVE);
            // A slice whose digest cannot be read is not listed, so it is copied again.
            let infos = slices.filter_map(|slice| slice.info().ok());
            Ok(infos.map(|it| it.digest.to_vec().into()).collect())
        };
        let request = CopySlicesRequest {
            partition: partition.0,
            epoch: epoch.0,
            have: self.transfers.ingest(digests).await?,
            generation: 0,
        };
        let Received {
            ingest,
            sizes,
            through,
        } = receive(&self.transfers, &source, request).await?;
        // Other copies may receive data while these slices wait for the store.
        drop(place);
        if let Some(ingest) = ingest {
            let publishing = self.registers.publish_slices(wanted, ingest);
            let Some(publishing) = publishing else {
                return Ok(());
            };
            publishing.await.map_err(|error| store_fault(&error))?;
        }
        self.transfers
            .metrics
            .received_records
            .inc_by(sizes.records);
        self.registers.slices_copied(wanted, through);
        Ok(())
    }
}
