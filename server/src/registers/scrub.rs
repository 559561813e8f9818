//! Finds damage before a request meets it. A background thread reads one partition after
//! another from end to end, at a bounded pace; the other replicas supply what is damaged.
//!
//! Not repaired: places whose key cannot be read. This replica refuses their keys and the other
//! replicas answer for them. Comparisons do not reliably find them: two such partitions still
//! differed after two minutes (`sim/README.md`).

use std::sync::Arc;
use std::time::Duration;

use torc_replication::Locator;

use super::Registers;

/// Bytes read per second.
const PACE: u64 = 8 << 20;
/// Between two passes over all partitions.
const PAUSE: Duration = Duration::from_secs(60);

/// Scrubs until the node stops.
pub(super) async fn run(registers: Arc<Registers>) {
    loop {
        tokio::time::sleep(PAUSE).await;
        for partition in registers.known_partitions() {
            let scrubbing = Arc::clone(&registers);
            let scrub = tokio::task::spawn_blocking(move || {
                let digest_key = scrubbing.digest_key();
                let store = &scrubbing.store;
                store.scrub(partition, digest_key.as_ref(), PACE)
            });
            // A store that has failed or was closed is read by nobody any more.
            let Ok(Ok(report)) = scrub.await else {
                return;
            };
            if report.damaged > 0 {
                let (slices, places) = (report.damaged, report.unreadable.len());
                tracing::warn!(%partition, slices, places, "damage was found; the replicas settle it");
            }
            for at in report.unreadable.into_iter().filter_map(|place| place.key) {
                let at = Locator {
                    namespace: at.namespace,
                    digest: at.digest,
                    key: at.key,
                };
                registers.settle_later(partition, at, true);
            }
        }
    }
}
