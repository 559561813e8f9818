//! The thread that puts ingested slices in force, several at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use torc_ring::Partition;

use super::SliceInfo;
use super::buffers::Buffers;
use super::file::{IngestFile, Ready, Region};
use crate::partition_table::{Damaged, MergedSlices};
use crate::publish::Change;
use crate::segment::Slice;
use crate::shared::Shared;
use crate::slice::SliceHeader;
use crate::{PartitionSummary, Seq, StoreError};

/// Longest sleep without a wake-up.
const NAP: Duration = Duration::from_millis(100);

/// The shared state of ingests.
#[derive(Debug, Default)]
pub(crate) struct Ingests {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) buffers: Buffers,
}

#[derive(Debug, Default)]
struct State {
    /// The segment of new ingests.
    open: Option<Arc<IngestFile>>,
    is_stopping: bool,
}

impl Ingests {
    pub(super) fn reserve(
        &self,
        shared: &Shared,
        slices: &[SliceInfo],
    ) -> Result<(Arc<IngestFile>, Vec<Region>), StoreError> {
        let mut state = self.state.lock();
        if state.is_stopping {
            return Err(StoreError::Closed);
        }
        let file = if let Some(open) = &state.open {
            Arc::clone(open)
        } else {
            let partitions = shared.options.partitions;
            let number = shared.next_segment();
            let created = IngestFile::create(&shared.dir, partitions, number);
            let file = Arc::new(created.inspect_err(|error| shared.health.note(error))?);
            state.open = Some(Arc::clone(&file));
            file
        };
        let regions = file.reserve(slices);
        Ok((file, regions))
    }

    pub(super) fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_one();
    }

    /// Hands over the slices of a partition to put in force; refuses them if the thread has ended.
    pub(super) fn deliver(&self, file: &IngestFile, ready: Ready) {
        let state = self.state.lock();
        file.finish(ready);
        if state.is_stopping {
            refuse(file);
        }
        self.changed.notify_one();
    }

    /// Accepts no more ingests.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        if let Some(open) = state.open.take() {
            refuse(&open);
        }
        self.changed.notify_one();
    }

    /// The next segment with waiting slices and no ingest in progress; `None` to stop. Removes
    /// segments in which all ingests were abandoned.
    fn next(&self, shared: &Shared) -> Option<Arc<IngestFile>> {
        let mut state = self.state.lock();
        let mut leaving: Option<Arc<IngestFile>> = None;
        loop {
            if state.is_stopping {
                if let Some(leaving) = leaving {
                    refuse(&leaving);
                }
                return None;
            }
            if let Some(open) = state.open.take_if(|open| open.progress() == (false, false)) {
                shared.remove_file(open.path());
            }
            if leaving.is_none() && state.open.as_ref().is_some_and(|open| open.progress().0) {
                // New ingests go to another segment, so that this one can be completed.
                leaving = state.open.take();
            }
            if let Some(file) = leaving.take_if(|file| !file.progress().1) {
                return Some(file);
            }
            if state.open.is_none() && leaving.is_none() {
                self.buffers.clear();
            }
            self.changed.wait_for(&mut state, NAP);
        }
    }
}

/// Refuses all waiting slices of a segment that will not be completed.
fn refuse(file: &IngestFile) {
    for ready in file.take_ready() {
        // Fails if the caller is gone and needs no answer.
        drop(ready.done.send(Err(StoreError::Closed)));
    }
}

/// Puts ingested slices in force until told to stop.
pub(crate) fn run(shared: &Arc<Shared>) {
    while let Some(file) = shared.ingests.next(shared) {
        let ready = file.take_ready();
        let outcome = ingest(shared, &file, &ready);
        if let Err(error) = &outcome {
            shared.health.note(error);
            tracing::warn!(%error, "an ingest failed; its slices are not used");
            if !matches!(error, StoreError::Failed { .. }) {
                shared.remove_file(file.path());
            }
        }
        for ready in ready {
            let answer = match &outcome {
                Err(error) => Err(error.clone()),
                Ok((after, refused)) => match refused.get(&ready.partition) {
                    None => Ok(*after),
                    Some(error) => Err(error.clone()),
                },
            };
            // Fails if the caller is gone and needs no answer.
            drop(ready.done.send(answer));
        }
        shared.compactions.want();
    }
}

