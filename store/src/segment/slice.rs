//! An open segment and its slices.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a slice has at most MAX_KEYS slots, and gates of a segment fewer than 2^32 lines"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use torc_index::Gate;
use torc_record::{Ballot, Digest, Locator, NamespaceId, Record};
use torc_ring::Partition;

use crate::fs::FsFile;
use crate::packed::PackedRef;
use crate::slice::{
    Damage, Found, Heads, IndexParts, Kind, Reading, Rest, SLICE_DIGEST_LEN, SliceHeader,
    SliceView, read_file, salvage,
};
use crate::{Seq, StoreError};

/// A segment as named by the manifest, without its live rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentFile {
    pub(crate) number: u64,
    pub(crate) len: u64,
    pub(crate) table_at: u64,
    /// The slices may have the effects of entries up to this one. A drop with a higher number
    /// empties them.
    pub(crate) after: Seq,
    pub(crate) rows: u32,
}

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) file: SegmentFile,
    pub(crate) path: PathBuf,
    reader: Arc<dyn FsFile>,
    index: IndexMemory,
    /// Notes on slices, by row. Nearly always empty.
    notes: RwLock<BTreeMap<u32, Notes>>,
}

impl Segment {
    pub(super) fn new(
        file: SegmentFile,
        path: PathBuf,
        reader: Arc<dyn FsFile>,
        index: IndexMemory,
    ) -> Self {
        // Gets read random places: reading ahead would fetch a hundred records for one.
        reader.expect_random_reads();
        Self {
            file,
            path,
            reader,
            index,
            notes: RwLock::default(),
        }
    }
}

/// The parts of the indexes that lookups read: the blocks of all gates, each aligned to a cache
/// line, then the MPHFs and offsets without gaps.
#[derive(Debug)]
pub(super) struct IndexMemory {
    bytes: Vec<u8>,
    /// Bytes before the first cache line boundary in `bytes`.
    pad: usize,
    /// Bytes of the gates, with the gaps between them.
    gates: usize,
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// The place of an index in its segment's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexPlace {
    /// The cache line at which its gate begins.
    gate_line: u32,
    /// Offset of its MPHF after the gates.
    lookup_at: u32,
}

impl IndexMemory {
    /// Copies the indexes into one allocation. Returns the place of each.
    pub(super) fn of<'a>(
        parts: impl Iterator<Item = IndexParts<'a>> + Clone,
    ) -> (Self, Vec<Result<IndexPlace, Damage>>) {
        let gates = parts
            .clone()
            .map(|one| one.gate.len().next_multiple_of(LINE));
        let gates: usize = gates.sum();
        let total: usize = gates + parts.clone().map(|one| one.lookup.len()).sum::<usize>();
        let mut bytes: Vec<u8> = Vec::with_capacity(total + LINE - 1);
        let pad = bytes.as_ptr().align_offset(LINE).min(LINE - 1);
        bytes.resize(pad + total, 0);
        let mut places = Vec::new();
        let (mut gate_at, mut lookup_at) = (0, gates);
        for IndexParts { gate, lookup } in parts {
            bytes[pad + gate_at..][..gate.len()].copy_from_slice(gate);
            bytes[pad + lookup_at..][..lookup.len()].copy_from_slice(lookup);
            let place = u32::try_from(lookup_at - gates).map(|lookup_at| IndexPlace {
                gate_line: (gate_at / LINE) as u32,
                lookup_at,
            });
            places.push(place.map_err(|_| "the indexes of a segment exceed 4 GiB"));
            gate_at += gate.len().next_multiple_of(LINE);
            lookup_at += lookup.len();
        }
        (Self { bytes, pad, gates }, places)
    }

    fn get(&self, place: IndexPlace, header: &SliceHeader) -> IndexParts<'_> {
        let part = |at: usize, len: usize| {
            let from = self.pad + at;
            self.bytes.get(from..from + len).unwrap_or_default()
        };
        let blocks = (header.gate_len as usize).saturating_sub(Gate::TRAILER_BYTES);
        let lookup = header.mphf_len as usize + header.offsets_len as usize;
        IndexParts {
            gate: part(place.gate_line as usize * LINE, blocks),
            lookup: part(self.gates + place.lookup_at as usize, lookup),
        }
    }
}

/// The facts about a slice that need no access to its index.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) header: SliceHeader,
    pub(super) heads: Heads,
    /// The place of its index in the segment's memory.
    pub(super) place: IndexPlace,
}

/// The known facts about an unreadable slice.
#[derive(Debug)]
struct Broken {
    what: Damage,
    partition: Partition,
    len: u64,
    highest: Ballot,
    is_generation: bool,
}

/// A slice of an open segment.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) segment: Arc<Segment>,
    pub(crate) row: u32,
    at: u64,
    /// Its content, or why it is unreadable.
    content: Result<Content, Box<Broken>>,
    /// Whether a record or the whole slice was found damaged.
    is_damaged: AtomicBool,
}

