//! The thread that flushes: on request, when the log is long enough, and when records have
//! waited long enough.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "nanoseconds for a counter; `as` saturates"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use torc_record::Digest;
use torc_ring::Partition;

use super::{account, delta_of};
use crate::commit::{Op, Rotated};
use crate::format::draw_salt;
use crate::packed::Packed;
use crate::partition_table::Slices;
use crate::publish::Change;
use crate::requests::Wake;
use crate::segment::{RateLimit, SegmentWriter, Slice};
use crate::shared::Shared;
use crate::slice::{GateRates, Kind, SliceInput};
use crate::{FlushReport, PartitionSummary, Seq, StoreError};

/// Interval at which the thread checks the age of records.
const LOOK: Duration = Duration::from_secs(1);
/// False positive rate of the gates of fresh slices. These slices are small, so a low rate is
/// cheap; a partition has several of them, and their rates add up.
pub(crate) const FRESH_GATE_RATE: f64 = 0.0002;

/// Flushes until told to stop.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut last = Instant::now();
    loop {
        let waiting = match shared.flushes.next(LOOK) {
            Wake::Stop => break,
            Wake::Asked(waiting) => waiting,
            Wake::Idle => {
                let is_old = last.elapsed() >= shared.options.flush_after;
                let least = shared.options.flush_least_bytes;
                if !is_old || shared.table.memtable_bytes() < least {
                    continue;
                }
                Vec::new()
            }
        };
        last = Instant::now();
        let outcome = take(shared);
        shared.flushes.finish();
        note(shared, &outcome);
        for done in waiting {
            // Fails if the caller is gone and needs no answer.
            drop(done.send(outcome.clone()));
        }
        if outcome.is_ok() {
            shared.release_memory();
            shared.request_flush_if_due();
        }
    }
    shared.flushes.end();
}

fn note(shared: &Shared, outcome: &Result<FlushReport, StoreError>) {
    match outcome {
        Ok(report) => {
            shared.counters.flushes.add(1);
            shared.counters.flushed_records.add(report.records);
            let nanos = (report.seconds * 1e9) as u64;
            shared.counters.flush_nanos.add(nanos);
            shared.compactions.want();
            tracing::info!(
                records = report.records,
                slices = report.slices,
                bytes = report.bytes,
                seconds = report.seconds,
                "flushed the memtable"
            );
        }
        Err(StoreError::Closed) => {}
        Err(error) => {
            shared.counters.flush_failures.add(1);
            shared.health.note(error);
            tracing::warn!(%error, "a flush failed; the log keeps all records");
        }
    }
}

/// The flushed part of a partition's memtable.
struct Flushed {
    partition: Partition,
    /// Number of slices made of it, one per layer.
    slices: usize,
    delta: PartitionSummary,
    beneath: Slices,
    skipped: Skipped,
}

/// Collected records that no slice has.
#[derive(Default)]
struct Skipped {
    seqs: BTreeSet<Seq>,
    digests: Vec<Digest>,
}

fn take(shared: &Shared) -> Result<FlushReport, StoreError> {
    shared.health.check()?;
    let start = Instant::now();
    let border = rotate(shared)?;
    shared.log.lock().flushed_before = border.segment;
    let number = shared.next_segment();
    loop {
        let written = write(shared, number, border.through).inspect_err(|_| {
            shared.remove_file(&shared.dir.segment_path(number));
        })?;
        let records = held(&written.slices);
        let published = publish(shared, &written, border).inspect_err(|error| {
            // After this failure the new manifest may be in place, so its files must stay.
            if !matches!(error, StoreError::Failed { .. }) {
                shared.remove_file(&shared.dir.segment_path(number));
            }
        })?;
        if !published {
            continue;
        }
        return Ok(FlushReport {
            records: records.records,
            tombstones: records.tombstones,
            slices: written.slices.len() as u64,
            bytes: written.bytes,
            through: border.through,
            log_segments_removed: remove_old(shared, border),
            seconds: start.elapsed().as_secs_f64(),
        });
    }
}

fn held(slices: &[Arc<Slice>]) -> PartitionSummary {
    let mut sum = PartitionSummary::default();
    for header in slices.iter().filter_map(|slice| slice.header()) {
        sum.merge(&header.held());
    }
    sum
}

fn rotate(shared: &Shared) -> Result<Rotated, StoreError> {
    let (done, rotated) = oneshot::channel();
    let pushed = shared.queue.push(Op::Rotate { done });
    pushed.map_err(|refusal| refusal.1)?;
    rotated.blocking_recv().unwrap_or(Err(StoreError::Closed))
}

/// A segment that is durable except for its name, and the memtables written to it.
struct Files {
    slices: Vec<Arc<Slice>>,
    flushed: Vec<Flushed>,
    bytes: u64,
}

