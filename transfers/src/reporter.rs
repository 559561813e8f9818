//! Reports the facts that advance the topology to the next stage, in batches, until they are committed or obsolete.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use torc_driver::Reached;
use torc_record::Epoch;
use torc_ring::Partition;
use torc_ring::replicas::Milestone;
use torc_ring::topology::{Command, Report, Sizes};
use torc_telemetry::clock::unix_ms;

use crate::{Transfers, generations};

/// Facts in one command.
const BATCH: usize = 1024;
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Each command makes a topology that all nodes store and adopt, so facts that arrive within this
/// time share one.
const GATHER: Duration = Duration::from_millis(10);
const RETRY: Duration = Duration::from_millis(50);
/// A committed fact that replicas still report after this time is committed again: its receiver may
/// have missed it.
const REPEAT: Duration = Duration::from_secs(5);

/// Reports the milestones of this node's replicas to the topology group, until the node stops.
pub fn run(
    transfers: &Arc<Transfers>,
    mut reached: mpsc::UnboundedReceiver<Reached>,
    tasks: &TaskTracker,
) {
    let reporter = Reporter::start(transfers, tasks);
    let (transfers, cancel) = (Arc::clone(transfers), transfers.cancel.clone());
    let reporting = async move {
        while let Some((partition, milestone)) = reached.recv().await {
            // Replicas repeat this report, so it can wait until the generations are here as well.
            if !matches!(milestone, Milestone::Adopted(_))
                && !generations::holds_all(&transfers, partition)
            {
                continue;
            }
            let mut moved = Sizes::default();
            // Measured now: only now does the replica also hold the records that it received one by
            // one.
            if let Milestone::Snapshotted(_) = milestone {
                let store = transfers.store.clone();
                let summary = move || store.summary(partition);
                // Fails only if the store panics; replicas repeat this report.
                let Ok(held) = tokio::task::spawn_blocking(summary).await else {
                    continue;
                };
                moved = Sizes {
                    records: held.records,
                    bytes: held.payload_bytes,
                };
            }
            reporter.report(partition, milestone, moved);
        }
    };
    tasks.spawn(async move { cancel.run_until_cancelled(reporting).await });
}

/// Queues facts; a separate task commits them.
struct Reporter {
    queue: mpsc::UnboundedSender<Report>,
}

impl Reporter {
    fn start(transfers: &Arc<Transfers>, tasks: &TaskTracker) -> Self {
        let (queue, facts) = mpsc::unbounded_channel();
        let transfers = Arc::clone(transfers);
        tasks.spawn(async move {
            tokio::select! {
                () = commit_all(&transfers, facts) => {}
                () = transfers.cancel.cancelled() => {}
            }
        });
        Self { queue }
    }

    /// Queues a fact. Callers may repeat it freely.
    fn report(&self, partition: Partition, reached: Milestone, moved: Sizes) {
        let report = Report {
            partition,
            reached,
            moved,
            at_ms: unix_ms(),
        };
        // Fails only while the node stops.
        let _ = self.queue.send(report);
    }
}

