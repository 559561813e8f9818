//! The store of one node.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use torc_record::{Digest, NamespaceId, Record};
use torc_ring::Partition;

use crate::commit::{Committer, Offered, Op};
use crate::fs::{Fs, RealFs};
use crate::log::LogWriter;
use crate::packed::Packed;
use crate::shared::Shared;
use crate::{
    CheckpointReport, Cursor, DropReport, PartitionSummary, Recovery, ScanLimits, ScanPage, Seq,
    StoreError, StoreHealth, StoreOptions, StoreStats, checkpoint, meta, recovery,
};

/// A longer batch of records is written as several batches of the log.
const MAX_OP_BYTES: usize = 4 << 20;

/// The durable records of one node. Cheap to clone; all clones are one store.
///
/// * Reading: [`get`](Self::get), [`scan`](Self::scan), [`scan_since`](Self::scan_since),
///   [`summary`](Self::summary). They see only what is durable.
/// * Writing: [`write`](Self::write), [`write_batch`](Self::write_batch),
///   [`drop_partition`](Self::drop_partition). They return when it is durable.
/// * Upkeep: [`checkpoint`](Self::checkpoint), which also happens by itself;
///   [`stats`](Self::stats), [`health`](Self::health).
/// * Identity: [`meta_get`](Self::meta_get), [`meta_set`](Self::meta_set).
///
/// When the last clone is dropped without [`close`](Self::close), what was queued is
/// written and the directory is released all the same; errors are then only logged.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

/// Names the directory; nothing of what users put in the store is ever printed.
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

/// The threads of a store. Dropping them lets them finish, waits for that, and releases
/// the directory.
struct Threads {
    shared: Arc<Shared>,
    checkpointer: Worker,
    committer: Worker,
}

/// A thread and the word that it has ended.
#[derive(Debug)]
struct Worker {
    thread: Option<JoinHandle<()>>,
    ended: oneshot::Receiver<Result<(), StoreError>>,
}

