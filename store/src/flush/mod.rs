//! Flush: the memtable becomes slices, so that memory is freed and the log can be cut.
//!
//! A flush is fuzzy: it reads the memtable partition by partition while the log goes on. What
//! makes that right:
//!
//! * First the log is rotated, after entry `through`. Of each key the flush takes the record
//!   if its entry is one up to `through`, or none: a later one stays in the memtable, and is
//!   in the log behind the rotation.
//! * When the segment and the manifest that names it are durable, each slice is put in force
//!   and the records it holds leave the memtable within one lock: a reader finds each record
//!   in the one or the other.
//! * A partition that was dropped meanwhile keeps nothing of it; after a crash the drop, which
//!   is in the log behind the rotation, says so again.
//! * What was collected is left out if no slice beneath may hold its key; if slices have
//!   come since that was looked up, and one may, the flush is written again.
//! * Recovery reads the slices and replays the log from the rotation on.

mod thread;

pub(crate) use thread::{FRESH_GATE_RATE, run};

use std::sync::Arc;

use crate::packed::Packed;
use crate::partition_table::{Damaged, MergedSlices, Slices, newest_readable};
use crate::segment::Slice;
use crate::{PartitionSummary, StoreError};

/// What a flushed record changes in the sum of a partition's slices. Nothing if they have as
/// high a ballot: slices that were ingested during the flush may.
fn account(delta: &mut PartitionSummary, slices: &Slices, packed: &Packed) {
    // A version that cannot be read is not counted: it cannot be served either.
    match newest_readable(slices, &packed.position()) {
        Some(sealed) if !packed.supersedes(&sealed) => return,
        Some(older) => delta.remove(&older),
        None => {}
    }
    delta.add(packed);
}

/// What a slice changes in the sum of those beneath it.
///
/// # Errors
/// [`StoreError::Damaged`].
fn delta_of(slice: &Arc<Slice>, beneath: &Slices) -> Result<PartitionSummary, StoreError> {
    let mut records = MergedSlices::after(std::iter::once(slice), None, Damaged::Refuse)?;
    let mut delta = PartitionSummary::default();
    while let Some(packed) = records.next()? {
        account(&mut delta, beneath, &packed);
    }
    Ok(delta)
}
