//! Single reads and batches of them.
//!
//! A get checks the memtable first. Then, slice by slice, it checks the gate, the MPHF and the
//! offset, and reads the record at that place, which may belong to another key. The highest ballot
//! wins.
//!
//! Callers that must not wait for the disk use the cached variants: they answer if all needed
//! records are in the page cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use torc_index::prefetch_value;
use torc_record::{Ballot, Locator, NamespaceId};
use torc_ring::Partition;

use super::generations::is_for;
use super::{PartitionTable, Place, Slices};
use crate::StoreError;
use crate::packed::Packed;
use crate::segment::Slice;
use crate::slice::{Damage, Found, Reading};

/// Records whose memory is prefetched at a time: it fits the processor's first cache.
pub(crate) const PREFETCHED: usize = 32;

/// Read counters of a partition. Each has its own cache line, so that partitions do not contend.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct ReadCounts {
    gets: AtomicU64,
    memtable_hits: AtomicU64,
    gate_negatives: AtomicU64,
    gate_false_positives: AtomicU64,
    record_reads: AtomicU64,
    cold_reads: AtomicU64,
}

pub(super) const COUNTS: usize = 6;

impl ReadCounts {
    /// Counts a get that the caller will repeat only as one whose record is not in the page cache.
    fn postpone_if(&self, is_waiting: bool) {
        if is_waiting {
            self.gets.fetch_sub(1, Ordering::Relaxed);
            count(&self.cold_reads);
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn total<'a>(counts: impl Iterator<Item = &'a ReadCounts>) -> [u64; COUNTS] {
    counts.fold([0; COUNTS], |mut sum, one| {
        let one = [
            &one.gets,
            &one.memtable_hits,
            &one.gate_negatives,
            &one.gate_false_positives,
            &one.record_reads,
            &one.cold_reads,
        ];
        for (sum, more) in sum.iter_mut().zip(one) {
            *sum += more.load(Ordering::Relaxed);
        }
        sum
    })
}

/// The state of a get.
#[derive(Debug, Default)]
pub(super) struct Answer {
    newest: Option<Packed>,
    /// The damaged place that may have held the highest ballot, with that ballot.
    damage: Option<(Ballot, StoreError)>,
    watermark: Ballot,
    /// Set for a key of a generation, until a slice of the generation was read.
    missing: Option<(Partition, NamespaceId)>,
    /// Whether a needed record is not in the page cache.
    is_waiting: bool,
}

impl Answer {
    /// Starts with the memtable's version.
    fn above(newest: Option<Packed>, watermark: Ballot) -> Self {
        Self {
            newest,
            watermark,
            ..Self::default()
        }
    }

    /// Notes that the key is of a generation, and no slice of it has been read.
    fn of_generation(&mut self, partition: impl Fn() -> Partition, position: &Locator<&[u8]>) {
        let namespace = position.namespace;
        self.missing = namespace.is_generation().then(|| (partition(), namespace));
    }

    pub(super) fn ask_all(
        &mut self,
        slices: &[Arc<Slice>],
        position: &Locator<&[u8]>,
        how: Reading,
        counts: Option<&ReadCounts>,
    ) {
        for slice in slices {
            if !is_for(slice, position.namespace) {
                continue;
            }
            self.judge(slice, slice.find(position, how), position, counts);
            if self.is_waiting {
                return;
            }
        }
    }

    /// The newest version, even if it was collected.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: a damaged place may have held a newer one.
    pub(super) fn newest(self) -> Result<Option<Packed>, StoreError> {
        if let Some((partition, generation)) = self.missing {
            return Err(StoreError::NotHeld {
                partition,
                generation,
            });
        }
        match (self.damage, self.newest) {
            (Some((highest, error)), newest)
                if newest.as_ref().is_none_or(|one| one.ballot() < highest) =>
            {
                Err(error)
            }
            (_, newest) => Ok(newest),
        }
    }

    /// The newest version unless it was collected.
    fn visible(self) -> Result<Option<Packed>, StoreError> {
        let watermark = self.watermark;
        let newest = self.newest()?;
        Ok(newest.filter(|one| !one.is_collected(watermark)))
    }

    /// As `visible`; `None` if a needed record is not in the page cache.
    fn cached(self) -> Option<Result<Option<Packed>, StoreError>> {
        (!self.is_waiting).then(|| self.visible())
    }

    /// Takes a slice's result into account.
    fn judge(
        &mut self,
        slice: &Slice,
        found: Found,
        position: &Locator<&[u8]>,
        counts: Option<&ReadCounts>,
    ) {
        self.missing = None;
        let is_it = match found {
            Found::GateNegative => {
                if let Some(counts) = counts {
                    count(&counts.gate_negatives);
                }
                return;
            }
            Found::Damaged(what) => return self.note_damage(slice, what, position),
            Found::NotCached => {
                self.is_waiting = true;
                return;
            }
            Found::Record(packed) => {
                let is_it = packed.position() == *position;
                let is_newer = self
                    .newest
                    .as_ref()
                    .is_none_or(|newest| packed.supersedes(newest));
                if is_it && is_newer {
                    self.newest = Some(packed);
                }
                is_it
            }
        };
        if let Some(counts) = counts {
            count(&counts.record_reads);
            if !is_it {
                count(&counts.gate_false_positives);
            }
        }
    }

    fn note_damage(&mut self, slice: &Slice, what: Damage, position: &Locator<&[u8]>) {
        if slice.is_vouched(&position.digest) {
            return;
        }
        // Recorded even if it does not matter for this key.
        let error = slice.note_damage(what);
        let highest = slice.highest();
        if self.damage.as_ref().is_none_or(|(held, _)| *held < highest) {
            self.damage = Some((highest, error));
        }
    }
}

/// The version with the highest ballot among those that can be read.
pub(crate) fn newest_readable(slices: &[Arc<Slice>], position: &Locator<&[u8]>) -> Option<Packed> {
    let mut answer = Answer::default();
    // The damage is recorded, and a get of the key reports it.
    answer.ask_all(slices, position, Reading::Wait, None);
    answer.newest
}

/// Whether a slice is known to be damaged: then the memtable's version need not be the newest.
fn is_damaged(slices: &[Arc<Slice>]) -> bool {
    slices.iter().any(|slice| slice.is_damaged())
}

/// A read of a batch between its stages.
struct Pending<'a> {
    /// Its index in the request.
    index: usize,
    position: Locator<&'a [u8]>,
    slices: Slices,
}

/// One slice that may hold a pending read's key.
struct Candidate {
    pending: usize,
    slice: usize,
    slot: Option<usize>,
}

impl PartitionTable {
    /// The packed record at a position.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn packed(&self, position: &Locator<&[u8]>) -> Result<Option<Packed>, StoreError> {
        self.answer(position, Reading::Wait).visible()
    }

