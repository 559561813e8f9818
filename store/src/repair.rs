//! Damage and its repair.
//!
//! An unreadable place of a slice may have held any key whose lookup leads there, at any ballot up
//! to the highest of the slice. So:
//!
//! * a key with a readable version of at least that ballot is safe;
//! * any other key that leads there is refused, until it is written again with a higher ballot, or
//!   the place is *vouched for*: a caller that knows the other replicas confirms that its former
//!   content is superseded or gone ([`Store::mark_repaired`]);
//! * a compaction drops unreadable records only if every such place was vouched for before the
//!   compaction read it. It then takes all slices of the partition, so that their sums are correct
//!   again.
//!
//! If the store is closed before such a compaction, the confirmation is lost and the damage is
//! found again.
//!
//! # The flow, driven by a replica
//!
//! 1. [`Store::scrub`] reads the slices of one partition after another, in the background and at a
//!    limited rate, and finds damage that no get has met yet. [`Store::damage`] reports the damage
//!    found so far. Such a copy is *partial*: it serves no copies and no sums.
//! 2. A place with a known [key](Unreadable::key) is reconciled: the key is written again with a
//!    new ballot (`Reconcile`, with `rewrite`). The next scrub finds it superseded.
//! 3. For a place without a known key, only the digests around it are known, or nothing if the
//!    whole slice is lost. The other replicas list their keys in between, or all keys of the
//!    partition. Those keys that [`Store::get`] refuses here are reconciled in the same way. Then
//!    the place is vouched for. That is correct once no ballot up to [`Unreadable::highest`] can be
//!    accepted any more (the others raised their floors above it before they listed), and once so
//!    many have listed that the rest, with this replica, are no quorum.
//! 4. The next compaction rewrites the partition without the damaged slices.
//!
//! Damage that loses nothing (the order, the digest, an index beside an intact header) is repaired
//! by such a compaction alone.

#![expect(clippy::cast_precision_loss, reason = "a rate")]

use std::time::{Duration, Instant};

use torc_record::{Ballot, Digest, DigestKey, Locator, to_usize};
use torc_ring::Partition;

use crate::segment::Slice;
use crate::shared::Shared;
use crate::slice::{Damage, OrderedRecords, SLICE_DIGEST_LEN};
use crate::{ReadablePage, ScanLimits, Store, StoreError};

/// Limit on the places that one scrub reports.
const MAX_PLACES: usize = 4096;
/// Bytes that a scrub reads at a time.
const PIECE_LEN: u64 = 256 << 10;
/// Lowest rate, bytes per second: at a lower one, closing the store would wait for a sleeping
/// scrub.
const LEAST_BYTES_PER_S: u64 = 1 << 20;

/// An unreadable place of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The slice's partition.
    pub partition: Partition,
    /// Number of the segment.
    pub segment: u64,
    /// Row of the slice there.
    pub row: u32,
    /// The slot of one key; `None` if the whole slice is unreadable.
    pub slot: Option<u32>,
    /// The last readable digest before it in ring order, if known. Lost keys have digests between
    /// this one and `before`.
    pub after: Option<Digest>,
    /// The first readable digest after it.
    pub before: Option<Digest>,
    /// No lost record had a higher ballot.
    pub highest: Ballot,
    /// The key whose version was lost, if it is still readable: it matches the digest stored beside
    /// it.
    pub key: Option<Locator>,
}

/// The result of scrubbing a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubReport {
    /// Slices read.
    pub slices: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Damaged slices.
    pub damaged: u64,
    /// Lost places that are neither superseded nor vouched for: up to 4,096. Scrub again once these
    /// are repaired.
    pub unreadable: Vec<Unreadable>,
}

impl Store {
    /// As [`Store::scan`], but leaves out unreadable records and reports that. Then
    /// [`Store::scrub`] gives the places, and [`Store::get`] the keys in doubt.
    ///
    /// # Errors
    /// As [`Store::scan`], except for damage.
    pub fn scan_readable(
        &self,
        partition: Partition,
        after: Option<&Locator>,
        limits: ScanLimits,
    ) -> Result<ReadablePage, StoreError> {
        self.check_partition(partition)?;
        self.shared().health.check()?;
        self.shared().table.readable_page(partition, after, limits)
    }

    /// Reads all slices of a partition from end to end, at `bytes_per_s` (at least 1 MiB), checks
    /// every byte, and reports lost records. With the cluster's key it recognises lost keys, and
    /// leaves out those superseded meanwhile. Compaction removes damage that loses nothing.
    ///
    /// Blocks. Takes no lock while it reads; needs 512 KiB of memory, and three bytes per key of a
    /// damaged slice.
    ///
    /// # Errors
    /// [`StoreError::UnknownPartition`], [`StoreError::Failed`], [`StoreError::Closed`], also if
    /// the store is closed meanwhile. Damage is not an error.
    pub fn scrub(
        &self,
        partition: Partition,
        cluster: Option<&DigestKey>,
        bytes_per_s: u64,
    ) -> Result<ScrubReport, StoreError> {
        self.check_partition(partition)?;
        let shared = self.shared();
        shared.health.check()?;
        let mut report = ScrubReport::default();
        let mut throttle = Throttle::new(bytes_per_s);
        for slice in shared.table.slices(partition).iter() {
            if let Err(what) = check_bytes(shared, slice, &mut throttle)? {
                // Only recorded here.
                let _ = slice.note_damage(what);
            }
            report.slices += 1;
            report.bytes += slice.len();
            if !slice.is_damaged() {
                continue;
            }
            report.damaged += 1;
            let room = MAX_PLACES - report.unreadable.len();
            let mut places = unreadable(slice, room, |slot| known_key(slice, slot, cluster));
            places.retain(|place| !vouch_if_superseded(shared, slice, place));
            if places.is_empty() {
                // It needs no vouching, so nothing would wake a waiting compaction.
                slice.note_waiting(false);
            }
            report.unreadable.extend(places);
        }
        for slice in shared.table.generations_of(partition).iter() {
            // A damaged slice of a generation is copied again as a whole.
            if let Err(what) = check_bytes(shared, slice, &mut throttle)? {
                let _ = slice.note_damage(what);
            }
        }
        if report.damaged > 0 {
            shared.compactions.want();
        }
        Ok(report)
    }

