//! Decides what to do with the slices of a partition.

use std::sync::Arc;

use torc_record::Ballot;
use torc_ring::Partition;

use super::choose::{Urgency, how_many};
use crate::partition_table::Slices;
use crate::repair::is_repaired;
use crate::segment::Slice;
use crate::shared::Shared;
use crate::slice::LAST_LAYER;

/// On an idle node, a slice is rewritten without its collected records if they may be this fraction
/// (1/n) of its keys.
const WORTH_SHARE: u64 = 16;

/// Slices of one partition to compact into one.
pub(super) struct Job {
    pub(super) partition: Partition,
    pub(super) inputs: Vec<Arc<Slice>>,
    /// The other slices of the partition.
    pub(super) others: Vec<Arc<Slice>>,
    pub(super) watermark: Ballot,
    /// Whether the inputs are longer than the other slices together.
    pub(super) is_most: bool,
    pub(super) kind: Kind,
    /// The layer of the inputs, or 0 for a repair of all layers.
    pub(super) layer: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Writes the newest versions, without collected records.
    Merge,
    /// Copies a single slice unchanged.
    Copy,
    /// Like `Merge`, of all slices, without unreadable records that were vouched for.
    Repair,
}

impl Job {
    /// The compaction that is due, if any.
    pub(super) fn of(
        shared: &Shared,
        partition: Partition,
        slices: &Slices,
        urgency: Urgency,
        sparse: &[u64],
    ) -> Option<Self> {
        let (damaged, sound): (Vec<_>, Vec<_>) =
            slices.iter().cloned().partition(|slice| slice.is_damaged());
        let through = shared.manifest.lock().through;
        let job = Self {
            partition,
            inputs: Vec::new(),
            others: Vec::new(),
            watermark: shared.table.droppable(partition, through),
            is_most: true,
            kind: Kind::Merge,
            layer: 0,
        };
        if !damaged.is_empty() && damaged.iter().all(|slice| may_go(slice)) {
            return Some(Self {
                inputs: slices.to_vec(),
                kind: Kind::Repair,
                ..job
            });
        }
        let mut layers: Vec<u8> = sound.iter().map(|slice| slice.layer()).collect();
        layers.sort_unstable();
        layers.dedup();
        let mut layers = layers.into_iter().filter(|layer| *layer < LAST_LAYER);
        let most = shared.options.most_slices;
        let (inputs, others, kind, layer) = layers.find_map(|layer| {
            let (mut here, others): (Vec<_>, Vec<_>) =
                sound.iter().cloned().partition(|one| one.layer() == layer);
            let (inputs, kind) = choose(&mut here, job.watermark, most, urgency, sparse)?;
            let others: Vec<_> = here.into_iter().chain(others).collect();
            Some((inputs, others, kind, layer))
        })?;
        let len = |slices: &[Arc<Slice>]| slices.iter().map(|one| one.len()).sum::<u64>();
        Some(Self {
            is_most: len(&inputs) > len(&others),
            inputs,
            others: [others, damaged].concat(),
            kind,
            layer,
            ..job
        })
    }
}

/// Removes from a layer's slices those to compact now.
fn choose(
    slices: &mut Vec<Arc<Slice>>,
    watermark: Ballot,
    most: usize,
    urgency: Urgency,
    sparse: &[u64],
) -> Option<(Vec<Arc<Slice>>, Kind)> {
    slices.sort_by_key(|slice| slice.len());
    let lens: Vec<u64> = slices.iter().map(|slice| slice.len()).collect();
    let many = how_many(&lens, most, urgency);
    if many > 0 {
        return Some((slices.drain(..many).collect(), Kind::Merge));
    }
    if slices.iter().any(|slice| is_due(slice, watermark, urgency)) {
        return Some((std::mem::take(slices), Kind::Merge));
    }
    let is_sparse = |slice: &Arc<Slice>| sparse.contains(&slice.segment.file.number);
    let at = slices.iter().position(is_sparse)?;
    Some((vec![slices.remove(at)], Kind::Copy))
}

/// Whether a slice is worth rewriting without its collected records.
fn is_due(slice: &Slice, watermark: Ballot, urgency: Urgency) -> bool {
    let Some(header) = slice.header() else {
        return false;
    };
    let worth = match urgency {
        Urgency::Busy => return false,
        Urgency::Idle => WORTH_SHARE,
        Urgency::Whole => u64::MAX,
    };
    let share = u64::from(header.collectable()).saturating_mul(worth);
    share > 0 && share >= header.held().records && slice.swept() < watermark
}

/// Whether a damaged slice can be compacted without its unreadable records.
fn may_go(slice: &Slice) -> bool {
    if slice.is_waiting() {
        return false;
    }
    // Set first, so that a place vouched for during this check causes another check.
    slice.note_waiting(true);
    let may_go = is_repaired(slice);
    if may_go {
        slice.note_waiting(false);
    }
    may_go
}