/// Notes on a slice since it was opened.
#[derive(Debug, Default)]
struct Notes {
    /// The whole slice was vouched for: see `repair.rs`.
    whole: bool,
    /// Slots that were vouched for.
    slots: BTreeSet<u32>,
    /// The slice contains no record that a collection up to here may drop, as far as dropping is
    /// allowed.
    swept: Ballot,
    /// A compaction cannot leave out its damaged records yet.
    is_waiting: bool,
}

impl Slice {
    pub(super) fn new(
        segment: Arc<Segment>,
        row: u32,
        place: super::table::Row,
        content: Result<Content, Damage>,
    ) -> Self {
        Self {
            segment,
            row,
            at: place.at,
            is_damaged: AtomicBool::new(content.is_err()),
            content: content.map_err(|what| {
                Box::new(Broken {
                    what,
                    partition: place.partition,
                    len: place.len,
                    highest: place.highest,
                    is_generation: place.is_generation,
                })
            }),
        }
    }

    /// RAM of a slice in addition to its gate, MPHF and offsets: the slice with its reference
    /// counts, and the list of its partition's slices, which is a reference to it and two counts,
    /// each as rounded by the allocator.
    pub(crate) const OVERHEAD_BYTES: usize =
        allocated(size_of::<Self>() + COUNTS) + allocated(size_of::<Arc<Self>>() + COUNTS);

    /// The number of its segment and its row there, which identify a slice.
    pub(crate) fn id(&self) -> (u64, u32) {
        (self.segment.file.number, self.row)
    }

    pub(crate) fn partition(&self) -> Partition {
        match &self.content {
            Ok(content) => content.header.partition,
            Err(broken) => broken.partition,
        }
    }

    /// Whether its records are of a generation.
    pub(crate) fn is_generation(&self) -> bool {
        match &self.content {
            Ok(content) => content.header.generation().is_some(),
            Err(broken) => broken.is_generation,
        }
    }

