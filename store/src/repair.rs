//! Damage, and how it heals for good.
//!
//! A place of a slice that cannot be read may have held any key whose lookup leads there, at
//! any ballot up to the highest of the slice. So:
//!
//! * a key of which a version with at least that ballot can be read is not in doubt;
//! * any other key that leads there is refused, until its version is written anew with a
//!   higher ballot, or the place is *vouched for*: whoever knows the other replicas says
//!   that whatever was in it is known to be superseded or gone ([`Store::mark_repaired`]);
//! * a fold leaves out of its result what cannot be read if, and only if, each such place
//!   was vouched for before the fold read it. It takes all slices of the partition then, so
//!   that their sums are right again.
//!
//! What was vouched for is forgotten when the store is closed before such a fold: then the
//! damage is found again.

use torc_record::{Ballot, Digest};
use torc_ring::Partition;

use crate::segment::Slice;
use crate::{Cursor, ScanLimits, ScanPage, Store, StoreError};

/// A place of a slice that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable {
    /// Of which partition.
    pub partition: Partition,
    /// Number of the segment.
    pub segment: u64,
    /// Row of the slice there.
    pub row: u32,
    /// The slot of one key; none if nothing of the slice can be read.
    pub slot: Option<u32>,
    /// The last digest before it in ring order that can be read, if it is known. Keys that
    /// were lost have digests in between.
    pub after: Option<Digest>,
    /// The first digest behind it.
    pub before: Option<Digest>,
    /// What was lost had no higher ballot.
    pub highest: Ballot,
}

/// A page of what can be read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReadablePage {
    /// As [`Store::scan`] gives it.
    pub page: ScanPage,
    /// Whether something of the partition was left out that cannot be read.
    pub is_partial: bool,
}

impl Store {
    /// As [`Store::scan`], but what cannot be read is left out, and the page says so. Then
    /// [`Store::unreadable`] says where, and [`Store::get`] which keys are in doubt.
    ///
    /// # Errors
    /// As [`Store::scan`], but for damage.
    pub fn scan_readable(
        &self,
        partition: Partition,
        after: Option<&Cursor>,
        limits: ScanLimits,
    ) -> Result<ReadablePage, StoreError> {
        self.check_partition(partition)?;
        self.shared().health.check()?;
        self.shared()
            .holdings
            .readable_page(partition, after, limits)
    }

    /// Every place of a partition's slices that cannot be read and was not vouched for.
    /// Reads all of them.
    ///
    /// # Errors
    /// [`StoreError::UnknownPartition`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn unreadable(&self, partition: Partition) -> Result<Vec<Unreadable>, StoreError> {
        self.check_partition(partition)?;
        self.shared().health.check()?;
        let slices = self.shared().holdings.slices(partition);
        Ok(slices.iter().flat_map(|slice| unreadable(slice)).collect())
    }

    /// Vouches for places: whatever was in them is superseded by what can be read, or is
    /// known not to be there. They are read as empty from now on, and the next fold writes
    /// the partition without them. Nothing happens for slices that are gone.
    pub fn mark_repaired(&self, places: &[Unreadable]) {
        for place in places {
            let slices = self.shared().holdings.slices(place.partition);
            let id = (place.segment, place.row);
            if let Some(slice) = slices.iter().find(|slice| slice.id() == id) {
                slice.vouch(place.slot);
            }
        }
        self.shared().folds.want();
    }
}

/// Whether a fold may do without what cannot be read of a slice. Reads all of it.
pub(crate) fn is_repaired(slice: &Slice) -> bool {
    unreadable(slice).is_empty()
}

fn unreadable(slice: &Slice) -> Vec<Unreadable> {
    let place = Unreadable {
        partition: slice.partition(),
        segment: slice.id().0,
        row: slice.id().1,
        slot: None,
        after: None,
        before: None,
        highest: slice.highest(),
    };
    let Ok(view) = slice.view() else {
        let is_open = !slice.is_vouched_slot(None);
        return is_open.then_some(place).into_iter().collect();
    };
    let mut found = Vec::new();
    let (mut last, mut open) = (None, 0);
    for record in crate::slice::OrderedRecords::readable(view, None) {
        match record {
            Ok(packed) => {
                last = Some(packed.digest());
                found[open..]
                    .iter_mut()
                    .for_each(|one: &mut Unreadable| one.before = last);
                open = found.len();
            }
            Err(lost) => {
                // What it says is remembered; the places are what matters here.
                let _ = slice.note_damage(lost.what);
                if lost
                    .slot
                    .is_none_or(|slot| !slice.is_vouched_slot(Some(slot)))
                {
                    found.push(Unreadable {
                        slot: lost.slot,
                        after: last.filter(|_| lost.in_order),
                        ..place
                    });
                    if !lost.in_order {
                        open = found.len();
                    }
                }
            }
        }
    }
    found
}
