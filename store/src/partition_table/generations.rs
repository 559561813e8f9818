//! The slices of generations.

use std::sync::Arc;

use torc_record::NamespaceId;
use torc_ring::Partition;

use super::{PartitionTable, Shard, Slices};
use crate::segment::Slice;

impl PartitionTable {
    /// All slices of generations, by partition.
    pub(crate) fn generations(&self) -> Vec<(Partition, Slices)> {
        let all = self.partitions.iter().map(|(partition, place)| {
            let shard = place.shard.read();
            (partition, Arc::clone(&shard.generations))
        });
        all.filter(|(_, slices)| !slices.is_empty()).collect()
    }

    /// The slices of generations of a partition.
    pub(crate) fn generations_of(&self, partition: Partition) -> Slices {
        let shard = self.shard(partition);
        shard.map_or_else(Slices::default, |shard| {
            Arc::clone(&shard.read().generations)
        })
    }

    /// The slice of a generation, unless it is damaged.
    pub(crate) fn generation(
        &self,
        partition: Partition,
        generation: NamespaceId,
    ) -> Option<Arc<Slice>> {
        let slices = self.generations_of(partition);
        let is_it = |slice: &&Arc<Slice>| slice.may_be_of(generation) && !slice.is_damaged();
        slices.iter().find(is_it).cloned()
    }

    /// Takes slices out of force. The caller holds the manifest's lock.
    pub(crate) fn remove_generations(&self, removed: &[Arc<Slice>]) {
        for slice in removed {
            if let Some(shard) = self.shard(slice.partition()) {
                let mut shard = shard.write();
                let kept = shard.generations.iter();
                shard.generations = kept
                    .filter(|held| !Arc::ptr_eq(held, slice))
                    .cloned()
                    .collect();
            }
        }
    }
}

impl Shard {
    /// The slices in which to look for a key.
    pub(super) fn slices_for(&self, namespace: NamespaceId) -> &Slices {
        if namespace.is_generation() {
            &self.generations
        } else {
            &self.slices
        }
    }
}

/// Whether a slice at a namespace's place may have keys of that namespace.
pub(super) fn is_for(slice: &Slice, namespace: NamespaceId) -> bool {
    !namespace.is_generation() || slice.may_be_of(namespace)
}
