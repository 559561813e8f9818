//! What the log tells at a start of the versions that each replica stored.

use parking_lot::Mutex;
use torc_record::{HybridTime, StoredVersions};
use torc_ring::{Layered, Partition, Partitions, Token};

use crate::packed::Packed;

/// The versions in the log, by partition, until a replica takes those of its partition.
#[derive(Debug)]
pub(crate) struct Stored {
    /// No record outside the log is above this time.
    flushed: HybridTime,
    partitions: Partitions,
    versions: Layered<Mutex<StoredVersions>>,
}

impl Stored {
    /// Without a log after the files, which hold no record above this time.
    pub(crate) fn new(partitions: Partitions, flushed: HybridTime) -> Self {
        Self {
            flushed,
            partitions,
            versions: Layered::new(partitions),
        }
    }

    /// For a log that has lost batches.
    pub(crate) fn unknown(self) -> Self {
        Self::new(self.partitions, HybridTime(u64::MAX))
    }

    /// Notes a record of the log.
    pub(crate) fn note(&self, packed: &Packed) {
        let at = packed.position();
        let holding = self.partitions.holding(at.namespace, Token(packed.token()));
        if let Some(versions) = self.of(holding) {
            versions.lock().note(packed.stored_version());
        }
    }

    /// The versions of a partition; the second time, none is known.
    pub(crate) fn take(&self, partition: Partition) -> StoredVersions {
        self.of(partition).map_or(StoredVersions::UNKNOWN, |held| {
            std::mem::replace(&mut *held.lock(), StoredVersions::UNKNOWN)
        })
    }

    fn of(&self, partition: Partition) -> Option<&Mutex<StoredVersions>> {
        let flushed = |_| Mutex::new(StoredVersions::after(self.flushed));
        self.versions.get_or(partition, flushed)
    }
}
