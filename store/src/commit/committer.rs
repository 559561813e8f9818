//! The thread that writes the log and applies it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use torc_ring::Partition;

use super::gather::Gather;
use super::queue::Taken;
use super::{Callback, Changes, Op, Rotated};
use crate::format::{Entry, FRAME_LEN, FrameBuilder};
use crate::log::LogWriter;
use crate::packed::Packed;
use crate::partition_table::PREFETCHED;
use crate::shared::Shared;
use crate::{LogSync, Seq, StoreError};

/// Interval at which a store that is out of space checks for space without a write that requires
/// it.
const SPACE_PROBE: Duration = Duration::from_secs(1);

/// Owns the end of the log.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    log: LogWriter,
    frame: FrameBuilder,
    gather: Gather,
    /// Length of the longest frame that did not fit on the disk.
    wanted_len: usize,
    /// Partitions with a failed change: later changes of them are refused.
    broken: BTreeSet<Partition>,
}

/// An acknowledgement to send once the whole batch is applied.
enum Ack {
    Apply(Changes),
    Ceiling(Callback),
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>, log: LogWriter) -> Self {
        Self {
            shared,
            log,
            frame: FrameBuilder::default(),
            gather: Gather::default(),
            wanted_len: FRAME_LEN,
            broken: BTreeSet::new(),
        }
    }

    /// Commits until the queue is closed or the disk fails.
    pub(crate) fn run(mut self) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let ended = loop {
            let is_out = shared.health.is_out_of_space();
            let timeout = is_out.then_some(SPACE_PROBE);
            match shared.queue.take(timeout, &mut self.gather) {
                Taken::Ops(ops) => self.handle(ops),
                Taken::Idle => self.probe_space(),
                Taken::Closed => break self.log.finish(),
            }
            if let Err(stopped) = shared.health.check() {
                break Err(stopped);
            }
        };
        if let Err(error) = &ended {
            shared.health.note(error);
        }
        let why = ended.as_ref().err().cloned().unwrap_or(StoreError::Closed);
        shared.refuse_all(&why);
        ended
    }

    fn handle(&mut self, mut ops: Vec<Op>) {
        if let Some(Op::Rotate { .. }) = ops.first() {
            if let Some(Op::Rotate { done }) = ops.pop() {
                self.rotate(done);
            }
            return;
        }
        self.prepare(&mut ops);
        if ops.is_empty() {
            return;
        }
        match self.make_durable(&ops) {
            Ok((first_seq, sync)) => self.apply(first_seq, ops, sync),
            Err(error) => self.refuse(ops, &error),
        }
        self.shared.request_flush_if_due();
    }

    /// Removes operations that do not go to the log, and refuses changes that follow a failed one.
    fn prepare(&mut self, ops: &mut Vec<Op>) {
        ops.retain_mut(|op| match op {
            Op::Resume { partition } => {
                self.broken.remove(partition);
                false
            }
            Op::ReleaseMemory => {
                self.frame = FrameBuilder::default();
                (self.shared.options.release_memory)();
                false
            }
            Op::Apply(changes) => {
                changes.refuse_behind(&mut self.broken);
                true
            }
            _ => true,
        });
    }

    /// Writes and syncs the operations as one batch. Returns the number of its first entry, and the
    /// sync if there was one.
    fn make_durable(&mut self, ops: &[Op]) -> Result<(u64, Option<LogSync>), StoreError> {
        self.frame.clear();
        for op in ops {
            put(op, &mut self.frame);
        }
        if self.frame.count() == 0 {
            // The batch is empty, and everything before it is durable.
            return Ok((self.log.next_seq(), None));
        }
        let len = self.frame.len();
        let written = self
            .make_room(len)
            .and_then(|()| self.log.append(&mut self.frame));
        let (first_seq, sync) =
            written.inspect_err(|_| self.wanted_len = self.wanted_len.max(len))?;
        let counters = &self.shared.counters;
        counters.fsyncs.record(sync.took);
        counters.batches.add(1);
        counters.batch_records.add(u64::from(self.frame.count()));
        self.shared.note_log(None, self.log.current());
        if self.shared.health.is_out_of_space() {
            // A shorter frame may fit even though that one did not.
            self.probe_space();
        }
        Ok((first_seq, Some(sync)))
    }

    fn make_room(&mut self, len: usize) -> Result<(), StoreError> {
        let completed = self.log.make_room(len)?;
        self.shared.note_log(completed, self.log.current());
        Ok(())
    }

    /// Applies a durable batch, then acknowledges it.
    fn apply(&mut self, first_seq: u64, ops: Vec<Op>, sync: Option<LogSync>) {
        let shared = &*self.shared;
        let mut seq = first_seq;
        let mut acks = Vec::with_capacity(ops.len());
        for op in ops {
            let reserved = op.reserved_bytes();
            match op {
                Op::Apply(changes) => {
                    apply(shared, &mut seq, &changes);
                    acks.push(Ack::Apply(changes));
                }
                Op::Ceiling { time, done } => {
                    shared.raise_ceiling(time);
                    seq += 1;
                    acks.push(Ack::Ceiling(done));
                }
                Op::Resume { .. } | Op::ReleaseMemory | Op::Rotate { .. } => {}
            }
            shared.room.release(reserved);
        }
        shared.set_last_seq(Seq(seq - 1));
        let took = sync.map_or(Duration::ZERO, |sync| sync.took);
        self.gather.note_batch(acks.len(), shared.queue.len(), took);
        for ack in acks {
            match ack {
                Ack::Apply(changes) => changes.complete(sync),
                Ack::Ceiling(done) => done.call(Ok(())),
            }
        }
    }

    fn refuse(&mut self, ops: Vec<Op>, error: &StoreError) {
        self.note(error);
        for mut op in ops {
            self.shared.release(&op);
            if let Op::Apply(changes) = &mut op {
                changes.refuse(error);
                changes.refuse_behind(&mut self.broken);
            }
            if matches!(error, StoreError::OutOfSpace) {
                self.shared.counters.space_refusals.add(1);
            }
            op.refuse(error.clone());
        }
    }

    fn note(&self, error: &StoreError) {
        self.shared.health.note(error);
        if matches!(error, StoreError::OutOfSpace) {
            self.shared.health.set_out_of_space(true);
        }
    }

    fn probe_space(&mut self) {
        match self.make_room(self.wanted_len) {
            Ok(()) => {
                self.wanted_len = FRAME_LEN;
                self.shared.health.set_out_of_space(false);
            }
            Err(error) => self.note(&error),
        }
    }

    fn rotate(&mut self, done: oneshot::Sender<Result<Rotated, StoreError>>) {
        let rotated = self.log.rotate(FRAME_LEN as u64).map(|completed| {
            self.shared.note_log(completed, self.log.current());
            Rotated {
                segment: self.log.current().number,
                through: Seq(self.log.next_seq() - 1),
            }
        });
        if let Err(error) = &rotated {
            // The current segment still has room, so writes continue.
            self.shared.health.note(error);
        }
        // Fails if the flush was abandoned and needs no answer.
        drop(done.send(rotated));
    }
}

