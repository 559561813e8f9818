//! What a node does because partitions move: copies them, proves them equal, fences
//! the node it displaces, drops what it holds no more, and reports the facts that
//! let the topology go to the next stage.
//!
//! For each partition and epoch one task runs until it is done or the epoch is over.
//! Everything it needs to go on after a crash is in the topology, in the store, and
//! (as a shortcut that may be lost) in the cursor it keeps in the advisory state.

mod reporter;
mod retreat;
pub(crate) mod slices;
mod throttle;
mod transfer;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use torc_proto::Fault;
use torc_proto::v1::FenceRequest;
use torc_record::Epoch;
use torc_replication::Role;
use torc_ring::replicas::Config;
use torc_ring::topology::{Fact, Sizes, Stage};
use torc_ring::{NodeId, Partition};
use torc_store::FoldHold;

pub(crate) use reporter::Reporter;
pub(crate) use throttle::Throttle;

use crate::gate::Adopted;
use crate::peers::within;
use crate::shared::Shared;
use transfer::Transfer;

const RETRY: Duration = Duration::from_millis(100);
const FENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs until the node stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let tasks = TaskTracker::new();
    let mover = Arc::new(Mover {
        reporter: Reporter::start(&shared, &tasks),
        copies: Semaphore::new(shared.settings.transfer_parallel),
        sources: Mutex::default(),
        shared: Arc::clone(&shared),
    });
    tasks.spawn(retreat::run(Arc::clone(&shared)));
    let mut handled = HashMap::new();
    let mut changes = shared.gates.subscribe();
    loop {
        changes.mark_unchanged();
        for (partition, adopted, config) in mover.unhandled(&mut handled).await {
            mover.begin(&tasks, partition, adopted, &config);
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { break },
            () = shared.cancel.cancelled() => break,
        }
    }
    tasks.close();
    tasks.wait().await;
}

struct Mover {
    shared: Arc<Shared>,
    reporter: Reporter,
    copies: Semaphore,
    /// Partitions that are being copied from here: folding them would change what is new
    /// in them.
    sources: Mutex<HashMap<Partition, FoldHold>>,
}

impl Mover {
    /// Partitions that have adopted an epoch since they were last looked at.
    async fn unhandled(
        &self,
        handled: &mut HashMap<Partition, Epoch>,
    ) -> Vec<(Partition, Adopted, Arc<Config>)> {
        let Ok(table) = self.shared.routing() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for state in &table.states {
            let partition = state.config.partition;
            if handled.get(&partition) == Some(&state.epoch) {
                continue;
            }
            let Some(adopted) = self.shared.gates.adopted(partition).await else {
                continue;
            };
            if adopted.epoch == state.epoch {
                handled.insert(partition, state.epoch);
                found.push((partition, adopted, Arc::clone(&state.config)));
            }
        }
        found
    }

    /// Starts whatever this node has to do for the partition in this epoch.
    fn begin(
        self: &Arc<Self>,
        tasks: &TaskTracker,
        partition: Partition,
        adopted: Adopted,
        config: &Config,
    ) {
        let (stage, returning) = (config.stage, config.returning);
        let epoch = adopted.epoch;
        let mover = Arc::clone(self);
        self.hold_folds(partition, adopted.role, stage);
        match (stage, adopted.role) {
            (Stage::Copying, Role::Newcomer { source }) => {
                tasks.spawn(async move { mover.copy(partition, epoch, source).await });
            }
            // On the way back nothing is copied: the new side only has to know.
            (Stage::WriteBothReadOld, Role::Follower { .. }) if returning => {
                self.reporter.report(partition, epoch, Fact::Adopted);
            }
            (Stage::WriteBothReadOld, Role::Follower { lead }) => {
                tasks.spawn(async move { mover.snapshot(partition, epoch, lead).await });
            }
            (
                Stage::WriteBothReadNew,
                Role::Lead {
                    displaces: Some(old),
                    ..
                },
            ) => {
                tasks.spawn(async move { mover.fence(partition, epoch, old).await });
            }
            (Stage::WriteBothReadOld, Role::Lead { .. })
            | (Stage::WriteBothReadNew, Role::Follower { .. }) => {
                self.reporter.report(partition, epoch, Fact::Adopted);
            }
            (Stage::Stable, Role::Outsider) if self.holds(partition) => {
                tasks.spawn(async move { mover.drop_copy(partition, epoch).await });
            }
            // Until a majority has, others may not discard what they held before.
            (Stage::Stable, Role::Lead { .. }) if self.is_settling(partition) => {
                self.reporter.report(partition, epoch, Fact::Adopted);
            }
            _ => {}
        }
    }

