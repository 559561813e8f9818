//! Figures over all slices of a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use torc_record::{Ballot, Locator};

use super::{PartitionTable, Slices, newest_readable};
use crate::packed::Packed;
use crate::segment::Slice;
use crate::{Seq, SliceStats};

impl PartitionTable {
    /// The memtable's version of a key, with its number, and the slices beneath.
    pub(crate) fn look_up(&self, position: &Locator<&[u8]>) -> (Option<(Seq, Packed)>, Slices) {
        let shard = self.place(position).shard.read();
        let slot = shard.memtable.get(position);
        let held = slot.map(|slot| (slot.seq, slot.packed.clone()));
        (held, Arc::clone(shard.slices_for(position.namespace)))
    }

    /// The highest readable ballot of a key.
    pub(crate) fn newest_ballot(&self, at: &Locator) -> Option<Ballot> {
        let position = at.borrowed();
        let (held, slices) = self.look_up(&position);
        let sealed = newest_readable(&slices, &position).map(|packed| packed.ballot());
        held.map(|(_, packed)| packed.ballot()).max(sealed)
    }

    /// Gets whose record was not in the page cache.
    pub(crate) fn cold_reads(&self) -> u64 {
        let [.., cold_reads] = self.read_counts();
        cold_reads
    }

    /// Sums over all slices. Takes every partition's lock once.
    pub(crate) fn slice_stats(&self) -> SliceStats {
        let [
            gets,
            memtable_hits,
            gate_negatives,
            gate_false_positives,
            record_reads,
            cold_reads,
        ] = self.read_counts();
        let mut stats = SliceStats {
            gets,
            memtable_hits,
            gate_negatives,
            gate_false_positives,
            record_reads,
            cold_reads,
            ..SliceStats::default()
        };
        let mut segments = BTreeMap::new();
        let records = self.live().into_iter().map(|(_, slices, _)| slices);
        let generations = self.generations().into_iter().map(|(_, slices)| slices);
        for slices in records.chain(generations) {
            stats.slices += slices.len() as u64;
            stats.most_slices = stats.most_slices.max(slices.len() as u64);
            for slice in slices.iter() {
                let file = &slice.segment.file;
                segments.insert(file.number, file.len);
                stats.slice_bytes += slice.len();
                stats.damaged += u64::from(slice.is_damaged());
                if let Some(header) = slice.header() {
                    stats.keys += header.keys() as u64;
                    if header.layer > 0 {
                        stats.shared_digests += header.keys() as u64;
                    }
                    stats.header_bytes += Slice::OVERHEAD_BYTES as u64;
                    stats.gate_bytes += u64::from(header.gate_len);
                    stats.mphf_bytes += u64::from(header.mphf_len);
                    stats.offset_bytes += u64::from(header.offsets_len);
                }
            }
        }
        stats.segments = segments.len() as u64;
        stats.segment_bytes = segments.values().sum();
        stats
    }
}
