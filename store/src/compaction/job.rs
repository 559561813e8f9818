//! What to do with the slices of a partition.

use std::sync::Arc;

use torc_record::Ballot;
use torc_ring::Partition;

use super::choose::{Zeal, how_many};
use crate::partition_table::Slices;
use crate::repair::is_repaired;
use crate::segment::Slice;
use crate::shared::Shared;
use crate::slice::LAST_LAYER;

/// When the node is idle, a slice is written anew for what was collected if that may be
/// this share of its keys.
const WORTH_SHARE: u64 = 16;

/// Slices of one partition that become one.
pub(super) struct Job {
    pub(super) partition: Partition,
    pub(super) inputs: Vec<Arc<Slice>>,
    /// The other slices of the partition.
    pub(super) others: Vec<Arc<Slice>>,
    pub(super) watermark: Ballot,
    /// Whether the result is most of the partition.
    pub(super) is_most: bool,
    pub(super) kind: Kind,
    /// That of the inputs, or 0 for a repair of all.
    pub(super) layer: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The newest versions are written, but for what was collected.
    Merge,
    /// A single slice is copied as it is.
    Copy,
    /// As `Merge`, of all slices, but for what cannot be read and was vouched for.
    Repair,
}

impl Job {
    /// What is due, if anything is.
    pub(super) fn of(
        shared: &Shared,
        partition: Partition,
        slices: &Slices,
        zeal: Zeal,
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
            let (inputs, kind) = choose(&mut here, job.watermark, most, zeal, sparse)?;
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

/// Takes out of the slices of a layer those that are to be compacted now.
fn choose(
    slices: &mut Vec<Arc<Slice>>,
    watermark: Ballot,
    most: usize,
    zeal: Zeal,
    sparse: &[u64],
) -> Option<(Vec<Arc<Slice>>, Kind)> {
    slices.sort_by_key(|slice| slice.len());
    let lens: Vec<u64> = slices.iter().map(|slice| slice.len()).collect();
    let many = how_many(&lens, most, zeal);
    if many > 0 {
        return Some((slices.drain(..many).collect(), Kind::Merge));
    }
    if slices.iter().any(|slice| is_due(slice, watermark, zeal)) {
        return Some((std::mem::take(slices), Kind::Merge));
    }
    let is_sparse = |slice: &Arc<Slice>| sparse.contains(&slice.segment.file.number);
    let at = slices.iter().position(is_sparse)?;
    Some((vec![slices.remove(at)], Kind::Copy))
}

/// Whether a slice is worth writing anew for what was collected.
fn is_due(slice: &Slice, watermark: Ballot, zeal: Zeal) -> bool {
    let Some(header) = slice.header() else {
        return false;
    };
    let worth = match zeal {
        Zeal::Busy => return false,
        Zeal::Idle => WORTH_SHARE,
        Zeal::Whole => u64::MAX,
    };
    let share = u64::from(header.collectable()).saturating_mul(worth);
    share > 0 && share >= header.held().records && slice.swept() < watermark
}

/// Whether a damaged slice can be compacted without what cannot be read of it.
fn may_go(slice: &Slice) -> bool {
    if slice.is_waiting() {
        return false;
    }
    // Whoever vouches while this looks makes it look again.
    slice.note_waiting(true);
    let may_go = is_repaired(slice);
    if may_go {
        slice.note_waiting(false);
    }
    may_go
}
