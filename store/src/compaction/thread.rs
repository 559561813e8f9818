//! The thread that compacts, after flushes and ingests, and when the node is idle.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "nanoseconds for a counter; `as` saturates"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::choose::Urgency;
use super::job::{Job, Kind};
use super::merge::{Merged, may_hold};
use crate::flush::FRESH_GATE_RATE;
use crate::packed::Packed;
use crate::partition_table::{Compacted, Slices};
use crate::publish::Change;
use crate::requests::Wake;
use crate::segment::{RateLimit, SegmentWriter, Slice};
use crate::shared::Shared;
use crate::slice::{GateRates, SliceView};
use crate::{CompactionReport, PartitionSummary, Seq, StoreError};

const LOOK: Duration = Duration::from_secs(1);
/// A segment is emptied if less than 1/n of it is live.
const LEAST_LIVE_SHARE: u64 = 2;

/// Compacts until told to stop.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut quiet = Quiet::new(shared);
    loop {
        let (urgency, waiting) = match shared.compactions.next(LOOK) {
            Wake::Stop => break,
            Wake::Asked(waiting) if waiting.is_empty() && !shared.options.auto_compact => continue,
            Wake::Idle if !shared.options.auto_compact => continue,
            Wake::Asked(waiting) if waiting.is_empty() => (Urgency::Busy, waiting),
            Wake::Asked(waiting) => (Urgency::Whole, waiting),
            Wake::Idle if quiet.has_begun(shared) => (Urgency::Idle, Vec::new()),
            Wake::Idle => continue,
        };
        let mut has_skipped = false;
        let outcome = shared
            .sweep()
            .and_then(|()| compact_all(shared, urgency, &mut has_skipped))
            .inspect_err(|error| note(shared, error));
        if urgency == Urgency::Idle {
            let may_succeed_later = outcome.as_ref().is_err_and(StoreError::is_retryable);
            quiet.end(!has_skipped && !may_succeed_later);
        }
        for done in waiting {
            // Fails if the caller is gone and needs no answer.
            drop(done.send(outcome.clone()));
        }
        (shared.options.release_memory)();
    }
    shared.compactions.end();
}

fn note(shared: &Shared, error: &StoreError) {
    if !matches!(error, StoreError::Closed) {
        shared.counters.compaction_failures.add(1);
        shared.health.note(error);
        tracing::warn!(%error, "a compaction failed; the slices are unchanged");
    }
}

/// Detects that writes have stopped.
struct Quiet {
    batches: u64,
    since: Instant,
    is_settled: bool,
}

impl Quiet {
    fn new(shared: &Shared) -> Self {
        Self {
            batches: shared.counters.batches.get(),
            since: Instant::now(),
            is_settled: false,
        }
    }

    /// Whether writes have stopped and the slices are not compacted yet.
    fn has_begun(&mut self, shared: &Shared) -> bool {
        let batches = shared.counters.batches.get();
        if batches != self.batches {
            *self = Self::new(shared);
        }
        let is_quiet = self.since.elapsed() >= shared.options.compact_when_idle;
        is_quiet && !self.is_settled
    }

    /// Ends a round. If slices are left to compact, the next round begins after as long a pause.
    fn end(&mut self, is_settled: bool) {
        self.is_settled = is_settled;
        self.since = Instant::now();
    }
}

/// Compacts job by job until nothing is left to compact, except in held partitions.
fn compact_all(
    shared: &Shared,
    urgency: Urgency,
    has_skipped: &mut bool,
) -> Result<CompactionReport, StoreError> {
    let start = Instant::now();
    let mut report = CompactionReport::default();
    while !shared.compactions.is_stopping() {
        shared.health.check()?;
        let jobs = jobs(shared, urgency, has_skipped);
        if jobs.is_empty() {
            break;
        }
        let number = shared.next_segment();
        let compacted = compact(shared, number, &jobs, urgency);
        if !matches!(compacted, Ok(_) | Err(StoreError::Failed { .. })) {
            shared.remove_file(&shared.dir.segment_path(number));
        }
        // A round that compacted nothing has found damage, and later rounds skip those slices.
        let compacted = compacted?;
        report.slices_read += compacted.slices_read;
        report.slices_swept += compacted.slices_swept;
        report.slices_written += compacted.slices_written;
        report.records += compacted.records;
        report.bytes += compacted.bytes;
    }
    report.seconds = start.elapsed().as_secs_f64();
    if report.slices_read > 0 {
        let counters = &shared.counters;
        counters.compactions.add(1);
        counters.compacted_records.add(report.records);
        counters.compaction_nanos.add((report.seconds * 1e9) as u64);
        tracing::info!(
            slices_read = report.slices_read,
            slices_written = report.slices_written,
            records = report.records,
            bytes = report.bytes,
            seconds = report.seconds,
            "compacted"
        );
    }
    if shared.compactions.is_stopping() {
        return Err(StoreError::Closed);
    }
    Ok(report)
}