impl Store {
    /// Opens the store in a directory, which is made when it is missing. Reads all records
    /// into memory, about a million a second.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::NewerFormat`], [`StoreError::PartitionsDiffer`],
    /// [`StoreError::Corrupt`] with file and offset, [`StoreError::BadOption`],
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`].
    pub fn open(options: StoreOptions) -> Result<(Self, Recovery), StoreError> {
        Self::open_with(options, Arc::new(RealFs))
    }

    /// Opens a store on a file system of the caller's.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(
        options: StoreOptions,
        fs: Arc<dyn Fs>,
    ) -> Result<(Self, Recovery), StoreError> {
        let (shared, log, recovery) = recovery::recover(options, fs)?;
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

    /// The record of a key, be it a value, an expired one or a tombstone. A few hundred
    /// nanoseconds; no file is read.
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn get(
        &self,
        namespace: NamespaceId,
        digest: &Digest,
        key: &[u8],
    ) -> Result<Option<Record>, StoreError> {
        self.shared().health.check()?;
        Ok(self.shared().overlay.get(namespace, digest, key))
    }

    /// Stores a record unless one with as high a ballot is there, and returns when that is
    /// durable. An older or equal ballot is acknowledged all the same and changes nothing.
    ///
    /// Waits while the queue is full. A write whose future is dropped may still happen.
    ///
    /// # Errors
    /// [`StoreError::Refused`], [`StoreError::OverlayFull`], [`StoreError::OutOfSpace`],
    /// [`StoreError::Io`], [`StoreError::Closed`]: nothing was changed.
    /// [`StoreError::Failed`]: the record may or may not survive.
    pub async fn write(&self, record: Record) -> Result<(), StoreError> {
        let offered = Offered::of(&record)?;
        drop(record);
        self.submit(vec![offered]).await
    }

    /// Stores records as [`Store::write`] does and returns when all are durable.
    ///
    /// Up to 4 MiB of them are one batch of the log: after a crash all are there or none.
    /// Beyond that they are several.
    ///
    /// # Errors
    /// As [`Store::write`]; with more than 4 MiB, some of the records may have been stored.
    pub async fn write_batch(&self, records: Vec<Record>) -> Result<(), StoreError> {
        let mut batch = Vec::with_capacity(records.len());
        let mut bytes = 0;
        for record in records {
            let offered = Offered::of(&record)?;
            let len = offered.packed.bytes().len();
            if bytes + len > MAX_OP_BYTES {
                self.submit(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            bytes += len;
            batch.push(offered);
        }
        if batch.is_empty() {
            return self.shared().health.check();
        }
        self.submit(batch).await
    }

    /// Removes all records of a partition, durably. Records written later stay, also those
    /// that were there before and come back.
    ///
    /// # Errors
    /// [`StoreError::UnknownPartition`] and those of [`Store::write`].
    pub async fn drop_partition(&self, partition: Partition) -> Result<DropReport, StoreError> {
        self.check_partition(partition)?;
        let (done, outcome) = oneshot::channel();
        self.push(Op::Drop { partition, done }).await?;
        outcome.await.unwrap_or_else(|_| Err(self.why_unanswered()))
    }

    /// A page of a partition's records in ring order, tombstones included, from `after` on.
    ///
    /// # Errors
    /// [`StoreError::UnknownPartition`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn scan(
        &self,
        partition: Partition,
        after: Option<&Cursor>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        self.scan_since(partition, Seq(0), after, limits)
    }

    /// As [`Store::scan`], but only records whose entry in the log came after `since`: the
    /// tail of a transfer. Looks at all records of the partition.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn scan_since(
        &self,
        partition: Partition,
        since: Seq,
        after: Option<&Cursor>,
        limits: ScanLimits,
    ) -> Result<ScanPage, StoreError> {
        self.check_partition(partition)?;
        self.shared().health.check()?;
        Ok(self.shared().overlay.page(partition, since, after, limits))
    }

    /// What a partition holds: kept up with every write, so asking costs nothing. A
    /// partition that does not exist holds nothing.
    #[must_use]
    pub fn summary(&self, partition: Partition) -> PartitionSummary {
        self.shared().overlay.summary(partition)
    }

    /// Number of the newest entry that is applied; all entries up to it are. Survives
    /// restarts.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.shared().last_seq()
    }

    /// Writes all records to a new checkpoint and cuts the log behind it. Reads and writes
    /// go on meanwhile. Also happens by itself, see
    /// [`StoreOptions::checkpoint_log_bytes`].
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`]: the store is as it was.
    /// [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn checkpoint(&self) -> Result<CheckpointReport, StoreError> {
        self.shared().health.check()?;
        let (done, outcome) = oneshot::channel();
        self.shared().checkpoints.ask(done)?;
        outcome.await.unwrap_or_else(|_| Err(self.why_unanswered()))
    }

    /// Counters and sizes. Takes every partition's lock once, some 100 microseconds.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let shared = self.shared();
        let held = shared.overlay.total();
        let counters = &shared.counters;
        let log = shared.log.lock();
        let (log_bytes, log_segments) = (log.bytes(), log.completed.len() as u64 + 1);
        drop(log);
        StoreStats {
            records: held.records,
            tombstones: held.tombstones,
            payload_bytes: held.payload_bytes,
            overlay_bytes: shared.overlay.bytes(),
            overlay_limit_bytes: shared.options.overlay_limit_bytes,
            log_bytes,
            log_segments,
            checkpoint_bytes: counters.checkpoint_bytes.get(),
            fsyncs: counters.fsyncs.count(),
            fsync_seconds: counters.fsyncs.histogram(),
            batches: counters.batches.get(),
            batch_records: counters.batch_records.get(),
            write_stalls: counters.write_stalls.get(),
            overlay_refusals: counters.overlay_refusals.get(),
            space_refusals: counters.space_refusals.get(),
            checkpoints: counters.checkpoints.get(),
            checkpoint_failures: counters.checkpoint_failures.get(),
            checkpoint_seconds: Duration::from_nanos(counters.checkpoint_nanos.get()).as_secs_f64(),
            free_bytes: shared.dir.fs().free_bytes(shared.dir.path()).ok(),
        }
    }

    /// Whether the store takes writes and answers reads.
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

    /// Sets a small value, durably: the node's identity. `name` has 1 to 64 of `a` to `z`,
    /// `0` to `9`, `-` and `_`; `bytes` are at most 1 MiB.
    ///
    /// Blocks the thread for two or three syncs, some milliseconds: call it from
    /// `spawn_blocking` where that matters.
    ///
    /// # Errors
    /// [`StoreError::BadMetaName`], [`StoreError::MetaTooLong`], [`StoreError::OutOfSpace`],
    /// [`StoreError::Io`], [`StoreError::Closed`]: nothing was changed.
    /// [`StoreError::Failed`]: it may be the old value or the new one.
    pub fn meta_set(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let shared = self.shared();
        shared.health.check()?;
        let _one_at_a_time = shared.meta.lock();
        meta::set(&shared.dir, name, bytes).inspect_err(|error| shared.health.note(error))
    }

    /// Writes what is queued, ends the log in order, and releases the directory. All
    /// clones refuse everything from then on; closing again is fine.
    ///
    /// # Errors
    /// [`StoreError::Failed`], now or before. The directory is released all the same.
    pub async fn close(self) -> Result<(), StoreError> {
        let threads = self.handle.threads.lock().take();
        let Some(mut threads) = threads else {
            return Ok(());
        };
        let shared = self.shared();
        shared.checkpoints.stop();
        // A thread that is gone without a word has panicked; its committer said so.
        let _ = (&mut threads.checkpointer.ended).await;
        shared.queue.close();
        let ended = (&mut threads.committer.ended).await;
        shared.health.close();
        ended.unwrap_or_else(|_| Err(self.why_unanswered()))
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    async fn submit(&self, records: Vec<Offered>) -> Result<(), StoreError> {
        let shared = self.shared();
        shared.health.check()?;
        let reserved = shared.admit(&records)?;
        let (done, outcome) = oneshot::channel();
        self.push(Op::Write { records, done }).await?;
        reserved.hand_over();
        outcome.await.unwrap_or_else(|_| Err(self.why_unanswered()))
    }

    async fn push(&self, op: Op) -> Result<(), StoreError> {
        let shared = self.shared();
        shared.queue.push(op, &shared.counters.write_stalls).await
    }

    fn check_partition(&self, partition: Partition) -> Result<(), StoreError> {
        let count = self.shared().options.partitions.count();
        if partition.0 < count {
            return Ok(());
        }
        Err(StoreError::UnknownPartition { partition, count })
    }

    /// Why an operation was dropped without an answer: its thread died.
    fn why_unanswered(&self) -> StoreError {
        match self.shared().health.check() {
            Err(why) => why,
            Ok(()) => panicked(),
        }
    }
}

