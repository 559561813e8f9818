//! The store of one node.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use torc_record::{Locator, Record};
use torc_ring::Partition;

use crate::counters::Counter;
use crate::directory::FORMAT;
use crate::fs::{Fs, RealFs};
use crate::shared::Shared;
use crate::threads::Threads;
use crate::trace::Trace;
use crate::{
    CompactionReport, FilteredPage, FlushReport, Ingest, PartitionSummary, Recovery, ScanLimits,
    ScanPage, SealedPartition, SealedSlice, Seq, SliceInfo, StoreError, StoreHealth, StoreOptions,
    StoreStats, meta, recovery,
};

/// A longer batch is written as several log batches.
pub(crate) const MAX_OP_BYTES: usize = 4 << 20;

/// The durable records of one node. Cheap to clone; clones share one store.
///
/// * Reading: [`get`](Self::get), [`scan`](Self::scan),
///   [`scan_since`](Self::scan_since), [`summary`](Self::summary).
///   They see only durable data, and may wait for the disk;
///   [`get_cached`](Self::get_cached) and [`get_batch_cached`](Self::get_batch_cached)
///   do not.
/// * Writing: [`apply_many`](Self::apply_many), [`apply`](Self::apply),
///   [`resume`](Self::resume), [`room`](Self::room). They report when the change is durable.
/// * For replicas: [`partition_meta`](Self::partition_meta), [`range_sum`](Self::range_sum),
///   [`reserve_ceiling`](Self::reserve_ceiling); for damage:
///   [`scan_readable`](Self::scan_readable), [`scrub`](Self::scrub),
///   [`mark_repaired`](Self::mark_repaired).
/// * Moving slices: [`sealed`](Self::sealed) on the one node, [`ingest`](Self::ingest) on
///   the other; [`hold`](Self::hold) meanwhile.
/// * Upkeep: [`flush`](Self::flush) and [`compact`](Self::compact), which also run automatically;
///   [`stats`](Self::stats), [`health`](Self::health), [`damage`](Self::damage),
///   [`trace`](Self::trace).
/// * Identity: [`meta_get`](Self::meta_get), [`meta_set`](Self::meta_set).
///
/// If the last clone is dropped without [`close`](Self::close), queued writes are still
/// written and the directory is released; errors are then only logged.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

/// Prints the directory, never any user data.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Store");
        out.field("dir", &self.shared().options.dir);
        out.finish_non_exhaustive()
    }
}

struct Handle {
    shared: Arc<Shared>,
    threads: Mutex<Option<Threads>>,
}

impl Store {
    /// The first file that every store creates in its directory.
    #[must_use]
    pub fn format_file(dir: &Path) -> PathBuf {
        dir.join(FORMAT)
    }

    /// Opens the store in a directory, which is created if missing. Reads the log since the
    /// last flush, about a million records per second, and the indexes of the slices.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::NewerFormat`], [`StoreError::OlderFormat`],
    /// [`StoreError::PartitionsDiffer`], [`StoreError::Corrupt`] and [`StoreError::LostBatch`] with
    /// file and offset, [`StoreError::BadOption`], [`StoreError::OutOfSpace`], [`StoreError::Io`].
    pub fn open(options: StoreOptions) -> Result<(Self, Recovery), StoreError> {
        Self::open_with(options, Arc::new(RealFs))
    }

