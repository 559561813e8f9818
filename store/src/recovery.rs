//! Opening a store: from the files on disk to a store that accepts writes.
//!
//! Every step can be interrupted and repeated: nothing needed is removed or cut, and
//! whatever an earlier process left unsynced is synced before it is used.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use torc_record::{HybridTime, MAX_CLOCK_SKEW_MS};

use crate::commit::Queue;
use crate::counters::Counters;
use crate::directory::{Directory, MANIFEST, Names};
use crate::format::{Entry, FRAME_LEN, HEADER_LEN};
use crate::fs::Fs;
use crate::health::Health;
use crate::ingest::Ingests;
use crate::log::{self, LogEnd, LogWriter, Replay};
use crate::manifest::Manifest;
use crate::partition_table::PartitionTable;
use crate::requests::Requests;
use crate::room::Room;
use crate::segment::open_segment;
use crate::shared::{LogState, Shared};
use crate::stored::Stored;
use crate::{LogTail, Recovery, Seq, StoreError, StoreOptions};

/// Opens the directory and recovers the store.
pub(crate) fn recover(
    options: StoreOptions,
    fs: Arc<dyn Fs>,
) -> Result<(Shared, LogWriter, Recovery), StoreError> {
    options.check()?;
    let start = Instant::now();
    let dir = Arc::new(Directory::open(fs, &options.dir)?);
    dir.sync()?;
    let names = dir.names()?;
    let created = dir.check_format(options.partitions, &names)?;
    let mut manifest = manifest(&dir, &options, &names)?;
    remove_leftovers(&dir, &manifest, &names)?;

    let table = PartitionTable::new(options.partitions);
    let mut highest_time = manifest.highest_time;
    let mut ceiling = manifest.ceiling;
    let mut stored = Stored::new(options.partitions, manifest.highest_time);
    let sealed_records = open_segments(&dir, &options, &manifest, &table)?;
    let replay = Replay {
        dir: &dir,
        partitions: options.partitions,
        first: manifest.first_log,
        after: manifest.through,
        segments: &names.logs,
        cuts_damaged: options.cut_damaged_log,
        may_be_empty: manifest == Manifest::EMPTY,
        newest: log::newest::noted(&dir)?,
    };
    let mut end = replay.run(|seq, entry| match entry {
        Entry::Record(packed) => {
            highest_time = highest_time.max(packed.ballot().time);
            stored.note(&packed);
            table.apply(seq, &packed);
        }
        Entry::Drop(partition) => {
            table.drop_partition(partition, seq);
        }
        Entry::Purge(partition, watermark) => table.purge(partition, watermark),
        Entry::Meta(partition, meta) => table.set_meta(partition, meta),
        Entry::Ceiling(time) => ceiling = ceiling.max(time),
    })?;
    if matches!(end.tail, LogTail::Damaged { .. }) {
        stored = stored.unknown();
        // The lost batch is no later than this, if the clocks of the cluster are right and it came soon after the
        // batch before it, should this clock be behind.
        let now_ms = unix_ms().max(highest_time.unix_ms());
        let lost = HybridTime::from_unix_ms(now_ms + MAX_CLOCK_SKEW_MS);
        highest_time = highest_time.max(lost);
        ceiling = ceiling.max(lost);
        table.note_lost(lost);
        manifest = Manifest {
            generation: manifest.generation + 1,
            highest_time,
            facts: table.all_facts(),
            ceiling,
            ..manifest
        };
        // Before the log is cut: the next start cannot tell that it was.
        manifest.publish(&dir, options.partitions)?;
    }
    end.settle()?;
    let (log, state) = start_log(&dir, &options, &manifest, &end)?;
    let recovery = Recovery {
        created,
        records: table.total().records,
        sealed_records,
        log_entries_replayed: end.entries,
        log_bytes_replayed: end.bytes,
        log_tail: end.tail,
        last_seq: Seq(end.last_seq),
        highest_time,
        seconds: start.elapsed().as_secs_f64(),
    };
    let shared = Shared {
        table,
        queue: Queue::default(),
        room: Room::default(),
        flushes: Requests::default(),
        compactions: Requests::default(),
        ingests: Ingests::default(),
        health: Health::default(),
        counters: Counters::default(),
        last_seq: AtomicU64::new(end.last_seq),
        highest_time: AtomicU64::new(highest_time.0),
        node_ceiling: AtomicU64::new(ceiling.0),
        stored,
        log: Mutex::new(state),
        next_segment: AtomicU64::new(next_segment(&manifest, &names)),
        held: Mutex::default(),
        manifest: Mutex::new(manifest),
        meta: Mutex::new(()),
        dir,
        options,
    };
    shared.health.set_out_of_space(!log.has_segment());
    report(&recovery);
    Ok((shared, log, recovery))
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

fn manifest(
    dir: &Directory,
    options: &StoreOptions,
    names: &Names,
) -> Result<Manifest, StoreError> {
    if let Some(manifest) = Manifest::read(dir, options.partitions)? {
        return Ok(manifest);
    }
    if !names.logs.is_empty() || !names.segments.is_empty() {
        let path = dir.join(MANIFEST);
        return Err(StoreError::corrupt(&path, 0, "missing beside a log"));
    }
    Manifest::EMPTY.publish(dir, options.partitions)?;
    Ok(Manifest::EMPTY)
}

/// Removes files that were being written when a process died, and files that the manifest no longer
/// needs.
fn remove_leftovers(dir: &Directory, manifest: &Manifest, names: &Names) -> Result<(), StoreError> {
    dir.remove_temporary(names)?;
    let is_named = |number: &u64| {
        manifest
            .segments
            .iter()
            .any(|one| one.file.number == *number)
    };
    for number in names.segments.iter().filter(|number| !is_named(number)) {
        dir.remove(&dir.segment_path(*number))?;
    }
    for number in names
        .logs
        .iter()
        .filter(|number| **number < manifest.first_log)
    {
        dir.remove(&dir.log_path(*number))?;
    }
    Ok(())
}

/// Opens the segments; returns the number of records in the slices.
fn open_segments(
    dir: &Directory,
    options: &StoreOptions,
    manifest: &Manifest,
    table: &PartitionTable,
) -> Result<u64, StoreError> {
    let mut slices = Vec::new();
    for segment in &manifest.segments {
        let is_live = |row| segment.is_live(row);
        slices.extend(open_segment(
            dir,
            &segment.file,
            is_live,
            options.partitions,
        )?);
    }
    table.restore(slices, &manifest.sealed, &manifest.facts);
    Ok(manifest.sealed.iter().map(|(_, sum)| sum.records).sum())
}

/// Above every number ever used, including files that were never named.
fn next_segment(manifest: &Manifest, names: &Names) -> u64 {
    let named = manifest.segments.iter().map(|one| one.file.number);
    let highest = named.chain(names.segments.iter().copied()).max();
    highest.unwrap_or(0) + 1
}

/// Starts a new segment. Reuses the number of a segment without entries, so that restarts without
/// writes do not accumulate segments. On a full disk there is no segment yet, but stored records
/// can be read.
fn start_log(
    dir: &Arc<Directory>,
    options: &StoreOptions,
    manifest: &Manifest,
    end: &LogEnd,
) -> Result<(LogWriter, LogState), StoreError> {
    let mut completed = end.segments.clone();
    let holds_nothing = |bytes: u64| bytes <= (HEADER_LEN + FRAME_LEN) as u64;
    let number = match completed.last().copied() {
        None => manifest.first_log,
        Some(last) if holds_nothing(last.bytes) => {
            completed.pop();
            last.number
        }
        Some(last) => last.number + 1,
    };
    let mut log = LogWriter::new(
        dir.clone(),
        options.partitions,
        options.log_segment_bytes,
        number,
        end.last_seq + 1,
    );
    match log.make_room(FRAME_LEN) {
        Ok(_) | Err(StoreError::OutOfSpace) => {}
        Err(error) => return Err(error),
    }
    let state = LogState {
        completed,
        current: log.current(),
        flushed_before: manifest.first_log,
    };
    Ok((log, state))
}

fn report(recovery: &Recovery) {
    tracing::info!(
        records = recovery.records,
        sealed_records = recovery.sealed_records,
        log_entries_replayed = recovery.log_entries_replayed,
        log_bytes_replayed = recovery.log_bytes_replayed,
        last_seq = recovery.last_seq.0,
        seconds = recovery.seconds,
        "opened the store"
    );
    match recovery.log_tail {
        LogTail::Whole => {}
        LogTail::Torn { bytes } => tracing::warn!(
            bytes,
            "removed an incomplete batch from the end of the log: its writes were never \
             acknowledged, unless the disk forgot what it had synced"
        ),
        LogTail::Damaged { bytes } => tracing::error!(
            bytes,
            "removed a damaged batch from the end of the log: its writes may have been \
             acknowledged, and are lost on this node; check the disk"
        ),
    }
}
