//! What to do with the slices of a partition.

use std::sync::Arc;

use torc_record::Ballot;
use torc_ring::Partition;

use super::choose::{Zeal, how_many};
use crate::holdings::Slices;
use crate::repair::is_repaired;
use crate::segment::Slice;
use crate::shared::Shared;

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
        let (damaged, mut sound): (Vec<_>, Vec<_>) =
            slices.iter().cloned().partition(|slice| slice.is_damaged());
        let through = shared.manifest.lock().through;
        let watermark = shared.holdings.droppable(partition, through);
        let mut job = Self {
            partition,
            inputs: Vec::new(),
            others: Vec::new(),
            watermark,
            is_most: true,
            kind: Kind::Merge,
        };
        if !damaged.is_empty() && damaged.iter().all(|slice| may_go(slice)) {
            job.inputs = slices.to_vec();
            job.kind = Kind::Repair;
            return Some(job);
        }
        sound.sort_by_key(|slice| slice.len());
        let lens: Vec<u64> = sound.iter().map(|slice| slice.len()).collect();
        let many = how_many(&lens, shared.options.most_slices, zeal);
        let is_sparse = |slice: &Arc<Slice>| sparse.contains(&slice.segment.file.number);
        let mut rest = sound.split_off(many);
        job.inputs = sound;
        if many == 0 && rest.iter().any(|slice| is_due(slice, watermark, zeal)) {
            job.inputs = std::mem::take(&mut rest);
        } else if let (0, Some(at)) = (many, rest.iter().position(is_sparse)) {
            job.inputs = vec![rest.remove(at)];
            job.kind = Kind::Copy;
        }
        rest.extend(damaged);
        job.others = rest;
        let folded: u64 = job.inputs.iter().map(|slice| slice.len()).sum();
        job.is_most = folded * 2 > lens.iter().sum();
        (!job.inputs.is_empty()).then_some(job)
    }
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
    let share = u64::from(header.collectable).saturating_mul(worth);
    share > 0 && share >= header.held().records && slice.swept() < watermark
}

/// Whether a damaged slice can be folded without what cannot be read of it.
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
