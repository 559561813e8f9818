//! Reports facts to the topology group: many at once, until they are committed or void.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use torc_record::Epoch;
use torc_ring::Partition;
use torc_ring::topology::{Command, Fact, Report};

use crate::clock::unix_ms;
use crate::shared::Shared;

/// Facts in one command.
const BATCH: usize = 1024;
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Every command is a topology that all nodes write down and adopt: what comes within so
/// long goes along.
const GATHER: Duration = Duration::from_millis(10);
const RETRY: Duration = Duration::from_millis(50);

/// Takes facts; a task of its own commits them.
pub(crate) struct Reporter {
    queue: mpsc::UnboundedSender<Report>,
}

impl Reporter {
    pub(crate) fn start(shared: &Arc<Shared>, tasks: &TaskTracker) -> Self {
        let (queue, facts) = mpsc::unbounded_channel();
        let shared = Arc::clone(shared);
        tasks.spawn(async move {
            tokio::select! {
                () = commit_all(&shared, facts) => {}
                () = shared.cancel.cancelled() => {}
            }
        });
        Self { queue }
    }

    /// Queues a fact. At most a few a partition and epoch, so the queue is bounded by
    /// the partitions in flight.
    pub(crate) fn report(&self, partition: Partition, epoch: Epoch, fact: Fact) {
        let report = Report {
            partition,
            epoch,
            fact,
            at_ms: unix_ms(),
        };
        // Fails only when the node stops.
        let _ = self.queue.send(report);
    }
}

async fn commit_all(shared: &Shared, mut facts: mpsc::UnboundedReceiver<Report>) {
    let mut reports = Vec::new();
    while facts.recv_many(&mut reports, BATCH).await > 0 {
        tokio::time::sleep(GATHER).await;
        while reports.len() < BATCH
            && let Ok(report) = facts.try_recv()
        {
            reports.push(report);
        }
        while !reports.is_empty() {
            let Ok(node) = shared.node() else { return };
            let command = Command::Report {
                node,
                reports: reports.clone(),
            };
            let deadline = Instant::now() + PROPOSE_TIMEOUT;
            match shared.group.propose(command, deadline).await {
                Ok(_) => reports.clear(),
                Err(error) => {
                    tracing::debug!(%error, facts = reports.len(), "not reported yet");
                    tokio::time::sleep(RETRY).await;
                    reports.retain(|report| is_current(shared, report));
                }
            }
        }
    }
}

/// A fact about an epoch that is over is void.
fn is_current(shared: &Shared, report: &Report) -> bool {
    let table = shared.routing.load();
    let state = table
        .as_ref()
        .and_then(|table| table.state(report.partition));
    state.is_none_or(|state| state.epoch == report.epoch)
}