/// Writes the segment. Writes none if there are no records to flush.
fn write(shared: &Shared, number: u64, through: Seq) -> Result<Files, StoreError> {
    let partitions = shared.options.partitions;
    let rate_limit = RateLimit {
        bytes_per_s: shared.options.flush_bytes_per_s,
    };
    let mut writer: Option<SegmentWriter> = None;
    let mut gates = GateRates::default();
    let mut flushed = Vec::new();
    for partition in shared.table.partitions() {
        if shared.flushes.is_stopping() {
            return Err(StoreError::Closed);
        }
        let beneath = shared.table.slices(partition);
        let (records, skipped) = records(shared, partition, through, &beneath);
        if records.is_empty() && skipped.seqs.is_empty() {
            continue;
        }
        let mut delta = PartitionSummary::default();
        for packed in &records {
            account(&mut delta, &beneath, packed);
        }
        let layers = layers(shared, partition, &records);
        let slices = layers.len();
        for input in layers {
            let built = input.build(&mut gates)?;
            let mut open = match writer.take() {
                Some(open) => open,
                None => SegmentWriter::create(&shared.dir, partitions, number, rate_limit)?,
            };
            open.push(built)?;
            writer = Some(open);
        }
        flushed.push(Flushed {
            partition,
            slices,
            delta,
            beneath,
            skipped,
        });
    }
    let Some(writer) = writer else {
        return Ok(Files {
            slices: Vec::new(),
            flushed,
            bytes: 0,
        });
    };
    let written = writer.finish(through)?;
    Ok(Files {
        slices: written.slices,
        flushed,
        bytes: written.file.len,
    })
}

/// The records of a partition's memtable up to an entry, in ring order, and the records left out.
fn records(
    shared: &Shared,
    partition: Partition,
    through: Seq,
    beneath: &Slices,
) -> (Vec<Packed>, Skipped) {
    let watermark = shared.table.droppable(partition, through);
    let mut records = Vec::new();
    let mut skipped = Skipped::default();
    let mut last: Option<Packed> = None;
    loop {
        let after = last.as_ref().map(Packed::position);
        let is_old = |seq| seq <= through;
        let table = &shared.table;
        let stretch = table.stretch(partition, after.as_ref(), is_old, |_| false);
        for (seq, packed) in stretch.records {
            let digest = packed.digest();
            if packed.is_collected(watermark) && !may_hold(beneath, &digest) {
                skipped.seqs.insert(seq);
                skipped.digests.push(digest);
            } else {
                records.push(packed);
            }
        }
        last = stretch.last;
        if last.is_none() {
            return (records, skipped);
        }
    }
}

fn may_hold(slices: &Slices, digest: &Digest) -> bool {
    slices.iter().any(|slice| slice.may_hold(digest))
}

/// The inputs of new slices; none if there are no records.
fn layers<'a>(shared: &Shared, partition: Partition, records: &'a [Packed]) -> Vec<SliceInput<'a>> {
    if records.is_empty() {
        return Vec::new();
    }
    let packed = records.iter();
    let input = SliceInput {
        kind: Kind::Records,
        partition,
        partitions: shared.options.partitions,
        digests: packed.clone().map(Packed::digest).collect(),
        layer: 0,
        salt: Some(draw_salt()),
        gate_rate: shared.options.gate_rate.min(FRESH_GATE_RATE),
        records: packed.map(Packed::bytes).collect(),
    };
    let layers = input.layers();
    let further = layers.iter().skip(1).map(|one| one.records.len());
    shared.note_shared_digests(partition, further.sum());
    layers
}

/// Puts the slices in force. Returns false if that would bring back records that a collection
/// dropped: the caller must then flush again.
fn publish(shared: &Shared, files: &Files, border: Rotated) -> Result<bool, StoreError> {
    let table = &shared.table;
    let mut is_outdated = false;
    let decide = || {
        let mut change = Change {
            covered: Some((border.through, border.segment)),
            ..Change::default()
        };
        for (made, slices) in paired(files) {
            if table.was_dropped_after(made.partition, border.through) {
                continue;
            }
            let (now, mut sum) = table.sealed(made.partition);
            let is_same = Arc::ptr_eq(&now, &made.beneath);
            if !is_same && made.skipped.digests.iter().any(|one| may_hold(&now, one)) {
                is_outdated = true;
                return Err(StoreError::Closed);
            }
            if is_same {
                sum.merge(&made.delta);
            } else {
                for slice in slices {
                    sum.merge(&delta_of(slice, &now)?);
                }
            }
            change.sealed.insert(made.partition, sum);
            change.added.extend_from_slice(slices);
        }
        Ok(change)
    };
    let published = shared.publish(decide, |change| {
        for (made, slices) in paired(files) {
            if let Some(sum) = change.sealed.get(&made.partition) {
                let (partition, skipped) = (made.partition, &made.skipped.seqs);
                table.install_flushed(partition, slices, *sum, border.through, skipped);
            }
        }
        !change.added.is_empty()
    });
    if is_outdated {
        return Ok(false);
    }
    if let (false, Some(slice)) = (published?, files.slices.first()) {
        shared.remove_file(&slice.segment.path);
    }
    Ok(true)
}

/// The flushed memtables, each with its slices.
fn paired(files: &Files) -> impl Iterator<Item = (&Flushed, &[Arc<Slice>])> {
    let mut rest = &files.slices[..];
    files.flushed.iter().map(move |made| {
        let (slices, others) = rest.split_at(made.slices);
        rest = others;
        (made, slices)
    })
}

/// Removes the log segments before the border; returns their number.
fn remove_old(shared: &Shared, border: Rotated) -> u64 {
    let mut log = shared.log.lock();
    let (old, needed) = log
        .completed
        .iter()
        .partition(|segment| segment.number < border.segment);
    log.completed = needed;
    drop(log);
    let old: Vec<_> = old;
    for segment in &old {
        shared.remove_file(&shared.dir.log_path(segment.number));
    }
    old.len() as u64
}
