//! Merges the memtable and the slices of a partition, in ring order.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::sync::Arc;

use torc_record::{Ballot, Digest, Epoch, KeyId, Locator, NamespaceId, PageSum, entry_sum};

use super::{PartitionTable, Slices, Stretch};
use crate::packed::Packed;
use crate::segment::Slice;
use crate::slice::{Damage, OrderedRecords};
use crate::{FilteredPage, RangeSum, ReadablePage, ScanLimits, ScanPage, Seq, StoreError};
use torc_ring::Partition;

/// How to treat unreadable places. Places that were vouched for are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// Fail, because records may be missing.
    Refuse,
    /// As `Refuse`, but read a slice without its order or index if these are damaged: for
    /// compactions, which read everything anyway.
    Sort,
    /// Leave them out.
    LeaveOut,
}

/// The records of a slice in ring order.
enum Records<'a> {
    Ordered(OrderedRecords<'a>),
    /// The records of a slice whose index is damaged.
    Salvaged(std::vec::IntoIter<Packed>),
}

impl<'a> Iterator for Records<'a> {
    type Item = <OrderedRecords<'a> as Iterator>::Item;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Ordered(records) => records.next(),
            Self::Salvaged(records) => records.next().map(Ok),
        }
    }
}

/// All records of a slice whose index is damaged, in memory.
fn salvage(slice: &Slice) -> Result<Records<'static>, Damage> {
    let mut records = Vec::new();
    slice.salvage(|record| records.push(record.to_packed()))?;
    records.sort_unstable_by(|a, b| a.position().cmp(&b.position()));
    Ok(Records::Salvaged(records.into_iter()))
}

/// Merges the records of several slices in ring order: the highest ballot of each key.
pub(crate) struct MergedSlices<'a> {
    inputs: Vec<(&'a Arc<Slice>, Peekable<Records<'a>>)>,
    damaged: Damaged,
    /// Whether records were left out.
    pub(crate) is_partial: bool,
}

impl<'a> MergedSlices<'a> {
    /// Starts at the first record after a position.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn after(
        slices: impl Iterator<Item = &'a Arc<Slice>>,
        position: Option<&Locator<&[u8]>>,
        damaged: Damaged,
    ) -> Result<Self, StoreError> {
        let mut merged = Self {
            inputs: Vec::new(),
            damaged,
            is_partial: false,
        };
        for slice in slices {
            let records = match (slice.view(), damaged) {
                (Ok(view), Damaged::Refuse) => {
                    OrderedRecords::after(view, position).map(Records::Ordered)
                }
                (Ok(view), Damaged::Sort | Damaged::LeaveOut) => {
                    Ok(Records::Ordered(OrderedRecords::readable(view, position)))
                }
                (Err(_), _) if slice.is_vouched_slot(None) => continue,
                (Err(_), Damaged::Sort) => salvage(slice),
                (Err(what), _) => Err(what),
            };
            match records {
                Ok(records) => merged.inputs.push((slice, records.peekable())),
                Err(what) => {
                    let error = slice.note_damage(what);
                    if damaged != Damaged::LeaveOut {
                        return Err(error);
                    }
                    merged.is_partial = true;
                }
            }
        }
        Ok(merged)
    }

    /// The next record, without its older versions.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn next(&mut self) -> Result<Option<Packed>, StoreError> {
        let mut next: Option<Packed> = None;
        for (slice, records) in &mut self.inputs {
            while let Some(Err(lost)) = records.peek() {
                let is_empty = lost.slot.is_some() && slice.is_vouched_slot(lost.slot);
                if !is_empty {
                    let error = slice.note_damage(lost.what);
                    if self.damaged != Damaged::LeaveOut {
                        return Err(error);
                    }
                    self.is_partial = true;
                }
                records.next();
            }
            let Some(Ok(packed)) = records.peek() else {
                continue;
            };
            let is_better = next.as_ref().is_none_or(|next| {
                let (a, b) = (packed.position(), next.position());
                a < b || (a == b && packed.supersedes(next))
            });
            if is_better {
                next = Some(packed.clone());
            }
        }
        let Some(found) = next else { return Ok(None) };
        for (_, records) in &mut self.inputs {
            let is_here = |next: &Result<Packed, _>| {
                next.as_ref()
                    .is_ok_and(|next| next.position() == found.position())
            };
            drop(records.next_if(is_here));
        }
        Ok(Some(found))
    }
}