/// The next jobs: partitions in ring order, up to the length of a segment.
fn jobs(shared: &Shared, urgency: Urgency, has_skipped: &mut bool) -> Vec<Job> {
    let live = shared.table.live();
    let sparse = sparse_segments(&live);
    let mut jobs = Vec::new();
    let mut bytes = 0;
    for (partition, slices, _) in live {
        if shared.is_held(partition) {
            *has_skipped = true;
            continue;
        }
        let Some(job) = Job::of(shared, partition, &slices, urgency, &sparse) else {
            continue;
        };
        bytes += job.inputs.iter().map(|slice| slice.len()).sum::<u64>();
        jobs.push(job);
        if bytes >= shared.options.compact_job_bytes {
            break;
        }
    }
    jobs
}

/// Segments with few live slices.
fn sparse_segments(live: &[(torc_ring::Partition, Slices, crate::PartitionSummary)]) -> Vec<u64> {
    let mut sizes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for slice in live.iter().flat_map(|(_, slices, _)| slices.iter()) {
        let file = &slice.segment.file;
        sizes.entry(file.number).or_insert((0, file.len)).0 += slice.len();
    }
    let sparse = sizes
        .into_iter()
        .filter(|(_, (live, len))| live.saturating_mul(LEAST_LIVE_SHARE) < *len);
    sparse.map(|(number, _)| number).collect()
}

/// A job that was carried out.
struct Done<'a> {
    job: &'a Job,
    /// Number of slices written for it, one per layer.
    outputs: usize,
    /// Collected records that are in no slice any more.
    dropped: Vec<Packed>,
    /// The sum of what was written.
    held: PartitionSummary,
}