async fn commit_all(transfers: &Transfers, mut facts: mpsc::UnboundedReceiver<Report>) {
    let mut known = Facts::default();
    let mut came = Vec::new();
    loop {
        if known.waiting.is_empty() {
            if facts.recv_many(&mut came, BATCH).await == 0 {
                return;
            }
            tokio::time::sleep(GATHER).await;
        }
        while let Ok(report) = facts.try_recv() {
            came.push(report);
        }
        let now = Instant::now();
        for report in came.drain(..) {
            known.add(report, now);
        }
        known.forget(|report| !is_current(transfers, report));
        let reports = known.first(BATCH);
        if reports.is_empty() {
            continue;
        }
        let Ok(node) = transfers.member.node() else {
            return;
        };
        let command = Command::Report {
            node,
            reports: reports.clone(),
        };
        match transfers
            .group
            .propose(command, now + PROPOSE_TIMEOUT)
            .await
        {
            Ok(_) => known.told(&reports, Instant::now()),
            Err(error) => {
                tracing::debug!(%error, facts = reports.len(), "facts not reported yet; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// The partition and kind of a fact; a later fact with the same identity replaces the earlier one.
type About = (Partition, u8);

/// Facts to be committed, and those committed lately.
///
/// Replicas repeat their facts until the partition moves on. If commits take longer than that
/// interval, unfiltered repeats would be committed many times over and delay new facts.
#[derive(Debug, Default)]
struct Facts {
    /// In partition order: the order does not matter, because all are committed soon.
    waiting: BTreeMap<About, Report>,
    told: HashMap<About, (Epoch, Instant)>,
}

impl Facts {
    /// Adds a fact, unless it was committed a moment ago.
    fn add(&mut self, report: Report, now: Instant) {
        let told = self.told.get(&about(&report));
        let is_known = told.is_some_and(|(epoch, at)| {
            *epoch >= report.reached.epoch() && now.saturating_duration_since(*at) < REPEAT
        });
        if is_known {
            return;
        }
        let waiting = self.waiting.entry(about(&report)).or_insert(report);
        if waiting.reached.epoch() <= report.reached.epoch() {
            *waiting = report;
        }
    }

    /// Drops void facts.
    fn forget(&mut self, is_void: impl Fn(&Report) -> bool) {
        self.waiting.retain(|_, report| !is_void(report));
    }

    /// The first `count` waiting facts.
    fn first(&self, count: usize) -> Vec<Report> {
        self.waiting.values().take(count).copied().collect()
    }

    /// Marks these as committed.
    fn told(&mut self, reports: &[Report], now: Instant) {
        for report in reports {
            let about = about(report);
            let is_same = |waiting: &Report| waiting.reached.epoch() == report.reached.epoch();
            if self.waiting.get(&about).is_some_and(is_same) {
                self.waiting.remove(&about);
            }
            self.told.insert(about, (report.reached.epoch(), now));
        }
    }
}

/// Adoption of an epoch sorts first.
const fn about(report: &Report) -> About {
    let kind = match report.reached {
        Milestone::Adopted(_) => 0,
        Milestone::Copied(_) => 1,
        Milestone::Snapshotted(_) => 2,
    };
    (report.partition, kind)
}

/// Whether a fact is about a current epoch; all others are void.
fn is_current(transfers: &Transfers, report: &Report) -> bool {
    let table = transfers.member.routing.load();
    let state = table
        .as_ref()
        .and_then(|table| table.state(report.partition));
    state.is_none_or(|state| state.config.epoch == report.reached.epoch())
}

#[cfg(test)]
mod tests {

    use super::*;

    const HERE: Partition = Partition(7);

    fn report(reached: Milestone) -> Report {
        Report {
            partition: HERE,
            reached,
            moved: Sizes::default(),
            at_ms: 0,
        }
    }

    #[test]
    fn what_is_said_again_and_again_is_told_once_in_a_while() {
        let (mut facts, now) = (Facts::default(), Instant::now());
        for _ in 0..100 {
            facts.add(report(Milestone::Adopted(Epoch(1))), now);
        }
        let first = facts.first(BATCH);
        assert_eq!(first.len(), 1);
        facts.add(report(Milestone::Adopted(Epoch(1))), now);
        facts.told(&first, now);
        facts.add(report(Milestone::Adopted(Epoch(1))), now + REPEAT / 2);
        assert_eq!(facts.first(BATCH), [], "it was told");
        facts.add(report(Milestone::Adopted(Epoch(1))), now + REPEAT);
        assert_eq!(facts.first(BATCH).len(), 1, "and is still said");
    }

    #[test]
    fn what_is_new_does_not_wait_for_what_is_void() {
        let (mut facts, now) = (Facts::default(), Instant::now());
        facts.add(report(Milestone::Adopted(Epoch(1))), now);
        let first = facts.first(BATCH);
        facts.add(report(Milestone::Adopted(Epoch(2))), now);
        facts.add(report(Milestone::Adopted(Epoch(1))), now);
        facts.add(report(Milestone::Copied(Epoch(1))), now);
        facts.told(&first, now);
        assert_eq!(facts.first(1), [report(Milestone::Adopted(Epoch(2)))]);
        facts.forget(|report| report.reached.epoch() == Epoch(1));
        assert_eq!(facts.first(BATCH), [report(Milestone::Adopted(Epoch(2)))]);
    }
}