/// The sum of the records of a page.
#[derive(Debug, Default)]
struct Summed {
    sum: PageSum,
    /// Whether two of them have the same digest, which a sum cannot tell apart.
    is_spoilt: bool,
}

impl Summed {
    fn add(&mut self, packed: &Packed) {
        let packed = packed.borrowed();
        self.is_spoilt |= !self.sum.add(packed.id(), packed.ballot());
    }
}

/// The records that a page includes.
enum Wanted<'a> {
    All,
    /// None, only their sum.
    Sum,
    /// Values for which `keep` returns true. Records the epochs of the others.
    Values {
        keep: &'a mut dyn FnMut(&[u8]) -> bool,
        left_out: BTreeSet<Epoch>,
    },
}

impl Wanted<'_> {
    fn takes(&mut self, packed: &Packed) -> bool {
        match self {
            Self::All => true,
            Self::Sum => false,
            Self::Values { keep, left_out } => {
                let taken = packed.borrowed().value().is_some_and(keep);
                if !taken {
                    left_out.insert(packed.ballot().epoch);
                }
                taken
            }
        }
    }
}

/// Limit on the bytes that a filtered page reads, whatever it includes.
const FILTERED_BYTES: usize = 16 << 20;

/// A page being filled.
struct Filling<'a> {
    limits: ScanLimits,
    wanted: Wanted<'a>,
    since: Seq,
    /// Records collected up to here are left out.
    watermark: Ballot,
    damaged: Damaged,
    /// Bytes of the records included, and of all records read.
    bytes: usize,
    read_bytes: usize,
    /// The page ends after this digest and namespace.
    until: Option<KeyId>,
    records: Vec<Packed>,
    /// The sum of all records read, unless all are included.
    sum: Summed,
    /// The last record examined.
    last: Option<Packed>,
    is_partial: bool,
}

impl Filling<'_> {
    fn push(&mut self, packed: Packed) {
        if !packed.is_collected(self.watermark) {
            self.read_bytes += packed.bytes().len();
            if !matches!(self.wanted, Wanted::All) {
                self.sum.add(&packed);
            }
            if self.wanted.takes(&packed) {
                self.bytes += packed.bytes().len();
                self.records.push(packed.clone());
            }
        }
        self.last = Some(packed);
    }

    /// Whether the page is full before the record at a position. A page never ends between two keys
    /// of one digest, so a cursor without a key skips none.
    fn ends_before(&self, next: &Locator<&[u8]>) -> bool {
        if self.until.is_some_and(|until| next.id() > until) {
            return true;
        }
        let is_full = match &self.wanted {
            Wanted::Sum => self.sum.is_spoilt || self.sum.sum.count > self.limits.records as u64,
            Wanted::Values { .. } if self.sum.is_spoilt || self.read_bytes >= FILTERED_BYTES => {
                true
            }
            _ => self.records.len() >= self.limits.records || self.bytes >= self.limits.bytes,
        };
        let last = self.last.as_ref().map(Packed::digest);
        is_full && last != Some(next.digest)
    }

    fn page(self, is_done: bool) -> ReadablePage {
        let next = self.last.filter(|_| !is_done).map(|last| last.cursor());
        ReadablePage {
            page: ScanPage {
                done: next.is_none(),
                next,
                records: self.records.iter().map(Packed::unpack).collect(),
            },
            is_partial: self.is_partial,
        }
    }
}

