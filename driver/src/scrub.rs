//! Finds damage before a request meets it, and starts the repair. A pass reads one partition after
//! another from end to end, at a limited rate. Damaged partitions do not wait for the pass: a second
//! loop repairs them, whether a pass or a request met the damage.
//!
//! A key that is still readable is reconciled separately, which takes a quorum of the others. For
//! places with an unreadable key, and for keys of `eventual` namespaces, which keep their
//! ballots, the others list their records (`lost`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_replication::Locator;
use torc_ring::Partition;
use torc_store::{ScrubReport, Unreadable};

use super::Registers;

/// Bytes read per second.
const BYTES_PER_S: u64 = 8 << 20;
/// Pause before each pass over all partitions.
const PAUSE: Duration = Duration::from_secs(60);
/// Interval between checks for known damage.
const LOOK: Duration = Duration::from_secs(2);
/// Longest pause before lost records are asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Scrubs until the node stops.
pub(super) async fn run(registers: Arc<Registers>) {
    // Two loops, because a pass may take hours. Only one of them repairs.
    tokio::join!(registers.find_damage(PAUSE), registers.mend_damage());
}

impl Registers {
    /// Ends if the store cannot be read.
    async fn find_damage(self: &Arc<Self>, pause: Duration) -> Option<()> {
        loop {
            tokio::time::sleep(pause).await;
            for partition in self.known_partitions() {
                self.scrub(partition).await?;
            }
        }
    }

    /// Ends if the store cannot be read.
    async fn mend_damage(self: &Arc<Self>) -> Option<()> {
        // When a partition with lost records is due again, and the pause before that.
        let mut due = BTreeMap::new();
        loop {
            tokio::time::sleep(LOOK).await;
            for partition in self.known_partitions() {
                let now = Instant::now();
                let (at, pause) = due.remove(&partition).unwrap_or((now, LOOK));
                if self.store.damage(partition).is_none() {
                    continue;
                }
                if now < at {
                    due.insert(partition, (at, pause));
                } else if !self.mend(partition).await? {
                    // Asks less and less often for records that no replica can supply now.
                    let pause = (2 * pause).min(ASK_AGAIN);
                    due.insert(partition, (Instant::now() + pause, pause));
                }
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use torc_ring::Partitions;
    use torc_store::testing::{Call, CrashFs, WaitingStore};

    use super::*;
    use crate::rig::{Rig, record, until};

    /// Two partitions with a slice each, which only a scrub has written again.
    async fn with_slices() -> (CrashFs, Rig) {
        let disk = CrashFs::new();
        let rig = Rig::on(Arc::new(disk.clone()), |options| {
            options.partitions = Partitions::new(2).unwrap();
            options.compact_when_idle = Duration::from_secs(3600);
        });
        let store = &rig.registers.store;
        let records = [1, 200].map(|number| record(number, vec![number]));
        store.write_batch(records.into()).await.unwrap();
        store.flush().await.unwrap();
        for partition in [Partition(0), Partition(1)] {
            let mut turn = rig.registers.turn(partition);
            turn.slot(partition);
            turn.end();
        }
        (disk, rig)
    }

    /// Begins a pass at once.
    fn scrub(registers: &Arc<Registers>) {
        let registers = Arc::clone(registers);
        tokio::spawn(async move {
            tokio::join!(
                registers.find_damage(Duration::ZERO),
                registers.mend_damage()
            )
        });
    }

    #[tokio::test]
    async fn a_partition_with_known_damage_does_not_wait_for_the_pass() {
        let (disk, rig) = with_slices().await;
        let (_release, released) = sync_channel::<()>(0);
        // Fails once the test has ended.
        disk.before(Call::Read, "segment-", 0, move || {
            let _ = released.recv();
        });
        scrub(&rig.registers);
        until("the pass reads the first partition", || disk.is_used_up()).await;
        let (store, partition) = (&rig.registers.store, Partition(1));
        let _ = store.sealed(partition).unwrap().slices[0].note_damage();
        let is_mended = || store.damage(partition).is_none();
        until("the other partition is mended", is_mended).await;
    }

    #[tokio::test]
    async fn scrubbing_alone_finds_a_flipped_bit_and_has_the_slice_written_again() {
        let (disk, rig) = with_slices().await;
        let (store, partition) = (&rig.registers.store, Partition(0));
        let before = store.sealed(partition).unwrap().slices.remove(0);
        // No get reads the digest of a slice.
        let digest = before.info().unwrap().digest;
        for path in disk.files() {
            disk.rot(&path, |bytes| {
                let mut windows = bytes.windows(digest.len());
                if let Some(at) = windows.position(|it| it == digest) {
                    bytes[at] ^= 1;
                }
            });
        }
        assert_ne!(before.info().unwrap().digest, digest);
        scrub(&rig.registers);
        let is_rewritten = || {
            let now = store.sealed(partition);
            now.is_ok_and(|now| now.slices[0].id() != before.id())
        };
        until("the slice is written again", is_rewritten).await;
    }
}