impl Threads {
    fn start(shared: &Arc<Shared>, log: LogWriter) -> Result<Self, StoreError> {
        let (for_checkpoints, for_commits) = (shared.clone(), shared.clone());
        let checkpointer = Worker::spawn("torc-checkpoint", shared, move || {
            checkpoint::run(&for_checkpoints);
            Ok(())
        })?;
        let committer = Worker::spawn("torc-commit", shared, move || {
            Committer::new(for_commits, log).run()
        });
        if committer.is_err() {
            shared.checkpoints.stop();
        }
        Ok(Self {
            shared: shared.clone(),
            checkpointer,
            committer: committer?,
        })
    }
}

impl Worker {
    fn spawn(
        name: &str,
        shared: &Arc<Shared>,
        work: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (done, ended) = oneshot::channel();
        let (owned, dir) = (shared.clone(), shared.options.dir.clone());
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                owned.health.note(&panicked());
                owned.refuse_all(&panicked());
                Err(panicked())
            });
            drop(owned);
            // Nobody may be waiting for the end.
            let _ = done.send(outcome);
        });
        let thread = thread.map_err(StoreError::io("start a thread for", &dir))?;
        let thread = Some(thread);
        Ok(Self { thread, ended })
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Panics are caught within the thread, and errors were logged there.
            let _ = thread.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.checkpoints.stop();
        self.checkpointer.join();
        self.shared.queue.close();
        self.committer.join();
        self.shared.dir.unlock();
    }
}

impl Offered {
    fn of(record: &Record) -> Result<Self, StoreError> {
        let packed = Packed::of(record)?;
        let fingerprint = packed.fingerprint();
        Ok(Self {
            packed,
            fingerprint,
        })
    }
}

fn panicked() -> StoreError {
    StoreError::Failed {
        reason: "a thread of the store has panicked".into(),
    }
}