impl PartitionTable {
    /// A page of records that were not collected.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn page(
        &self,
        partition: Partition,
        after: Option<&Locator>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        let watermark = self.facts(partition).watermark;
        let page = Filling::new(limits, watermark, Damaged::Refuse);
        Ok(self
            .fill(partition, after.map(Locator::borrowed), page)?
            .page)
    }

    /// A page of readable records that were not collected.
    ///
    /// # Errors
    /// None for damage.
    pub(crate) fn readable_page(
        &self,
        partition: Partition,
        after: Option<&Locator>,
        limits: ScanLimits,
    ) -> Result<ReadablePage, StoreError> {
        let watermark = self.facts(partition).watermark;
        let page = Filling::new(limits, watermark, Damaged::LeaveOut);
        self.fill(partition, after.map(Locator::borrowed), page)
    }

    /// A page of records with numbers above `since`. Includes all records of slices that may hold
    /// such records. Includes collected records, because they hide older versions in the slices
    /// that are copied together with the tail.
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn tail(
        &self,
        partition: Partition,
        since: Seq,
        after: Option<&Locator>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        let mut page = Filling::new(limits, Ballot::default(), Damaged::Refuse);
        page.since = since;
        Ok(self
            .fill(partition, after.map(Locator::borrowed), page)?
            .page)
    }

    /// A page of a generation.
    ///
    /// # Errors
    /// [`StoreError::NotHeld`], [`StoreError::Damaged`].
    pub(crate) fn generation_page(
        &self,
        partition: Partition,
        generation: NamespaceId,
        after: Option<&Locator>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        let slice = self.generation(partition, generation);
        let slice = slice.ok_or(StoreError::NotHeld {
            partition,
            generation,
        })?;
        if slice
            .header()
            .is_some_and(|header| header.keyless().is_some())
        {
            return Err(StoreError::Keyless { generation });
        }
        let stretch = Stretch {
            records: Vec::new(),
            last: None,
            slices: Arc::from([slice]),
        };
        let start = after.map(Locator::borrowed);
        let mut page = Filling::new(limits, Ballot::default(), Damaged::Refuse);
        let end = merge(&stretch, start.as_ref(), &mut page)?;
        Ok(page.page(end == End::OfStretch).page)
    }

    /// The sum of the versions with these digests.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn sum_of(
        &self,
        partition: Partition,
        low: Digest,
        high: Digest,
    ) -> Result<RangeSum, StoreError> {
        let watermark = self.facts(partition).watermark;
        let mut sum = RangeSum::default();
        let mut after: Option<Locator> = None;
        loop {
            // Sorts before all keys of the digest, because no key is empty.
            let first = Locator {
                digest: low,
                namespace: NamespaceId(0),
                key: &[][..],
            };
            let start = after.as_ref().map_or(first, Locator::borrowed);
            let page = Filling::new(ScanLimits::default(), watermark, Damaged::Refuse);
            let page = self.fill(partition, Some(start), page)?.page;
            for record in &page.records {
                if record.digest > high {
                    return Ok(sum);
                }
                let entry = entry_sum(KeyId::of(record), record.ballot);
                sum.count += 1;
                sum.sum = sum.sum.wrapping_add(entry);
            }
            after = page.next;
            if after.is_none() {
                return Ok(sum);
            }
        }
    }

    /// The sum of the page after a position, if it ends with `until` or with the partition. `None`
    /// if that is more than `most` records, if two of them have the same digest, or if some cannot
    /// be read.
    pub(crate) fn page_sum(
        &self,
        partition: Partition,
        after: Option<&Locator>,
        until: Option<KeyId>,
        most: usize,
    ) -> Option<PageSum> {
        let watermark = self.facts(partition).watermark;
        let limits = ScanLimits {
            records: most,
            bytes: usize::MAX,
        };
        let page = Filling {
            until,
            wanted: Wanted::Sum,
            ..Filling::new(limits, watermark, Damaged::Refuse)
        };
        let summed = self
            .filled(partition, after.map(Locator::borrowed), page)
            .ok()?
            .0
            .sum;
        (!summed.is_spoilt && summed.sum.count <= most as u64).then_some(summed.sum)
    }

    /// A page of the values for which `keep` returns true, and the sum of all records; `None` if
    /// two of these have the same digest.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn filtered_page(
        &self,
        partition: Partition,
        after: Option<&Locator>,
        limits: ScanLimits,
        keep: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Option<FilteredPage>, StoreError> {
        let watermark = self.facts(partition).watermark;
        let left_out = BTreeSet::new();
        let page = Filling {
            wanted: Wanted::Values { keep, left_out },
            ..Filling::new(limits, watermark, Damaged::Refuse)
        };
        let (mut page, is_done) = self.filled(partition, after.map(Locator::borrowed), page)?;
        let Summed { sum, is_spoilt } = std::mem::take(&mut page.sum);
        let left_out = match &mut page.wanted {
            Wanted::Values { left_out, .. } => std::mem::take(left_out),
            _ => BTreeSet::new(),
        };
        Ok((!is_spoilt).then(|| FilteredPage {
            page: page.page(is_done).page,
            sum,
            left_out,
        }))
    }

    fn fill(
        &self,
        partition: Partition,
        start: Option<Locator<&[u8]>>,
        page: Filling<'_>,
    ) -> Result<ReadablePage, StoreError> {
        let (page, is_done) = self.filled(partition, start, page)?;
        Ok(page.page(is_done))
    }

    /// Fills a page; returns it and whether the partition ends with it.
    fn filled<'a>(
        &self,
        partition: Partition,
        start: Option<Locator<&[u8]>>,
        mut page: Filling<'a>,
    ) -> Result<(Filling<'a>, bool), StoreError> {
        let limit = page.limits.records;
        let mut last: Option<Packed> = None;
        loop {
            let from = last.as_ref().map(Packed::position).or(start);
            let mut taken = 0;
            let full = |_: &Packed| {
                taken += 1;
                // One record more than the page holds, to tell whether the page may end there.
                taken > limit
            };
            // Takes all of the memtable, even records that are too old for the page: they hide
            // versions in the slices.
            let stretch = self.stretch(partition, from.as_ref(), |_| true, full);
            let end = merge(&stretch, from.as_ref(), &mut page)?;
            if end == End::Full {
                // The cursor is that of the last record; there may be none after it.
                return Ok((page, false));
            }
            last = stretch.last;
            if last.is_none() {
                return Ok((page, true));
            }
        }
    }
}