    /// As [`PartitionTable::packed`]; `None` if a needed record is not in the page cache.
    pub(crate) fn packed_cached(
        &self,
        position: &Locator<&[u8]>,
    ) -> Option<Result<Option<Packed>, StoreError>> {
        self.answer(position, Reading::CachedOnly).cached()
    }

    /// The longest record at the place of a key, in its memtable and its slices.
    pub(crate) fn len_hint(&self, position: &Locator<&[u8]>) -> usize {
        let shard = self.place(position).shard.read();
        let upper = shard.memtable.get(position);
        let upper = upper.map_or(0, |slot| slot.packed.payload_len());
        let slices = Arc::clone(shard.slices_for(position.namespace));
        drop(shard);
        let digest = position.digest;
        let sealed = slices.iter().map(|slice| slice.len_hint(&digest));
        sealed.fold(upper, usize::max)
    }

    fn answer(&self, position: &Locator<&[u8]>, how: Reading) -> Answer {
        let Place { shard, counts } = self.place(position);
        count(&counts.gets);
        let shard = shard.read();
        let watermark = shard.facts.watermark;
        let upper = shard.memtable.get(position).map(|slot| slot.packed.clone());
        if upper.is_some() {
            count(&counts.memtable_hits);
            if !is_damaged(&shard.slices) {
                return Answer::above(upper, watermark);
            }
        }
        let slices = Arc::clone(shard.slices_for(position.namespace));
        drop(shard);
        let mut answer = Answer::above(upper, watermark);
        answer.of_generation(|| self.partition(position), position);
        answer.ask_all(&slices, position, how, Some(counts));
        counts.postpone_if(answer.is_waiting);
        answer
    }

    /// Answers many reads in request order, `None` for records that are not in the page cache.
    /// Works partition by partition in stages, and prefetches what the next stage reads, so that
    /// the waits for memory overlap.
    pub(crate) fn packed_batch_cached(
        &self,
        reads: &[Locator<&[u8]>],
    ) -> impl Iterator<Item = Option<Result<Option<Packed>, StoreError>>> + use<> {
        let answers = self.answers(reads);
        answers.into_iter().map(Answer::cached)
    }

