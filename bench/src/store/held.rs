//! Fills a store: the rate, the work after the load, and the disk space.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use torc_store::Store;

use super::engine::Engine;
use super::say;
use super::subject::{self, Subject};
use crate::process;
use crate::records;

/// Records per batch while filling.
const BATCH: u64 = 10_000;
/// Background work of stores after a load counts as part of holding it.
const REST: Duration = Duration::from_secs(2);
/// The threads of Torc's store that flush and compact.
const FLUSHER: &str = "torc-flush";
const COMPACTOR: &str = "torc-compact";

/// Fills an empty store and reports the figures. The store stays open and is leaked: the parent
/// kills this process.
pub(super) fn fill(subject: Subject, dir: &Path, records: u64) -> Result<()> {
    let before = process::memory(std::process::id())?.resident_bytes;
    let store = subject::open(subject, dir)?;
    say("load", load(&*store, records)?)?;
    let started = Instant::now();
    store.settle()?;
    say("settle", started.elapsed().as_secs_f64())?;
    if let Some(torc) = store.torc() {
        tell_of_upkeep(torc, records)?;
    }
    std::thread::sleep(REST);
    let peak = process::memory(std::process::id())?.peak_bytes;
    let per_record = |bytes: u64| bytes as f64 / records as f64;
    say(
        "peak_ram_per_record",
        per_record(peak.saturating_sub(before)),
    )?;
    say("disk_per_record", per_record(process::disk_bytes(dir)?))?;
    std::mem::forget(store);
    Ok(())
}

/// Records per second, in batches that become durable one after the other.
fn load(store: &dyn Engine, records: u64) -> Result<f64> {
    let started = Instant::now();
    for first in (0..records).step_by(BATCH as usize) {
        let last = (first + BATCH).min(records);
        store.put_many((first..last).map(records::pair).collect())?;
    }
    Ok(records as f64 / started.elapsed().as_secs_f64())
}

/// Records that one core flushes and compacts per second: by the processor time of the two threads,
/// so neither waits for the disk nor other work on the machine count.
fn tell_of_upkeep(store: &Store, records: u64) -> Result<()> {
    let stats = store.stats();
    let per_core = |count: u64, thread| {
        let spent = process::cpu_time_of_threads(thread)?.as_secs_f64();
        anyhow::Ok(count as f64 / spent.max(1e-9))
    };
    say("flush_per_core", per_core(stats.flushed_records, FLUSHER)?)?;
    say(
        "flush_elapsed",
        stats.flushed_records as f64 / stats.flush_seconds,
    )?;
    if stats.compacted_records > 0 {
        say(
            "compaction_per_core",
            per_core(stats.compacted_records, COMPACTOR)?,
        )?;
        say(
            "compaction_elapsed",
            stats.compacted_records as f64 / stats.compaction_seconds,
        )?;
    }
    say(
        "compactions_per_record",
        stats.compacted_records as f64 / records as f64,
    )
}
