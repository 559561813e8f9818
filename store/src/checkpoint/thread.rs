//! The thread that takes checkpoints, on request and when enough log has gathered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::CheckpointWriter;
use crate::commit::{Done, Op, Rotated};
use crate::manifest::{CheckpointFile, Manifest};
use crate::packed::Packed;
use crate::shared::Shared;
use crate::{CheckpointReport, PartitionSummary, StoreError};

/// Who wants a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    state: Mutex<State>,
    changed: Condvar,
    is_stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    is_due: bool,
    waiting: Vec<Done<CheckpointReport>>,
    has_ended: bool,
}

impl Requests {
    /// Enough log has gathered.
    pub(crate) fn want(&self) {
        let mut state = self.state.lock();
        if !state.is_due {
            state.is_due = true;
            self.changed.notify_one();
        }
    }

    /// Asks for a checkpoint that begins from now on.
    pub(crate) fn ask(&self, done: Done<CheckpointReport>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(StoreError::Closed);
        }
        state.waiting.push(done);
        self.changed.notify_one();
        Ok(())
    }

    /// Gives up the checkpoint under way and takes no other.
    pub(crate) fn stop(&self) {
        // The lock orders the flag before the thread's next look at it.
        let _state = self.state.lock();
        self.is_stopping.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Waits until there is something to do; `None` to stop.
    fn next(&self) -> Option<Vec<Done<CheckpointReport>>> {
        let mut state = self.state.lock();
        loop {
            if self.is_stopping() {
                return None;
            }
            let is_due = std::mem::take(&mut state.is_due);
            if is_due || !state.waiting.is_empty() {
                return Some(std::mem::take(&mut state.waiting));
            }
            self.changed.wait(&mut state);
        }
    }

    /// Answers all that wait, once and for all.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        for done in state.waiting.drain(..) {
            // Whoever has gone needs no answer.
            drop(done.send(Err(StoreError::Closed)));
        }
    }
}

/// Takes checkpoints until told to stop.
pub(crate) fn run(shared: &Arc<Shared>) {
    while let Some(waiting) = shared.checkpoints.next() {
        let outcome = take(shared);
        match &outcome {
            Ok(report) => {
                shared.counters.checkpoints.add(1);
                let nanos = (report.seconds * 1e9) as u64;
                shared.counters.checkpoint_nanos.add(nanos);
                tracing::info!(
                    records = report.records,
                    bytes = report.bytes,
                    seconds = report.seconds,
                    "checkpoint published"
                );
            }
            Err(StoreError::Closed) => {}
            Err(error) => {
                shared.counters.checkpoint_failures.add(1);
                shared.health.note(error);
                tracing::warn!(%error, "checkpoint given up; the log keeps everything");
            }
        }
        for done in waiting {
            // Whoever has gone needs no answer.
            drop(done.send(outcome.clone()));
        }
    }
    shared.checkpoints.end();
}

fn take(shared: &Shared) -> Result<CheckpointReport, StoreError> {
    shared.health.check()?;
    let start = Instant::now();
    let border = rotate(shared)?;
    shared.log.lock().checkpointed_before = border.segment;
    let (totals, bytes) = write(shared, border)?;
    publish(shared, border, bytes)?;
    Ok(CheckpointReport {
        records: totals.records,
        tombstones: totals.tombstones,
        bytes,
        through: border.through,
        log_segments_removed: remove_old(shared, border),
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn rotate(shared: &Shared) -> Result<Rotated, StoreError> {
    let (done, rotated) = oneshot::channel();
    shared.queue.push_control(Op::Rotate { done })?;
    rotated.blocking_recv().unwrap_or(Err(StoreError::Closed))
}

/// Writes the file and syncs it, name and all. Leaves none behind when it gives up.
fn write(shared: &Shared, border: Rotated) -> Result<(PartitionSummary, u64), StoreError> {
    let dir = &shared.dir;
    let partitions = shared.options.partitions;
    let written = CheckpointWriter::create(dir, partitions, border.segment, border.through)
        .and_then(|writer| write_records(shared, writer, border));
    match written {
        Ok(written) => {
            dir.sync()?;
            Ok(written)
        }
        Err(error) => {
            discard(shared, border);
            Err(error)
        }
    }
}

fn write_records(
    shared: &Shared,
    mut writer: CheckpointWriter,
    border: Rotated,
) -> Result<(PartitionSummary, u64), StoreError> {
    for partition in shared.options.partitions.iter() {
        let mut last: Option<Packed> = None;
        loop {
            if shared.checkpoints.is_stopping() {
                return Err(StoreError::Closed);
            }
            let after = last.as_ref().map(Packed::position);
            let is_old = |seq| seq <= border.through;
            let stretch = shared
                .overlay
                .stretch(partition, after.as_ref(), is_old, |_| false);
            for (seq, packed) in &stretch.records {
                writer.push(*seq, packed)?;
            }
            last = stretch.last;
            if last.is_none() {
                break;
            }
        }
    }
    writer.finish()
}

fn publish(shared: &Shared, border: Rotated, len: u64) -> Result<(), StoreError> {
    let mut current = shared.manifest.lock();
    let next = Manifest {
        generation: current.generation + 1,
        through: border.through,
        first_log: border.segment,
        highest_time: shared.highest_time(),
        checkpoint: Some(CheckpointFile {
            number: border.segment,
            len,
        }),
    };
    match next.publish(&shared.dir, shared.options.partitions) {
        Ok(()) => {}
        // It may be the manifest now: its files must stay.
        Err(error @ StoreError::Failed { .. }) => return Err(error),
        Err(error) => {
            discard(shared, border);
            return Err(error);
        }
    }
    let replaced = std::mem::replace(&mut *current, next);
    drop(current);
    shared.counters.checkpoint_bytes.set(len);
    if let Some(old) = replaced.checkpoint {
        remove(shared, &shared.dir.checkpoint_path(old.number));
    }
    Ok(())
}

/// Removes the segments before the border; says how many.
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
        remove(shared, &shared.dir.log_path(segment.number));
    }
    old.len() as u64
}

fn discard(shared: &Shared, border: Rotated) {
    remove(shared, &shared.dir.checkpoint_path(border.segment));
}

/// A file that stays is no harm: the next opening removes what the manifest does not name.
fn remove(shared: &Shared, path: &std::path::Path) {
    if let Err(error) = shared.dir.remove(path) {
        tracing::warn!(%error, "an old file stays until the next start");
    }
}