    fn answers(&self, reads: &[Locator<&[u8]>]) -> Vec<Answer> {
        let mut answers: Vec<Answer> = reads.iter().map(|_| Answer::default()).collect();
        let pending = self.ask_memtable(reads, &mut answers);
        for candidate in self.ask_gates(&pending, &mut answers) {
            let pending = &pending[candidate.pending];
            let answer = &mut answers[pending.index];
            if answer.is_waiting {
                continue;
            }
            let counts = &self.place(&pending.position).counts;
            let slice = &pending.slices[candidate.slice];
            let found = match (slice.view(), candidate.slot) {
                (Ok(view), Some(slot)) => {
                    view.find_at(slot, &pending.position, Reading::CachedOnly)
                }
                (Ok(_), None) => Found::Damaged("the index of a slice is damaged"),
                (Err(damage), _) => Found::Damaged(damage),
            };
            answer.judge(slice, found, &pending.position, Some(counts));
            counts.postpone_if(answer.is_waiting);
        }
        answers
    }

    /// Answers from the memtable; returns the rest, sorted by partition.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a batch has fewer than 2^32 reads"
    )]
    fn ask_memtable<'a>(
        &self,
        reads: &[Locator<&'a [u8]>],
        answers: &mut [Answer],
    ) -> Vec<Pending<'a>> {
        let mut order: Vec<u32> = (0..reads.len() as u32).collect();
        order.sort_unstable_by_key(|at| reads[*at as usize].digest);
        let mut pending = Vec::with_capacity(reads.len());
        for part in order.chunks(PREFETCHED) {
            let positions: Vec<_> = part.iter().map(|at| reads[*at as usize]).collect();
            self.prefetch_memtable(&positions);
            self.ask_memtable_for(reads, part, answers, &mut pending);
        }
        pending
    }

    /// Prefetches the memtable's records of these keys. Pass at most [`PREFETCHED`].
    pub(crate) fn prefetch<'a>(&self, records: impl Iterator<Item = &'a Packed>) {
        let positions: Vec<_> = records.map(Packed::position).collect();
        self.prefetch_memtable(&positions);
    }

    /// Prefetches what the memtable has at these positions. One alone has nothing to do meanwhile.
    fn prefetch_memtable(&self, positions: &[Locator<&[u8]>]) {
        if positions.len() < 2 {
            return;
        }
        for position in positions {
            prefetch_value(self.place(position));
        }
        for position in positions {
            self.place(position).shard.read().memtable.prefetch_leaves();
        }
        for position in positions {
            let shard = self.place(position).shard.read();
            shard.memtable.prefetch_slot(position);
        }
        for position in positions {
            let shard = self.place(position).shard.read();
            shard.memtable.prefetch_record(position);
        }
    }

    /// As `ask_memtable`, for the reads with these indices.
    fn ask_memtable_for<'a>(
        &self,
        reads: &[Locator<&'a [u8]>],
        indices: &[u32],
        answers: &mut [Answer],
        pending: &mut Vec<Pending<'a>>,
    ) {
        for index in indices {
            let index = *index as usize;
            let position = &reads[index];
            let Place { shard, counts } = self.place(position);
            count(&counts.gets);
            let shard = shard.read();
            let upper = shard.memtable.get(position).map(|slot| slot.packed.clone());
            let is_found = upper.is_some();
            answers[index] = Answer::above(upper, shard.facts.watermark);
            answers[index].of_generation(|| self.partition(position), position);
            if is_found {
                count(&counts.memtable_hits);
                if !is_damaged(&shard.slices) {
                    continue;
                }
            }
            let slices = Arc::clone(shard.slices_for(position.namespace));
            drop(shard);
            for slice in slices.iter() {
                if let Ok(view) = slice.view() {
                    view.prefetch_gate(&position.digest);
                }
            }
            pending.push(Pending {
                index,
                position: *position,
                slices,
            });
        }
    }

    /// Checks the gates, then the MPHFs of the gates' positives, then the offsets.
    fn ask_gates(&self, pending: &[Pending<'_>], answers: &mut [Answer]) -> Vec<Candidate> {
        let mut candidates = Vec::with_capacity(pending.len());
        for (at, one) in pending.iter().enumerate() {
            for (index, slice) in one.slices.iter().enumerate() {
                if !is_for(slice, one.position.namespace) {
                    continue;
                }
                let view = slice.view().ok();
                if view.is_some_and(|view| !view.may_hold(&one.position.digest)) {
                    count(&self.place(&one.position).counts.gate_negatives);
                    answers[one.index].missing = None;
                    continue;
                }
                if let Some(mphf) = view.and_then(|view| view.mphf()) {
                    mphf.prefetch(&one.position.digest);
                }
                candidates.push(Candidate {
                    pending: at,
                    slice: index,
                    slot: None,
                });
            }
        }
        for candidate in &mut candidates {
            let one = &pending[candidate.pending];
            if let Ok(view) = one.slices[candidate.slice].view()
                && let Some(mphf) = view.mphf()
            {
                let slot = mphf.slot(&one.position.digest);
                view.prefetch_offset(slot);
                candidate.slot = Some(slot);
            }
        }
        candidates
    }
}