    /// Opens a store on the caller's file system.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(
        options: StoreOptions,
        fs: Arc<dyn Fs>,
    ) -> Result<(Self, Recovery), StoreError> {
        let (shared, log, recovery) = recovery::recover(options, fs)?;
        (shared.options.release_memory)();
        let shared = Arc::new(shared);
        let threads = Threads::start(&shared, log)?;
        let handle = Handle {
            shared,
            threads: Mutex::new(Some(threads)),
        };
        let store = Self {
            handle: Arc::new(handle),
        };
        Ok((store, recovery))
    }

    /// The record of a key: a value, an expired value or a tombstone, unless it was
    /// collected. It takes under a microsecond if the record is in the page cache.
    /// Otherwise a sealed record waits for one disk read, and so does one miss in a
    /// hundred.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn get(&self, at: Locator<&[u8]>) -> Result<Option<Record>, StoreError> {
        self.shared().health.check()?;
        let packed = self.shared().table.packed(&at)?;
        Ok(packed.map(|packed| packed.unpack()))
    }

    /// As [`Store::get`], for threads that must not wait for the disk: `None` if a needed
    /// record is not in the page cache. Then call [`Store::get`] where waiting is allowed. On
    /// systems that cannot tell what is cached, it waits.
    ///
    /// # Errors
    /// As [`Store::get`].
    #[must_use]
    pub fn get_cached(&self, at: Locator<&[u8]>) -> Option<Result<Option<Record>, StoreError>> {
        if let Err(error) = self.shared().health.check() {
            return Some(Err(error));
        }
        let found = self.shared().table.packed_cached(&at)?;
        Some(found.map(|found| found.map(|packed| packed.unpack())))
    }

    /// Many [`Store::get_cached`], answered in request order. Takes about half the time of single
    /// gets, because waits for memory overlap.
    #[must_use]
    pub fn get_batch_cached(
        &self,
        reads: &[Locator<&[u8]>],
    ) -> Vec<Option<Result<Option<Record>, StoreError>>> {
        if let Err(error) = self.shared().health.check() {
            return reads.iter().map(|_| Some(Err(error.clone()))).collect();
        }
        let found = self.shared().table.packed_batch_cached(reads);
        found
            .map(|found| Some(found?.map(|found| found.map(|packed| packed.unpack()))))
            .collect()
    }

    /// A page of a partition's records in ring order from `after` on, including
    /// tombstones that were not collected. A page can be empty although there is a next
    /// one.
    ///
    /// # Errors
    /// [`StoreError::UnknownPartition`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn scan(
        &self,
        partition: Partition,
        after: Option<&Locator>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        self.check_partition(partition)?;
        self.shared().health.check()?;
        self.shared().table.page(partition, after, limits)
    }

    /// As [`Store::scan`], but returns only values for which `keep` returns true, with the sum of
    /// all records of the page. A page ends after 16 MiB read, or at the limits for the records
    /// kept. `None` if two records have the same digest, which a sum cannot tell apart.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn scan_filtered(
        &self,
        partition: Partition,
        after: Option<&Locator>,
        limits: ScanLimits,
        keep: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Option<FilteredPage>, StoreError> {
        self.check_partition(partition)?;
        self.shared().health.check()?;
        self.shared()
            .table
            .filtered_page(partition, after, limits, keep)
    }

    /// As [`Store::scan`], but only records whose log entry is above `since`: the tail of a
    /// transfer. Reads all of the partition's memtable. Returns all records of a slice that was
    /// flushed since then, even older ones. Includes collected records, because they hide older
    /// versions in the slices that are copied together with the tail.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn scan_since(
        &self,
        partition: Partition,
        since: Seq,
        after: Option<&Locator>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        self.check_partition(partition)?;
        self.shared().health.check()?;
        self.shared().table.tail(partition, since, after, limits)
    }

    /// Summary of a partition, without collected records. It is updated with every write,
    /// so this is cheap; but the first call after a purge reads the partition's slices if
    /// they have tombstones or expiring values. A partition that does not exist is empty.
    #[must_use]
    pub fn summary(&self, partition: Partition) -> PartitionSummary {
        self.shared().table.summary(partition)
    }

    /// Bytes of key and value that a get of this key would find, without reading the record: of
    /// another key's record if this one is absent and a gate lets it pass. About 0.1 us for each
    /// slice of the partition.
    #[must_use]
    pub fn len_hint(&self, at: Locator<&[u8]>) -> usize {
        self.shared().table.len_hint(&at)
    }

    /// An upper bound, in bytes, of the longest key and value together that the store holds or has
    /// held since it was opened; less than twice their true length. A load.
    #[must_use]
    pub fn longest_record(&self) -> usize {
        self.shared().table.longest()
    }

    /// Whether a partition may hold anything that a collection can drop, now or after it
    /// expires; false is certain. Checks its memtable and the headers of its slices.
    #[must_use]
    pub fn may_be_collected(&self, partition: Partition) -> bool {
        self.shared().table.may_be_collected(partition)
    }

    /// Number of the newest applied entry; all entries up to it are applied. Survives
    /// restarts.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.shared().last_seq()
    }

    /// Flushes all records of the memtable into slices and cuts the log. Reads and writes
    /// continue meanwhile. Also runs automatically, see [`StoreOptions::flush_log_bytes`].
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`], [`StoreError::Unflushable`]: nothing was
    /// changed. [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn flush(&self) -> Result<FlushReport, StoreError> {
        self.shared().health.check()?;
        let (done, outcome) = oneshot::channel();
        self.shared().flushes.ask(done)?;
        outcome.await.unwrap_or_else(|_| Err(self.why_unanswered()))
    }

    /// Compacts the slices of every partition into one, as fast as possible, except of partitions
    /// that are [held](Self::hold). Reads and writes continue meanwhile. Compaction also runs
    /// automatically, at a limited rate and only where it pays off, see
    /// [`StoreOptions::most_slices`].
    ///
    /// # Errors
    /// As [`Store::flush`]. Leaves damaged slices unchanged.
    pub async fn compact(&self) -> Result<CompactionReport, StoreError> {
        self.shared().health.check()?;
        let (done, outcome) = oneshot::channel();
        self.shared().compactions.ask(done)?;
        outcome.await.unwrap_or_else(|_| Err(self.why_unanswered()))
    }

    /// The slices of a partition, for copying to another node.
    ///
    /// # Errors
    /// [`StoreError::UnknownPartition`], [`StoreError::Damaged`] if a slice is known to be damaged,
    /// [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn sealed(&self, partition: Partition) -> Result<SealedPartition, StoreError> {
        self.check_partition(partition)?;
        let shared = self.shared();
        shared.health.check()?;
        let last = shared.last_seq();
        let sealed = shared.table.sealed_through(partition, last);
        if let Some(SealedSlice(slice)) = sealed.slices.iter().find(|it| it.0.is_damaged()) {
            return Err(slice.note_damage("found before"));
        }
        Ok(sealed)
    }

    /// Starts the ingest of slices of a partition from another node: reserves space for them.
    ///
    /// # Errors
    /// [`StoreError::UnknownPartition`], [`StoreError::BadIngest`],
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`], [`StoreError::Failed`],
    /// [`StoreError::Closed`].
    pub fn ingest(&self, partition: Partition, slices: &[SliceInfo]) -> Result<Ingest, StoreError> {
        self.check_partition(partition)?;
        self.shared().health.check()?;
        Ingest::begin(&self.handle.shared, partition, slices)
    }

    /// Prevents compaction of a partition's slices while the returned value lives, so that
    /// copied slices need not be copied again.
    #[must_use]
    pub fn hold(&self, partition: Partition) -> CompactionHold {
        self.shared().hold(partition);
        CompactionHold {
            shared: Arc::clone(&self.handle.shared),
            partition,
        }
    }

    /// Known damage of a partition, if any. Reads of keys that it may affect are refused.
    #[must_use]
    pub fn damage(&self, partition: Partition) -> Option<StoreError> {
        let slice = self.shared().table.damage(partition)?;
        Some(slice.note_damage("found before"))
    }

    /// Every place where a key was looked up, with the result.
    ///
    /// # Errors
    /// As [`Store::get`], except for damage, which is part of the result.
    pub fn trace(&self, at: Locator<&[u8]>) -> Result<Trace, StoreError> {
        self.shared().health.check()?;
        Ok(self.shared().table.trace(&at))
    }

    /// Counters and sizes. Takes every partition's lock once, about 100 microseconds.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let shared = self.shared();
        let held = shared.table.total();
        let counters = &shared.counters;
        let log = shared.log.lock();
        let (log_bytes, log_segments) = (log.bytes(), log.completed.len() as u64 + 1);
        drop(log);
        let seconds = |nanos: &Counter| Duration::from_nanos(nanos.get()).as_secs_f64();
        StoreStats {
            records: held.records,
            tombstones: held.tombstones,
            payload_bytes: held.payload_bytes,
            memtable_bytes: shared.table.memtable_bytes(),
            memtable_limit_bytes: shared.options.memtable_limit_bytes,
            log_bytes,
            log_segments,
            fsyncs: counters.fsyncs.count(),
            fsync_seconds: counters.fsyncs.histogram(),
            batches: counters.batches.get(),
            batch_records: counters.batch_records.get(),
            memtable_refusals: counters.memtable_refusals.get(),
            space_refusals: counters.space_refusals.get(),
            flushes: counters.flushes.get(),
            flush_failures: counters.flush_failures.get(),
            flushed_records: counters.flushed_records.get(),
            flush_seconds: seconds(&counters.flush_nanos),
            compactions: counters.compactions.get(),
            compaction_failures: counters.compaction_failures.get(),
            compacted_records: counters.compacted_records.get(),
            compaction_seconds: seconds(&counters.compaction_nanos),
            sliced: shared.table.slice_stats(),
            free_bytes: shared.dir.fs().free_bytes(shared.dir.path()).ok(),
        }
    }

    /// Whether the store accepts writes and reads.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.shared().health.report()
    }

    /// Reads a small durable value set by [`Store::meta_set`]. Reads a file.
    ///
    /// # Errors
    /// [`StoreError::BadMetaName`], [`StoreError::Corrupt`], [`StoreError::NewerFormat`],
    /// [`StoreError::Io`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn meta_get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.shared().health.check()?;
        meta::get(&self.shared().dir, name)
    }

    /// Durably sets a small value: the node's identity. `name` has 1 to 64 of `a` to `z`, `0` to
    /// `9`, `-` and `_`; `bytes` are at most 1 MiB.
    ///
    /// Blocks the thread for two or three syncs, a few milliseconds: use
    /// `spawn_blocking` where that matters.
    ///
    /// # Errors
    /// [`StoreError::BadMetaName`], [`StoreError::MetaTooLong`], [`StoreError::OutOfSpace`],
    /// [`StoreError::Io`], [`StoreError::Closed`]: nothing was changed.
    /// [`StoreError::Failed`]: it may have the old value or the new one.
    pub fn meta_set(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let shared = self.shared();
        shared.health.check()?;
        let _one_at_a_time = shared.meta.lock();
        meta::set(&shared.dir, name, bytes).inspect_err(|error| shared.health.note(error))
    }

    /// Writes the queue, ends the log properly, and releases the directory. After that
    /// all clones refuse every call; closing again is allowed.
    ///
    /// # Errors
    /// [`StoreError::Failed`], now or earlier. The directory is released in any case.
    pub async fn close(self) -> Result<(), StoreError> {
        let threads = self.handle.threads.lock().take();
        let Some(mut threads) = threads else {
            return Ok(());
        };
        let shared = self.shared();
        shared.stop_upkeep();
        for worker in [
            &mut threads.flusher,
            &mut threads.compactor,
            &mut threads.ingester,
        ] {
            // Fails only if the thread has panicked, which its committer has logged.
            let _ = (&mut worker.ended).await;
        }
        shared.queue.close();
        let ended = (&mut threads.committer.ended).await;
        shared.health.close();
        ended.unwrap_or_else(|_| Err(self.why_unanswered()))
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// Every partition that may hold records, in numeric order.
    #[must_use]
    pub fn partitions(&self) -> Vec<Partition> {
        self.shared().table.partitions()
    }

    pub(crate) fn check_partition(&self, partition: Partition) -> Result<(), StoreError> {
        let partitions = self.shared().options.partitions;
        if partitions.contains(partition) {
            return Ok(());
        }
        let count = partitions.count();
        Err(StoreError::UnknownPartition { partition, count })
    }

    /// The reason for an operation that was dropped without an answer: its thread has died.
    fn why_unanswered(&self) -> StoreError {
        match self.shared().health.check() {
            Err(why) => why,
            Ok(()) => StoreError::panicked(),
        }
    }
}

/// Prevents compaction of the slices of a partition.
#[derive(Debug)]
pub struct CompactionHold {
    shared: Arc<Shared>,
    partition: Partition,
}

impl Drop for CompactionHold {
    fn drop(&mut self) {
        self.shared.release_hold(self.partition);
    }
}