    /// Whether its records are of this generation. Also true if only its table shows that they are
    /// of some generation.
    pub(crate) fn may_be_of(&self, generation: NamespaceId) -> bool {
        match &self.content {
            Ok(content) => content.header.generation() == Some(generation),
            Err(broken) => broken.is_generation,
        }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Ok(content) => content.header.len(),
            Err(broken) => broken.len,
        }
    }

    /// Its header; `None` if that is damaged.
    pub(crate) fn header(&self) -> Option<&SliceHeader> {
        self.content.as_ref().ok().map(|content| &content.header)
    }

    /// No record that can be read has more bytes of key and value.
    pub(crate) fn longest(&self) -> usize {
        let content = self.content.as_ref();
        content.map_or(0, |content| content.heads.longest.bound())
    }

    /// See [`SliceHeader::layer`].
    pub(crate) fn layer(&self) -> u8 {
        self.header().map_or(0, |header| header.layer)
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Up to `len` of its bytes from `at` on, as in the file; empty at the end.
    ///
    /// # Errors
    /// The disk cannot read them.
    pub(crate) fn read(&self, at: u64, len: usize) -> Result<Vec<u8>, Damage> {
        let left = self.len().saturating_sub(at);
        let len = usize::try_from(left).map_or(len, |left| len.min(left));
        read_file(&*self.segment.reader, self.at.saturating_add(at), len)
    }

    /// Hints that all of it will be read soon.
    pub(crate) fn will_need(&self) {
        self.segment.reader.will_need(self.at, self.len());
    }

    /// The digest at its end.
    ///
    /// # Errors
    /// The disk cannot read it.
    pub(crate) fn digest(&self) -> Result<[u8; SLICE_DIGEST_LEN], Damage> {
        let at = self.len().saturating_sub(SLICE_DIGEST_LEN as u64);
        let digest = self.read(at, SLICE_DIGEST_LEN)?;
        digest.try_into().map_err(|_| "a slice is cut off")
    }

    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn view(&self) -> Result<SliceView<'_>, Damage> {
        let content = self.content.as_ref().map_err(|broken| broken.what)?;
        let header = &content.header;
        let parts = self.segment.index.get(content.place, header);
        let index_len = header.index_len() as u64;
        let rest = Rest::File {
            file: &*self.segment.reader,
            at: self.at + index_len,
            len: header.len() - index_len,
        };
        Ok(SliceView::new(header, content.heads, parts, rest))
    }

    /// Passes the records of a slice with a damaged index to `take`, in slot order.
    ///
    /// # Errors
    /// Some records are missing; discard those passed so far.
    pub(crate) fn salvage(&self, take: impl FnMut(PackedRef<'_>)) -> Result<(), Damage> {
        let all = Rest::File {
            file: &*self.segment.reader,
            at: self.at,
            len: self.len(),
        };
        let header = salvage(all, take)?;
        if header.partition == self.partition() && header.len() == self.len() {
            Ok(())
        } else {
            Err("not the slice in the table")
        }
    }

    pub(crate) fn find(&self, position: &Locator<&[u8]>, how: Reading) -> Found {
        match self.view() {
            Ok(view) => view.find(position, how),
            Err(damage) => Found::Damaged(damage),
        }
    }

    /// The record of a slot, if its keys are numbered and it has the slot.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn numbered(&self, slot: u32) -> Result<Option<Record>, StoreError> {
        let view = self.view().map_err(|what| self.note_damage(what))?;
        let header = self.header().filter(|it| it.kind() == Kind::Numbered);
        if header.is_none_or(|header| slot as usize >= header.keys()) {
            return Ok(None);
        }
        let found = view.record(slot as usize, Reading::Wait);
        let found = found.map_err(|unread| self.note_damage(unread.damage()))?;
        Ok(Some(found.unpack()))
    }

    /// Length of the record that a lookup of this digest would read; zero if it reads none.
    pub(crate) fn len_hint(&self, digest: &Digest) -> usize {
        self.view().map_or(0, |view| view.len_hint(digest))
    }

    /// The highest ballot of its records.
    pub(crate) fn highest(&self) -> Ballot {
        match &self.content {
            Ok(content) => content.header.highest(),
            Err(broken) => broken.highest,
        }
    }

    /// Whether it may hold a digest; `false` is certain.
    pub(crate) fn may_hold(&self, digest: &Digest) -> bool {
        self.view().map_or(true, |view| view.may_hold(digest))
    }

    /// Whether it may hold anything that a collection can drop.
    pub(crate) fn may_be_collected(&self) -> bool {
        self.header().is_none_or(|header| header.collectable() > 0)
    }

    /// Vouches for a slot, or for a whole unreadable slice.
    pub(crate) fn vouch(&self, slot: Option<u32>) {
        self.note(|notes| {
            match slot {
                Some(slot) => drop(notes.slots.insert(slot)),
                None => notes.whole = true,
            }
            notes.is_waiting = false;
        });
    }

    fn note(&self, change: impl FnOnce(&mut Notes)) {
        change(self.segment.notes.write().entry(self.row).or_default());
    }

    fn noted<T: Default>(&self, question: impl FnOnce(&Notes) -> T) -> T {
        let notes = self.segment.notes.read();
        notes.get(&self.row).map(question).unwrap_or_default()
    }

    pub(crate) fn is_vouched_slot(&self, slot: Option<u32>) -> bool {
        self.noted(|notes| slot.map_or(notes.whole, |slot| notes.slots.contains(&slot)))
    }

    /// Whether the place of a digest was vouched for.
    pub(crate) fn is_vouched(&self, digest: &Digest) -> bool {
        let slot = match self.view() {
            Ok(view) => view.mphf().map(|mphf| mphf.slot(digest) as u32),
            Err(_) => None,
        };
        self.is_vouched_slot(slot)
    }

    /// The watermark up to which it was swept.
    pub(crate) fn swept(&self) -> Ballot {
        self.noted(|notes| notes.swept)
    }

    pub(crate) fn note_swept(&self, watermark: Ballot) {
        self.note(|notes| notes.swept = watermark);
    }

    /// Whether a compaction was found to need its damaged records, and nothing was vouched for
    /// since.
    pub(crate) fn is_waiting(&self) -> bool {
        self.noted(|notes| notes.is_waiting)
    }

    pub(crate) fn note_waiting(&self, is_waiting: bool) {
        self.note(|notes| notes.is_waiting = is_waiting);
    }

    /// Records that it is damaged, and logs that once.
    pub(crate) fn note_damage(&self, what: Damage) -> StoreError {
        if !self.is_damaged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                file = %self.segment.path.display(),
                offset = self.at,
                partition = self.partition().0,
                what,
                "a slice is damaged: this node refuses its keys until other replicas have supplied them, \
                     or they are written again"
            );
        }
        StoreError::Damaged {
            partition: self.partition(),
            file: self.segment.path.clone(),
            offset: self.at,
            what,
        }
    }
}

/// Two reference counts precede shared data.
const COUNTS: usize = 2 * size_of::<usize>();

/// Bytes that mimalloc allocates for a size: multiples of 16 up to 128; above that, multiples of an
/// eighth of the next power of two.
const fn allocated(bytes: usize) -> usize {
    let step = bytes.next_power_of_two() / 8;
    bytes.next_multiple_of(if step < 16 { 16 } else { step })
}

/// With 244 keys per slice, as for a million keys, at most 0.79 bytes per key.
const _: () = assert!(Slice::OVERHEAD_BYTES <= 192);