impl Filling<'_> {
    fn new(limits: ScanLimits, watermark: Ballot, damaged: Damaged) -> Self {
        Self {
            limits: ScanLimits {
                records: limits.records.max(1),
                ..limits
            },
            wanted: Wanted::All,
            since: Seq(0),
            watermark,
            damaged,
            bytes: 0,
            read_bytes: 0,
            until: None,
            records: Vec::new(),
            sum: Summed::default(),
            last: None,
            is_partial: false,
        }
    }
}

#[derive(PartialEq, Eq)]
enum End {
    Full,
    OfStretch,
}

/// Merges a stretch of the memtable with the slices beneath it, up to the last record of the
/// stretch, or to the end of the partition if the stretch reaches it.
fn merge(
    stretch: &Stretch,
    from: Option<&Locator<&[u8]>>,
    page: &mut Filling<'_>,
) -> Result<End, StoreError> {
    let slices: &Slices = &stretch.slices;
    let since = page.since;
    let wanted = slices
        .iter()
        .filter(|slice| since == Seq(0) || slice.segment.file.after > since);
    let mut sealed = MergedSlices::after(wanted, from, page.damaged)?;
    let mut memtable = stretch.records.iter().peekable();
    let mut next_sealed = sealed.next()?;
    page.is_partial |= sealed.is_partial;
    loop {
        let in_memtable = memtable.peek().map(|(_, packed)| packed.position());
        let position = next_sealed.as_ref().map(Packed::position);
        let next = in_memtable.into_iter().chain(position).min();
        // The memtable may have more records before this one.
        let is_beyond = next
            .zip(stretch.last.as_ref())
            .is_some_and(|(next, last)| next > last.position());
        if is_beyond {
            return Ok(End::OfStretch);
        }
        if next.is_some_and(|next| page.ends_before(&next)) {
            return Ok(End::Full);
        }
        match (in_memtable, position) {
            (None, None) => return Ok(End::OfStretch),
            (Some(upper), lower) if lower.is_none_or(|lower| upper <= lower) => {
                let hides = lower == Some(upper);
                if let Some((seq, packed)) = memtable.next()
                    && *seq > since
                {
                    page.push(packed.clone());
                }
                if hides {
                    next_sealed = sealed.next()?;
                }
            }
            (_, Some(_)) => {
                if let Some(packed) = next_sealed.take() {
                    page.push(packed);
                }
                next_sealed = sealed.next()?;
            }
            (Some(_), None) => {}
        }
        page.is_partial |= sealed.is_partial;
    }
}