/// Writes the entries of an operation to a frame.
fn put(op: &Op, frame: &mut FrameBuilder) {
    match op {
        Op::Apply(changes) => {
            for (change, records) in changes.taken() {
                let partition = change.partition;
                if change.wipe {
                    frame.push(|body| Entry::put_drop(partition, body));
                }
                put_records(records, frame);
                if let Some(watermark) = change.purge {
                    frame.push(|body| Entry::put_purge(partition, watermark, body));
                }
                if let Some(meta) = &change.meta {
                    frame.push(|body| Entry::put_meta(partition, meta, body));
                }
            }
        }
        Op::Ceiling { time, .. } => frame.push(|body| Entry::put_ceiling(*time, body)),
        Op::Resume { .. } | Op::ReleaseMemory | Op::Rotate { .. } => {}
    }
}

fn put_records(records: &[Packed], frame: &mut FrameBuilder) {
    for packed in records {
        frame.push(|body| body.extend_from_slice(packed.bytes()));
    }
}

/// Applies changes in the order in which [`put`] wrote their entries.
fn apply(shared: &Shared, seq: &mut u64, changes: &Changes) {
    let mut next = || {
        let this = Seq(*seq);
        *seq += 1;
        this
    };
    let taken: Vec<_> = changes.taken().collect();
    for taken in taken.chunks(PREFETCHED) {
        let records = taken.iter().filter_map(|(_, records)| records.first());
        shared.table.prefetch(records);
        for (change, records) in taken {
            let partition = change.partition;
            if change.wipe {
                shared.table.drop_partition(partition, next());
            }
            for packed in *records {
                shared.apply(next(), packed);
            }
            if let Some(watermark) = change.purge {
                next();
                shared.table.purge(partition, watermark);
            }
            if let Some(meta) = &change.meta {
                next();
                shared.table.set_meta(partition, **meta);
            }
        }
    }
}
