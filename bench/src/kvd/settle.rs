//! Waits until a load is flushed and compacted.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use torc_testkit::Kvd;

use super::Readings;

/// Settings that flush and compact records soon after a load, however few remain.
pub(crate) const SETTLING: [&str; 2] = ["--flush-after-s=2", "--compact-when-idle-s=4"];

/// Time limit for a node to flush and compact a load.
const TIMEOUT: Duration = Duration::from_secs(1_800);
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// Less than this may remain in the memtable indefinitely.
const LEFT_BYTES: f64 = 5_242_880.0;
/// Longer than the interval between two steps of a flush or compaction.
const REST: Duration = Duration::from_secs(10);

/// Waits until the records of a load are flushed and compaction is idle. The node must have been
/// started with [`SETTLING`].
///
/// # Errors
/// It does not become idle in time.
pub(crate) async fn settled(node: &Kvd, records: u64) -> Result<()> {
    let give_up = Instant::now() + TIMEOUT;
    let (mut before, mut since) = (None, Instant::now());
    while Instant::now() < give_up {
        let now = Readings::of(node).await?;
        let count = |name| anyhow::Ok(now.value(name)? as u64);
        let (slices, compacted) = (count("store_slices")?, count("store_compaction_records")?);
        let is_flushed = now.value("store_memtable_bytes")? < LEFT_BYTES
            && now.value("store_records")? >= records as f64;
        if !is_flushed || before != Some((slices, compacted)) {
            (before, since) = (Some((slices, compacted)), Instant::now());
        }
        if since.elapsed() > REST {
            return Ok(());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
    bail!("the records are not flushed after {TIMEOUT:?}")
}
