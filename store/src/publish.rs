//! Replaces the manifest, and with it the set of live slices.
//!
//! The manifest's lock is held from the decision through the write until the change takes
//! effect, so changes are serial. Only drops can happen in between, and they win: each is
//! in the log after all entries that a slice may contain.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use torc_ring::Partition;

use crate::manifest::{LiveSegment, Manifest};
use crate::segment::Slice;
use crate::shared::Shared;
use crate::{PartitionSummary, Seq, StoreError};

/// The changes of a new manifest.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Slices that become live; they are durable except for the name of their file.
    pub(crate) added: Vec<Arc<Slice>>,
    /// Slices that are live no more.
    pub(crate) removed: Vec<Arc<Slice>>,
    /// The new sums of these partitions' slices.
    pub(crate) sealed: BTreeMap<Partition, PartitionSummary>,
    /// Partitions whose slices are refused, and why.
    pub(crate) refused: BTreeMap<Partition, StoreError>,
    /// The files cover all entries up to this one, and the log begins with this segment.
    pub(crate) covered: Option<(Seq, u64)>,
}

impl Shared {
    /// Publishes the change that `decide` returns, and puts it in force with `install`.
    ///
    /// # Errors
    /// Those of `decide`. [`StoreError::OutOfSpace`] and [`StoreError::Io`]: nothing was
    /// changed. [`StoreError::Failed`]: the new manifest may be in place.
    pub(crate) fn publish<T>(
        &self,
        decide: impl FnOnce() -> Result<Change, StoreError>,
        install: impl FnOnce(&Change) -> T,
    ) -> Result<T, StoreError> {
        let mut current = self.manifest.lock();
        let change = decide()?;
        if !change.added.is_empty() {
            self.dir.sync()?;
        }
        for slice in &change.added {
            self.table.note_longest(slice.longest());
        }
        let next = self.next_manifest(&current, &change);
        next.publish(&self.dir, self.options.partitions)?;
        let replaced = std::mem::replace(&mut *current, next);
        let installed = install(&change);
        self.remove_unnamed(&replaced, &current);
        Ok(installed)
    }

    /// Removes files without live slices, if there are any.
    pub(crate) fn sweep(&self) -> Result<(), StoreError> {
        let named = self.manifest.lock().segments.len();
        let live = self.table.live().into_iter().map(|(_, slices, _)| slices);
        let generations = self
            .table
            .generations()
            .into_iter()
            .map(|(_, slices)| slices);
        let live: Vec<_> = live.chain(generations).collect();
        let slices = live.iter().flat_map(|slices| slices.iter());
        let mut held: Vec<u64> = slices.map(|slice| slice.segment.file.number).collect();
        held.sort_unstable();
        held.dedup();
        if held.len() < named {
            self.publish(|| Ok(Change::default()), |_| ())?;
        }
        Ok(())
    }

    fn next_manifest(&self, current: &Manifest, change: &Change) -> Manifest {
        let mut segments: BTreeMap<u64, LiveSegment> = BTreeMap::new();
        let mut set_live = |slice: &Slice| {
            let file = &slice.segment.file;
            segments
                .entry(file.number)
                .or_insert_with(|| LiveSegment::new(file.clone()))
                .set_live(slice.row);
        };
        let mut sealed = BTreeMap::new();
        let removed: BTreeSet<_> = change.removed.iter().map(|slice| slice.id()).collect();
        for (partition, slices, summary) in self.table.live() {
            let kept = slices.iter().filter(|slice| !removed.contains(&slice.id()));
            kept.for_each(|slice| set_live(slice));
            sealed.insert(partition, summary);
        }
        for (_, slices) in self.table.generations() {
            let kept = slices.iter().filter(|slice| !removed.contains(&slice.id()));
            kept.for_each(|slice| set_live(slice));
        }
        change.added.iter().for_each(|slice| set_live(slice));
        sealed.extend(
            change
                .sealed
                .iter()
                .map(|(partition, sum)| (*partition, *sum)),
        );
        let (through, first_log) = change
            .covered
            .unwrap_or((current.through, current.first_log));
        Manifest {
            generation: current.generation + 1,
            through,
            first_log,
            highest_time: self.highest_time(),
            segments: segments.into_values().collect(),
            sealed: sealed.into_iter().collect(),
            facts: self.table.all_facts(),
            ceiling: self.node_ceiling(),
        }
    }

    fn remove_unnamed(&self, old: &Manifest, new: &Manifest) {
        let named = |number| new.segments.iter().any(|one| one.file.number == number);
        let numbers = old.segments.iter().map(|one| one.file.number);
        for number in numbers.filter(|number| !named(*number)) {
            self.remove_file(&self.dir.segment_path(number));
        }
    }

    /// Failure is harmless: the next opening removes files that the manifest does not name.
    pub(crate) fn remove_file(&self, path: &Path) {
        if let Err(error) = self.dir.remove(path) {
            tracing::warn!(%error, "an old file could not be removed; the next start removes it");
        }
    }
}
