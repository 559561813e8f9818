//! Queued changes of partitions, and the result of a call.
//!
//! A call is split into parts that each fit one log batch. Its parts are adjacent in the
//! queue; the result is reported when the last of them is completed or dropped.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use torc_record::{Ballot, ReplicaBatch, ReplicaFacts};
use torc_ring::Partition;

use crate::packed::Packed;
use crate::{StoreError, partition_table};

/// Upper bound on the bytes of a change in the log without its records.
const OTHERS_BYTES: usize = 128;

type Told = Box<dyn FnOnce(Applied) + Send>;

/// Result of a call of [`Store::apply_many`](crate::Store::apply_many).
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// The indexes of the failed changes, ascending, and the errors.
    pub failed: Vec<(usize, StoreError)>,
    /// The log sync that made the others durable, the last one if there were several; `None` if
    /// nothing was written.
    pub sync: Option<LogSync>,
}

/// A sync of the commit log.
#[derive(Debug, Clone, Copy)]
pub struct LogSync {
    /// When it started.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
}

/// Reports a call's outcome when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Report(Arc<Mutex<Call>>);

struct Call {
    applied: Applied,
    done: Option<Told>,
}

impl Report {
    pub(crate) fn new(done: impl FnOnce(Applied) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Call {
            applied: Applied::default(),
            done: Some(Box::new(done)),
        })))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(std::mem::take(&mut self.applied));
        }
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

/// A batch of one partition.
#[derive(Debug)]
pub(crate) struct Change {
    pub(super) partition: Partition,
    pub(super) wipe: bool,
    pub(super) purge: Option<Ballot>,
    pub(super) meta: Option<Box<ReplicaFacts>>,
    /// The number of records in [`Changes`] that belong to it.
    records: usize,
    /// Memory that its records add to the memtable.
    cost: u64,
    /// Why it is not stored.
    refused: Option<Box<StoreError>>,
}

impl Change {
    /// A batch with packed records, or the reason for refusing it.
    pub(crate) fn new(
        partition: Partition,
        batch: &ReplicaBatch,
        packed: Result<(), StoreError>,
    ) -> Self {
        Self {
            partition,
            wipe: batch.wipe,
            purge: batch.purge,
            meta: batch.meta.map(Box::new),
            records: 0,
            cost: 0,
            refused: packed.err().map(Box::new),
        }
    }
}

/// A part of a call, which goes into one batch of the log.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Index in the call of its first change.
    first: usize,
    list: Vec<Change>,
    /// The records of all its changes, in order.
    records: Vec<Packed>,
    log_bytes: usize,
    /// Memory reserved for them.
    pub(crate) reserved_bytes: u64,
    report: Report,
    is_settled: bool,
}

impl Changes {
    fn new(first: usize, report: Report) -> Self {
        Self {
            first,
            list: Vec::new(),
            records: Vec::new(),
            log_bytes: 0,
            reserved_bytes: 0,
            report,
            is_settled: false,
        }
    }

    /// Upper bound on the bytes in the log.
    pub(crate) const fn log_bytes(&self) -> usize {
        self.log_bytes
    }

    /// Memory that the changes may add to the memtable.
    pub(crate) fn cost(&self) -> u64 {
        self.list.iter().map(|change| change.cost).sum()
    }

    /// Reserves memory for each change with `admit`, and refuses changes that get none.
    pub(crate) fn reserve(&mut self, mut admit: impl FnMut(u64) -> Result<(), StoreError>) {
        for change in &mut self.list {
            match admit(change.cost) {
                Ok(()) => self.reserved_bytes += change.cost,
                Err(why) => drop(change.refused.get_or_insert_with(|| Box::new(why))),
            }
        }
    }

    /// Refuses changes that follow a failed change of the same partition.
    pub(super) fn refuse_behind(&mut self, broken: &mut BTreeSet<Partition>) {
        for change in &mut self.list {
            let partition = change.partition;
            match change.refused.as_deref() {
                // An unknown partition has no changes that could follow.
                Some(StoreError::UnknownPartition { .. }) => {}
                Some(_) => drop(broken.insert(partition)),
                None if broken.contains(&partition) => {
                    change.refused = Some(Box::new(StoreError::AfterFailure { partition }));
                }
                None => {}
            }
        }
    }

    /// Refuses all changes that are not refused yet.
    pub(crate) fn refuse(&mut self, why: &StoreError) {
        for change in &mut self.list {
            change.refused.get_or_insert_with(|| Box::new(why.clone()));
        }
    }

    /// The changes to store, in order.
    pub(super) fn taken(&self) -> impl Iterator<Item = (&Change, &[Packed])> {
        let mut records = &self.records[..];
        let all = self.list.iter().map(move |change| {
            let (own, rest) = records.split_at(change.records);
            records = rest;
            (change, own)
        });
        all.filter(|(change, _)| change.refused.is_none())
    }

    /// Marks the changes that were not refused as durable, by this sync if there was one.
    pub(crate) fn complete(mut self, sync: Option<LogSync>) {
        self.is_settled = true;
        if sync.is_some() {
            self.report.0.lock().applied.sync = sync;
        }
    }
}

/// Dropping them without an outcome means that the thread has panicked.
impl Drop for Changes {
    fn drop(&mut self) {
        if !self.is_settled {
            self.refuse(&StoreError::panicked());
        }
        let places = self.first..;
        let outcomes = places.zip(self.list.drain(..));
        let refused = outcomes.filter_map(|(place, change)| Some((place, *change.refused?)));
        let mut refused = refused.peekable();
        if refused.peek().is_some() {
            self.report.0.lock().applied.failed.extend(refused);
        }
    }
}

/// Splits a call into parts.
pub(crate) struct Parts {
    most_bytes: usize,
    done: Vec<Changes>,
    last: Changes,
}

impl Parts {
    /// Splits into parts of at most `most_bytes` in the log; a longer change has its own part.
    pub(crate) fn new(most_bytes: usize, changes: usize, report: Report) -> Self {
        let mut last = Changes::new(0, report);
        last.list.reserve_exact(changes);
        last.records.reserve(changes);
        Self {
            most_bytes,
            done: Vec::new(),
            last,
        }
    }

    /// Adds the next change and takes its records; a refused change has none.
    pub(crate) fn push(&mut self, mut change: Change, records: &mut Vec<Packed>) {
        let lens = records.iter().map(|packed| packed.bytes().len());
        let bytes = OTHERS_BYTES + lens.sum::<usize>();
        if !self.last.list.is_empty() && self.last.log_bytes + bytes > self.most_bytes {
            let next = self.last.first + self.last.list.len();
            let next = Changes::new(next, self.last.report.clone());
            self.done.push(std::mem::replace(&mut self.last, next));
        }
        change.records = records.len();
        change.cost = records.iter().map(partition_table::cost).sum();
        self.last.log_bytes += bytes;
        self.last.records.append(records);
        self.last.list.push(change);
    }

    pub(crate) fn finish(mut self) -> Vec<Changes> {
        if self.last.list.is_empty() {
            self.last.complete(None);
        } else {
            self.done.push(self.last);
        }
        self.done
    }
}
