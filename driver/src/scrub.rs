//! Finds damage before a request meets it, and starts the repair. A background thread reads
//! one partition after another from end to end, at a limited rate; a partition in which a
//! request met damage comes next.
//!
//! A key that is still readable is reconciled separately, which takes a quorum of the others. For
//! places with an unreadable key, and for keys of `eventual` namespaces, which keep their
//! ballots, the others list their records (`lost`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_replication::Locator;
use torc_ring::Partition;
use torc_store::{ScrubReport, Unreadable};

use super::Registers;

/// Bytes read per second.
const BYTES_PER_S: u64 = 8 << 20;
/// Pause between two passes over all partitions.
const PASS: Duration = Duration::from_secs(60);
/// Interval between checks for damage that requests met.
const LOOK: Duration = Duration::from_secs(2);

/// Scrubs until the node stops.
pub(super) async fn run(registers: Arc<Registers>) {
    let (mut pause, mut pass) = (LOOK, Instant::now() + PASS);
    loop {
        tokio::time::sleep(pause).await;
        let is_pass = Instant::now() >= pass;
        let mut is_left = false;
        for partition in registers.known_partitions() {
            if is_pass || registers.store.damage(partition).is_some() {
                let Some(is_whole) = registers.mend(partition).await else {
                    return;
                };
                is_left |= !is_whole;
            }
        }
        // Asks less and less often for records that no replica can supply now.
        pause = if is_left { (2 * pause).min(PASS) } else { LOOK };
        if is_pass {
            pass = Instant::now() + PASS;
        }
    }
}

impl Registers {
    /// Scrubs a partition, and recovers lost records from the other replicas. Returns whether
    /// nothing is left to recover; `None` if the store has failed or was closed and so cannot be
    /// read.
    async fn mend(self: &Arc<Self>, partition: Partition) -> Option<bool> {
        let mut report = self.scrub(partition).await?;
        if report.damaged > 0 {
            let (slices, places) = (report.damaged, report.unreadable.len());
            tracing::warn!(%partition, slices, places, "found damage; repairing it from the other replicas");
        }
        let known = known_keys(&report.unreadable);
        if !known.is_empty() {
            self.reconcile_all(partition, &known).await;
            report = self.scrub(partition).await?;
        }
        let left = report.unreadable;
        if left.is_empty() {
            return Some(true);
        }
        let places = left.len();
        let supplied = self.supply(partition, &left).await;
        match &supplied {
            Ok(()) => {
                tracing::info!(%partition, places, "repaired damage from the other replicas");
            }
            Err(why) => tracing::warn!(
                %partition,
                places,
                %why,
                "damage is not repaired yet; retrying later"
            ),
        }
        Some(supplied.is_ok())
    }

    async fn scrub(self: &Arc<Self>, partition: Partition) -> Option<ScrubReport> {
        let registers = Arc::clone(self);
        let scrub = tokio::task::spawn_blocking(move || {
            let digest_key = registers.digest_key();
            registers
                .store
                .scrub(partition, digest_key.as_ref(), BYTES_PER_S)
        });
        scrub.await.ok()?.ok()
    }
}

fn known_keys(places: &[Unreadable]) -> Vec<Locator> {
    places
        .iter()
        .filter_map(|place| place.key.clone())
        .collect()
}