    /// Vouches for places: the content of each is superseded by readable records, or known not to
    /// exist. From now on they read as empty, and the next compaction rewrites the partition
    /// without them. Ignores slices that no longer exist.
    pub fn mark_repaired(&self, places: &[Unreadable]) {
        for place in places {
            let slices = self.shared().table.slices(place.partition);
            let id = (place.segment, place.row);
            if let Some(slice) = slices.iter().find(|slice| slice.id() == id) {
                slice.vouch(place.slot);
            }
        }
        self.shared().compactions.want();
    }
}

/// Limits reading to a number of bytes per second.
struct Throttle {
    bytes_per_s: u64,
    bytes: u64,
    started: Instant,
}

impl Throttle {
    fn new(bytes_per_s: u64) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(LEAST_BYTES_PER_S),
            bytes: 0,
            started: Instant::now(),
        }
    }

    /// Counts these bytes, and sleeps until they are due.
    fn take(&mut self, bytes: u64) {
        self.bytes += bytes;
        let due = Duration::from_secs_f64(self.bytes as f64 / self.bytes_per_s as f64);
        std::thread::sleep(due.saturating_sub(self.started.elapsed()));
    }
}

/// Checks that the bytes of a slice are those that were written.
///
/// # Errors
/// The store has failed or is closing.
fn check_bytes(
    shared: &Shared,
    slice: &Slice,
    throttle: &mut Throttle,
) -> Result<Result<(), Damage>, StoreError> {
    let end = slice.len().saturating_sub(SLICE_DIGEST_LEN as u64);
    let mut hasher = blake3::Hasher::new();
    let mut at = 0;
    while at < end {
        shared.health.check()?;
        if shared.compactions.is_stopping() {
            return Err(StoreError::Closed);
        }
        let len = PIECE_LEN.min(end - at);
        match slice.read(at, to_usize(len)) {
            Ok(piece) => hasher.update(&piece),
            Err(what) => return Ok(Err(what)),
        };
        at += len;
        throttle.take(len);
    }
    Ok(slice.digest().and_then(|digest| {
        let is_whole = *hasher.finalize().as_bytes() == digest;
        is_whole.then_some(()).ok_or("a slice fails its digest")
    }))
}

/// The key of an unreadable record, if its head and key are readable.
fn known_key(slice: &Slice, slot: u32, cluster: Option<&DigestKey>) -> Option<Locator> {
    let cluster = cluster?;
    let claimed = slice.view().ok()?.claimed_key(slot as usize)?;
    let digest = Digest::of(cluster, claimed.namespace, claimed.key.as_bytes());
    (digest == claimed.digest).then_some(claimed)
}

/// Vouches for a place if the store has a version of its key that is not older than the lost one.
fn vouch_if_superseded(shared: &Shared, slice: &Slice, place: &Unreadable) -> bool {
    let key = place.key.as_ref();
    let newest = key.and_then(|key| shared.table.newest_ballot(key));
    let is_superseded = newest.is_some_and(|newest| newest >= place.highest);
    if is_superseded {
        slice.vouch(place.slot);
    }
    is_superseded
}

/// Whether a compaction may leave out the unreadable records of a slice. Reads the whole slice.
pub(crate) fn is_repaired(slice: &Slice) -> bool {
    unreadable(slice, 1, |_| None).is_empty()
}

/// Up to `most` unreadable places of a slice that were not vouched for.
fn unreadable(
    slice: &Slice,
    most: usize,
    key_in: impl Fn(u32) -> Option<Locator>,
) -> Vec<Unreadable> {
    let place = Unreadable {
        partition: slice.partition(),
        segment: slice.id().0,
        row: slice.id().1,
        slot: None,
        after: None,
        before: None,
        highest: slice.highest(),
        key: None,
    };
    let Ok(view) = slice.view() else {
        let is_lost = !slice.is_vouched_slot(None) && slice.salvage(|_| ()).is_err();
        let is_open = is_lost && most > 0;
        return is_open.then_some(place).into_iter().collect();
    };
    let mut found: Vec<Unreadable> = Vec::new();
    // The places from `open` on are before the next readable digest.
    let (mut last, mut open) = (None, 0);
    for record in OrderedRecords::readable(view, None) {
        let lost = match record {
            Err(lost) => lost,
            Ok(packed) => {
                last = Some(packed.digest());
                found[open..].iter_mut().for_each(|one| one.before = last);
                open = found.len();
                if open >= most {
                    break;
                }
                continue;
            }
        };
        // Only recorded here: the places are the result.
        let _ = slice.note_damage(lost.what);
        let is_vouched = lost.slot.is_some() && slice.is_vouched_slot(lost.slot);
        if is_vouched || found.len() >= most {
            continue;
        }
        found.push(Unreadable {
            slot: lost.slot,
            after: last.filter(|_| lost.in_order),
            key: lost.slot.and_then(&key_in),
            ..place.clone()
        });
        if !lost.in_order {
            open = found.len();
        }
    }
    found
}
