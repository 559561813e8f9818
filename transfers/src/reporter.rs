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
    reached: mpsc::UnboundedReceiver<Reached>,
    tasks: &TaskTracker,
) {
    let (transfers, cancel) = (Arc::clone(transfers), transfers.cancel.clone());
    let reporting = async move { commit_all(&transfers, reached).await };
    tasks.spawn(async move { cancel.run_until_cancelled(reporting).await });
}

async fn commit_all(transfers: &Transfers, mut reached: mpsc::UnboundedReceiver<Reached>) {
    let mut known = Facts::default();
    loop {
        if known.waiting.is_empty() {
            let Some(fact) = reached.recv().await else {
                return;
            };
            known.add(fact, Instant::now());
            tokio::time::sleep(GATHER).await;
        }
        known.take(&mut reached, Instant::now());
        known.keep(|fact| may_tell(transfers, fact));
        let facts = known.first(BATCH);
        let Some(reports) = measured(transfers, &facts).await else {
            continue;
        };
        let Ok(node) = transfers.member.node() else {
            return;
        };
        let command = Command::Report { node, reports };
        let deadline = Instant::now() + PROPOSE_TIMEOUT;
        match transfers.group.propose(command, deadline).await {
            Ok(_) => known.told(&facts, Instant::now()),
            Err(error) => {
                tracing::debug!(%error, facts = facts.len(), "facts not reported yet; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Facts with what was moved; `None` without facts.
async fn measured(transfers: &Transfers, facts: &[Reached]) -> Option<Vec<Report>> {
    if facts.is_empty() {
        return None;
    }
    let (store, facts) = (transfers.store.clone(), facts.to_vec());
    let measuring = move || {
        let reports = facts.into_iter().map(|(partition, reached)| {
            let mut moved = Sizes::default();
            // Measured now: only now does the replica also hold the records that it received one by one.
            if let Milestone::Snapshotted(_) = reached {
                let held = store.summary(partition);
                moved.records = held.records;
                moved.bytes = held.payload_bytes;
            }
            Report {
                partition,
                reached,
                moved,
                at_ms: unix_ms(),
            }
        });
        reports.collect()
    };
    // Fails only if the store panics; replicas repeat their facts.
    tokio::task::spawn_blocking(measuring).await.ok()
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
    waiting: BTreeMap<About, Milestone>,
    told: HashMap<About, (Epoch, Instant)>,
}

impl Facts {
    /// Adds a fact, unless it was committed a moment ago.
    fn add(&mut self, (partition, reached): Reached, now: Instant) {
        let about = about(partition, reached);
        let told = self.told.get(&about);
        let is_known = told.is_some_and(|(epoch, at)| {
            *epoch >= reached.epoch() && now.saturating_duration_since(*at) < REPEAT
        });
        if is_known {
            return;
        }
        let waiting = self.waiting.entry(about).or_insert(reached);
        if waiting.epoch() <= reached.epoch() {
            *waiting = reached;
        }
    }

    /// Adds all facts that have come. Repeats cost little here, so they never pile up.
    fn take(&mut self, reached: &mut mpsc::UnboundedReceiver<Reached>, now: Instant) {
        while let Ok(fact) = reached.try_recv() {
            self.add(fact, now);
        }
    }

    /// Drops facts that must not be told, or not yet: replicas repeat those.
    fn keep(&mut self, may_tell: impl Fn(Reached) -> bool) {
        self.waiting
            .retain(|(partition, _), reached| may_tell((*partition, *reached)));
    }

    /// The first `count` waiting facts.
    fn first(&self, count: usize) -> Vec<Reached> {
        let facts = self.waiting.iter().take(count);
        facts
            .map(|((partition, _), reached)| (*partition, *reached))
            .collect()
    }

    /// Marks these as committed.
    fn told(&mut self, facts: &[Reached], now: Instant) {
        for (partition, reached) in facts {
            let about = about(*partition, *reached);
            if self.waiting.get(&about) == Some(reached) {
                self.waiting.remove(&about);
            }
            self.told.insert(about, (reached.epoch(), now));
        }
    }
}

/// Adoption of an epoch sorts first.
const fn about(partition: Partition, reached: Milestone) -> About {
    let kind = match reached {
        Milestone::Adopted(_) => 0,
        Milestone::Copied(_) => 1,
        Milestone::Snapshotted(_) => 2,
    };
    (partition, kind)
}

/// Whether a fact is about the current epoch and true of the generations too: a partition is copied
/// when their slices are here as well.
fn may_tell(transfers: &Transfers, (partition, reached): Reached) -> bool {
    let table = transfers.member.routing.load();
    let state = table.as_ref().and_then(|table| table.state(partition));
    let is_current = state.is_none_or(|state| state.config.epoch == reached.epoch());
    let is_adoption = matches!(reached, Milestone::Adopted(_));
    is_current && (is_adoption || generations::holds_all(transfers, partition))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Partition = Partition(7);
    const ADOPTED: Reached = (HERE, Milestone::Adopted(Epoch(1)));
    const LATER: Reached = (HERE, Milestone::Adopted(Epoch(2)));
    const COPIED: Reached = (HERE, Milestone::Copied(Epoch(1)));

    #[test]
    fn what_is_said_again_and_again_is_told_once_in_a_while() {
        let (mut facts, now) = (Facts::default(), Instant::now());
        for _ in 0..100 {
            facts.add(ADOPTED, now);
        }
        let first = facts.first(BATCH);
        assert_eq!(first.len(), 1);
        facts.add(ADOPTED, now);
        facts.told(&first, now);
        facts.add(ADOPTED, now + REPEAT / 2);
        assert_eq!(facts.first(BATCH), [], "it was told");
        facts.add(ADOPTED, now + REPEAT);
        assert_eq!(facts.first(BATCH).len(), 1, "and is still said");
    }

    #[test]
    fn what_is_new_does_not_wait_for_what_is_void() {
        let (mut facts, now) = (Facts::default(), Instant::now());
        facts.add(ADOPTED, now);
        let first = facts.first(BATCH);
        facts.add(LATER, now);
        facts.add(ADOPTED, now);
        facts.add(COPIED, now);
        facts.told(&first, now);
        assert_eq!(facts.first(1), [LATER]);
        facts.keep(|(_, reached)| reached.epoch() != Epoch(1));
        assert_eq!(facts.first(BATCH), [LATER]);
    }

    /// A node once handled each repeat on its own. Repeats came faster than it handled them, so its reports
    /// were up to a minute old, and the join waited for them.
    #[test]
    fn repeats_of_a_busy_time_do_not_pile_up() {
        let (queue, mut reached) = mpsc::unbounded_channel();
        for _ in 0..10_000 {
            for fact in [ADOPTED, COPIED] {
                queue.send(fact).unwrap();
            }
        }
        queue.send(LATER).unwrap();
        let mut facts = Facts::default();
        facts.take(&mut reached, Instant::now());
        assert!(reached.is_empty());
        assert_eq!(facts.first(BATCH), [LATER, COPIED]);
    }
}