/// Writes one segment and puts it in force.
fn compact(
    shared: &Shared,
    number: u64,
    jobs: &[Job],
    urgency: Urgency,
) -> Result<CompactionReport, StoreError> {
    let partitions = shared.options.partitions;
    let rate_limit = RateLimit {
        bytes_per_s: match urgency {
            Urgency::Whole => u64::MAX,
            Urgency::Busy | Urgency::Idle => shared.options.compact_bytes_per_s,
        },
    };
    let mut writer: Option<SegmentWriter> = None;
    let mut gates = GateRates::default();
    let mut done: Vec<Done<'_>> = Vec::new();
    let mut report = CompactionReport::default();
    for job in jobs {
        if shared.compactions.is_stopping() {
            return Err(StoreError::Closed);
        }
        let mut open = match writer.take() {
            Some(open) => open,
            None => SegmentWriter::create(&shared.dir, partitions, number, rate_limit)?,
        };
        let written = write(shared, &mut open, job, &mut gates);
        writer = Some(open);
        match written {
            Ok(Some(one)) => {
                report.records += one.held.records;
                done.push(one);
            }
            // Nothing to drop was found in the slice; that is remembered.
            Ok(None) => report.slices_swept += 1,
            // The damage is remembered, and later rounds skip the slice.
            Err(StoreError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let inputs = done.iter().flat_map(|done| &done.job.inputs);
    let after = inputs.clone().map(|slice| slice.segment.file.after).max();
    report.slices_read = inputs.count() as u64;
    let writer = writer.filter(|_| done.iter().any(|done| done.outputs > 0));
    let outputs = if let Some(writer) = writer {
        let written = writer.finish(after.unwrap_or(Seq(0)))?;
        report.bytes = written.file.len;
        written.slices
    } else {
        shared.remove_file(&shared.dir.segment_path(number));
        Vec::new()
    };
    if !done.is_empty() {
        report.slices_written = publish(shared, &done, &outputs)?;
    }
    Ok(report)
}

/// Returns `None` if there is nothing to do.
fn write<'a>(
    shared: &Shared,
    writer: &mut SegmentWriter,
    job: &'a Job,
    gates: &mut GateRates,
) -> Result<Option<Done<'a>>, StoreError> {
    if let (Kind::Copy, [one]) = (job.kind, &job.inputs[..]) {
        return Ok(Some(Done {
            job,
            outputs: 1,
            dropped: Vec::new(),
            held: copy(writer, one)?,
        }));
    }
    let merged = Merged::of(&job.inputs, &job.others, job.watermark)?;
    let dropped_nothing = merged.dropped.is_empty();
    if let ([one], Kind::Merge, true) = (&job.inputs[..], job.kind, dropped_nothing) {
        one.note_swept(job.watermark);
        return Ok(None);
    }
    let rate = shared.options.gate_rate;
    let rate = if job.is_most {
        rate
    } else {
        rate.min(FRESH_GATE_RATE)
    };
    let partitions = shared.options.partitions;
    let layers = merged.layers(job.partition, partitions, job.layer, rate);
    let further = layers.iter().skip(1).map(|one| one.records.len());
    shared.note_shared_digests(job.partition, further.sum());
    let outputs = layers.len();
    let mut held = PartitionSummary::default();
    for input in layers {
        let built = input.build(gates)?;
        held.merge(&built.header.held());
        writer.push(built)?;
    }
    Ok(Some(Done {
        job,
        outputs,
        held,
        dropped: merged.dropped,
    }))
}

/// Copies a slice unchanged after checking it; returns the sum of its records.
fn copy(writer: &mut SegmentWriter, slice: &Arc<Slice>) -> Result<PartitionSummary, StoreError> {
    let Some(header) = slice.header() else {
        return Err(slice.note_damage("its index is damaged"));
    };
    slice.will_need();
    let bytes = slice.read(0, usize::MAX).and_then(|bytes| {
        SliceView::of(header, &bytes)?;
        SliceView::digest_fits(&bytes)?;
        Ok(bytes)
    });
    let bytes = bytes.map_err(|what| slice.note_damage(what))?;
    writer.push_bytes(*header, &bytes)?;
    Ok(header.held())
}

/// The sum of a partition's slices after a job; `None` if the job must not take effect.
fn sealed_after(shared: &Shared, done: &Done<'_>) -> Option<PartitionSummary> {
    let job = done.job;
    let (now, mut sealed) = shared.table.sealed(job.partition);
    let is_input = |slice: &&Arc<Slice>| job.inputs.iter().any(|input| Arc::ptr_eq(input, slice));
    let others: Vec<_> = now.iter().filter(|one| !is_input(one)).cloned().collect();
    if others.len() + job.inputs.len() != now.len() {
        return None;
    }
    if job.kind == Kind::Repair {
        return others.is_empty().then_some(done.held);
    }
    for packed in &done.dropped {
        // A slice added meanwhile may have an older version of the key.
        if may_hold(&others, &packed.digest()) {
            return None;
        }
        sealed.remove(packed);
    }
    Some(sealed)
}

/// Replaces the inputs of jobs by their outputs; returns the number of slices put in force.
fn publish(shared: &Shared, done: &[Done<'_>], outputs: &[Arc<Slice>]) -> Result<u64, StoreError> {
    let paired = || {
        let mut rest = outputs;
        done.iter().map(move |done| {
            let (outputs, others) = rest.split_at(done.outputs);
            rest = others;
            (done, outputs)
        })
    };
    let decide = || {
        let mut change = Change::default();
        for (done, outputs) in paired() {
            if let Some(sealed) = sealed_after(shared, done) {
                change.sealed.insert(done.job.partition, sealed);
                change.added.extend_from_slice(outputs);
                change.removed.extend(done.job.inputs.iter().cloned());
            }
        }
        Ok(change)
    };
    let (is_named, installed) = shared.publish(decide, |change| {
        let mut installed = 0;
        for (done, outputs) in paired() {
            let job = done.job;
            let Some(sealed) = change.sealed.get(&job.partition) else {
                continue;
            };
            let swept = match (job.kind, &job.inputs[..]) {
                (Kind::Copy, [one]) => one.swept(),
                _ => job.watermark,
            };
            for output in outputs {
                output.note_swept(swept);
            }
            let is_installed = shared.table.install_compacted(&Compacted {
                partition: job.partition,
                inputs: &job.inputs,
                outputs,
                dropped: &done.dropped,
                sealed: *sealed,
                is_repair: job.kind == Kind::Repair,
            });
            installed += if is_installed {
                outputs.len() as u64
            } else {
                0
            };
        }
        (!change.added.is_empty(), installed)
    })?;
    // Keeps a file that the manifest names, even if a drop has emptied its slices meanwhile.
    if let (false, Some(output)) = (is_named, outputs.first()) {
        shared.remove_file(&output.segment.path);
    }
    Ok(installed)
}