/// The slices of a partition to put in force.
#[derive(Default)]
struct Incoming {
    slices: Vec<Arc<Slice>>,
    /// The last log entry when the first of them was handed over.
    after: Option<Seq>,
}

type Outcome = (Seq, BTreeMap<Partition, StoreError>);

fn ingest(shared: &Shared, file: &IngestFile, ready: &[Ready]) -> Result<Outcome, StoreError> {
    shared.health.check()?;
    let mut verified: Vec<_> = ready.iter().flat_map(|one| &one.verified).collect();
    verified.sort_by_key(|one| one.at);
    for one in &verified {
        shared.note_time(one.header.highest_time);
    }
    // Drops up to this log entry do not concern slices that are ingested from now on.
    let after = shared.last_seq();
    if verified.is_empty() {
        shared.remove_file(file.path());
        return Ok((after, BTreeMap::new()));
    }
    let (slices, _) = file.complete(&verified, after)?;
    let mut incoming: BTreeMap<Partition, Incoming> = BTreeMap::new();
    for slice in slices {
        let of_partition = incoming.entry(slice.partition()).or_default();
        of_partition.slices.push(slice);
    }
    for one in ready {
        if let Some(of_partition) = incoming.get_mut(&one.partition) {
            let earlier = of_partition.after.unwrap_or(one.after);
            of_partition.after = Some(earlier.min(one.after));
        }
    }
    let decide = || Ok(decide(shared, &incoming));
    let (is_named, refused) = shared.publish(decide, |change| {
        let refused = install(shared, &incoming, change, after);
        (!change.added.is_empty(), refused)
    })?;
    if !is_named {
        shared.remove_file(file.path());
    }
    Ok((after, refused))
}

/// Accepts the slices of each partition in which all slices are readable, existing ones included.
fn decide(shared: &Shared, incoming: &BTreeMap<Partition, Incoming>) -> Change {
    let mut change = Change::default();
    for (partition, Incoming { slices, after }) in incoming {
        if after.is_some_and(|after| shared.table.was_dropped_after(*partition, after)) {
            change.refused.insert(*partition, dropped(*partition));
            continue;
        }
        let (held, sealed) = shared.table.sealed(*partition);
        let records = || slices.iter().filter(|slice| !slice.is_generation());
        let sum = if records().next().is_some() {
            sum(held.iter().chain(records()))
        } else {
            Ok(sealed)
        };
        match sum {
            Ok(sum) => {
                change.sealed.insert(*partition, sum);
                change.added.extend(slices.iter().cloned());
            }
            Err(error) => {
                change.refused.insert(*partition, error);
            }
        }
    }
    change
}

/// Puts the slices in force; returns the partitions for which that failed.
fn install(
    shared: &Shared,
    incoming: &BTreeMap<Partition, Incoming>,
    change: &Change,
    after: Seq,
) -> BTreeMap<Partition, StoreError> {
    let mut refused = change.refused.clone();
    for (partition, Incoming { slices, .. }) in incoming {
        let (partition, table) = (*partition, &shared.table);
        let Some(sum) = change.sealed.get(&partition) else {
            continue;
        };
        match table.install_ingested(partition, slices, *sum, after) {
            Ok(true) => {}
            Ok(false) => {
                refused.insert(partition, dropped(partition));
            }
            Err(error) => {
                refused.insert(partition, error);
            }
        }
    }
    refused
}

fn dropped(partition: Partition) -> StoreError {
    let what = "the partition was dropped meanwhile";
    StoreError::BadIngest { partition, what }
}

/// The sum of slices. A single slice has its own in its header.
fn sum<'a>(slices: impl Iterator<Item = &'a Arc<Slice>>) -> Result<PartitionSummary, StoreError> {
    let slices: Vec<&Arc<Slice>> = slices.collect();
    if let [one] = slices[..] {
        return Ok(one.header().map(SliceHeader::held).unwrap_or_default());
    }
    let mut merged = MergedSlices::after(slices.into_iter(), None, Damaged::Refuse)?;
    let mut sum = PartitionSummary::default();
    while let Some(packed) = merged.next()? {
        sum.add(&packed);
    }
    Ok(sum)
}
