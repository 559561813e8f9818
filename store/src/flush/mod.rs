//! Flush writes the memtable to slices, so that memory is freed and the log can be cut.
//!
//! A flush is fuzzy: it reads the memtable partition by partition while writes continue. It
//! is correct because:
//!
//! * First the log is rotated, after entry `through`. The flush takes only records with
//!   entries up to `through`: later ones stay in the memtable, and are in the log after the
//!   rotation.
//! * When the segment and its manifest are durable, each slice is published and its
//!   records leave the memtable under one lock: a reader finds each record in one of the
//!   two.
//! * A partition that was dropped meanwhile gets no slice; after a crash the drop is
//!   replayed, because it is in the log after the rotation.
//! * Collected records are left out if no older slice may hold their keys; if a slice
//!   that may was added since that check, the flush is repeated.
//! * Recovery reads the slices and replays the log from the rotation.

mod thread;

pub(crate) use thread::{FRESH_GATE_RATE, run};

use std::sync::Arc;

use crate::packed::Packed;
use crate::partition_table::{Damaged, MergedSlices, Slices, newest_readable};
use crate::segment::Slice;
use crate::{PartitionSummary, StoreError};

/// The change that a flushed record makes to the sum of a partition's slices: none if a slice has
/// the key with the same or a higher ballot, as slices ingested during the flush may.
fn account(delta: &mut PartitionSummary, slices: &Slices, packed: &Packed) {
    // An unreadable version is not counted, because it cannot be served either.
    match newest_readable(slices, &packed.position()) {
        Some(sealed) if !packed.supersedes(&sealed) => return,
        Some(older) => delta.remove(&older),
        None => {}
    }
    delta.add(packed);
}

/// The change that a slice makes to the sum of the slices beneath it.
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
