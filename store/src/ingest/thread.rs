//! The thread that puts ingested slices in force, several at a time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use torc_ring::Partition;

use super::file::{IngestFile, Ready};
use crate::partition_table::{Damaged, MergedSlices};
use crate::publish::Change;
use crate::segment::Slice;
use crate::shared::Shared;
use crate::slice::SliceHeader;
use crate::threads::lower_priority;
use crate::{PartitionSummary, Seq, StoreError};

/// Puts ingested slices in force until told to stop.
pub(crate) fn run(shared: &Arc<Shared>) {
    lower_priority();
    let next = || {
        let remove = |path: &Path| shared.remove_file(path);
        shared.ingests.next(remove, shared.options.release_memory)
    };
    while let Some(file) = next() {
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
                for header in records().filter_map(|slice| slice.header()) {
                    shared.note_time(header.highest_time);
                    shared.table.note_ballot(*partition, header.highest());
                }
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