    fn is_settling(&self, partition: Partition) -> bool {
        let topology = self.shared.group.topology();
        topology.is_some_and(|topology| !topology.may_discard(partition))
    }

    fn hold_folds(&self, partition: Partition, role: Role, stage: Stage) {
        let is_source = stage != Stage::Stable && matches!(role, Role::Lead { .. });
        let mut sources = self.sources.lock();
        if is_source {
            let hold = || self.shared.store.hold(partition);
            sources.entry(partition).or_insert_with(hold);
        } else {
            sources.remove(&partition);
        }
    }

    fn holds(&self, partition: Partition) -> bool {
        self.shared.store.summary(partition).records > 0
    }

    /// Whether the partition has gone on to another epoch, or the node stops.
    async fn is_over(&self, partition: Partition, epoch: Epoch) -> bool {
        let adopted = self.shared.gates.adopted(partition).await;
        self.shared.cancel.is_cancelled() || adopted.is_none_or(|adopted| adopted.epoch != epoch)
    }

    async fn copy(&self, partition: Partition, epoch: Epoch, source: NodeId) {
        while !self.is_over(partition, epoch).await {
            match self.copy_once(partition, epoch, source).await {
                Ok(sizes) => {
                    return self.reporter.report(partition, epoch, Fact::Copied(sizes));
                }
                Err(fault) => self.hold_on("copying", partition, &fault).await,
            }
        }
    }

    async fn copy_once(
        &self,
        partition: Partition,
        epoch: Epoch,
        source: NodeId,
    ) -> Result<Sizes, Fault> {
        let mut transfer = Transfer::resume(&self.shared, partition, epoch, source).await;
        let permit = self.copies.acquire().await;
        let received = transfer.receive_slices().await?;
        // Others may receive while these slices wait to be published together with theirs.
        drop(permit);
        if let Some(received) = received {
            transfer.publish_slices(received).await?;
        }
        let _permit = self.copies.acquire().await;
        transfer.pass().await?;
        Ok(transfer.take_sizes().await)
    }

    async fn snapshot(&self, partition: Partition, epoch: Epoch, source: NodeId) {
        let Ok(_permit) = self.copies.acquire().await else {
            return;
        };
        while !self.is_over(partition, epoch).await {
            let mut transfer = Transfer::resume(&self.shared, partition, epoch, source).await;
            match transfer.until_equal().await {
                Ok(()) => {
                    let sizes = transfer.take_sizes().await;
                    return self
                        .reporter
                        .report(partition, epoch, Fact::Snapshotted(sizes));
                }
                Err(fault) => self.hold_on("catching up with", partition, &fault).await,
            }
        }
    }

    /// Makes sure that the old lead serves no more, then begins to serve.
    async fn fence(&self, partition: Partition, epoch: Epoch, old: NodeId) {
        while !self.is_over(partition, epoch).await {
            match self.fence_once(partition, epoch, old).await {
                Ok(()) => {
                    self.shared.gates.open(partition, epoch).await;
                    return Transfer::forget(&self.shared, partition).await;
                }
                Err(fault) => self.hold_on("taking over", partition, &fault).await,
            }
        }
    }

    async fn fence_once(
        &self,
        partition: Partition,
        epoch: Epoch,
        old: NodeId,
    ) -> Result<(), Fault> {
        let table = self.shared.routing()?;
        let Some(address) = table.address(old) else {
            return Ok(());
        };
        let request = FenceRequest {
            partition: partition.0,
            epoch: epoch.0,
        };
        let mut client = self.shared.peers.replica(address)?;
        let fenced = client.fence(within(FENCE_TIMEOUT, request)).await;
        fenced
            .map(drop)
            .map_err(|status| Fault::from_status(&status))
    }

    async fn drop_copy(&self, partition: Partition, epoch: Epoch) {
        while !self.is_over(partition, epoch).await {
            match self.shared.store.drop_partition(partition).await {
                Ok(report) => {
                    tracing::debug!(%partition, records = report.records, "dropped a copy");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%partition, %error, "could not drop a copy; trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn hold_on(&self, doing: &str, partition: Partition, fault: &Fault) {
        tracing::debug!(%partition, %fault, "{doing} a partition; trying again");
        self.shared.metrics.transfer_retries.inc();
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = self.shared.cancel.cancelled() => {}
        }
    }
}
