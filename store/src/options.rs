//! What a store is opened with.

use std::path::PathBuf;

use torc_ring::Partitions;

use crate::StoreError;

const MIB: u64 = 1 << 20;

/// Settings of a [`Store`](crate::Store). Start from [`StoreOptions::new`] and change
/// the fields that matter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The data directory; created when it is missing. One process at a time.
    pub dir: PathBuf,
    /// Number of partitions of the cluster: recorded on creation, checked ever after.
    pub partitions: Partitions,
    /// Most bytes of memory the overlay takes, overhead included. Beyond it new values
    /// are refused; deletes have an eighth more. A store that holds more can be opened.
    pub overlay_limit_bytes: u64,
    /// Size of one preallocated segment of the commit log, 1 KiB to 1 GiB.
    pub log_segment_bytes: u64,
    /// A checkpoint starts by itself when this much log has gathered since the last one
    /// began, or as much as that one was long, whichever is more: so checkpoints write
    /// at most as much again as the log does.
    pub checkpoint_log_bytes: u64,
    /// Most bytes of writes that wait for the committer; more of them wait in
    /// [`Store::write`](crate::Store::write) for room. At least 1 MiB.
    pub queue_limit_bytes: u64,
}

impl StoreOptions {
    /// Settings for a node of a few GiB: 4,096 partitions, 4 GiB of overlay, segments of
    /// 64 MiB, a checkpoint every 256 MiB of log, 32 MiB of queue.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            partitions: Partitions::DEFAULT,
            overlay_limit_bytes: 4096 * MIB,
            log_segment_bytes: 64 * MIB,
            checkpoint_log_bytes: 256 * MIB,
            queue_limit_bytes: 32 * MIB,
        }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let refuse = |setting, allowed| Err(StoreError::BadOption { setting, allowed });
        if !(1024..=1024 * MIB).contains(&self.log_segment_bytes) {
            return refuse("log_segment_bytes", "1 KiB to 1 GiB");
        }
        if !(MIB..=1024 * MIB).contains(&self.queue_limit_bytes) {
            return refuse("queue_limit_bytes", "1 MiB to 1 GiB");
        }
        Ok(())
    }
}
