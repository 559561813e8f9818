//! What it takes to hold records: loading, reading, memory and disk.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::child::say;
use super::engine::{self, Engine, Subject};
use crate::process;
use crate::records::{self, Random};

/// Records of a batch while filling.
const BATCH: u64 = 1_000;
/// Keys that are made, then read; few, so that they do not count as the store's memory.
const CHUNK: usize = 4_096;
/// Chunks read, of keys that are there and of keys that are not.
const CHUNKS: usize = 64;
/// What stores do in the background after a load is part of holding it.
const SETTLE: Duration = Duration::from_secs(2);

/// What [`fill`] tells, in this order, with units.
pub(super) const FIGURES: [(&str, &str); 6] = [
    ("load", "records/s"),
    ("get", "ns"),
    ("get_of_absent", "ns"),
    ("ram_per_record", "bytes"),
    ("peak_ram_per_record", "bytes"),
    ("disk_per_record", "bytes"),
];

/// Fills an empty store, reads it, and tells [`FIGURES`]. The store stays open, and is
/// forgotten: whoever asked kills this process.
pub(super) fn fill(subject: Subject, dir: &Path, records: u64) -> Result<()> {
    let before = process::memory(std::process::id())?.resident_bytes;
    let store = engine::open(subject, dir)?;
    say("load", load(&*store, records)?)?;
    std::thread::sleep(SETTLE);
    say("get", read(&*store, 0, records)?)?;
    say("get_of_absent", read(&*store, records, 0)?)?;
    let memory = process::memory(std::process::id())?;
    let per_record = |bytes: u64| bytes.saturating_sub(before) as f64 / records as f64;
    say("ram_per_record", per_record(memory.resident_bytes))?;
    say("peak_ram_per_record", per_record(memory.peak_bytes))?;
    say(
        "disk_per_record",
        process::disk_bytes(dir)? as f64 / records as f64,
    )?;
    std::mem::forget(store);
    Ok(())
}

/// Records a second, in batches that are durable one after the other.
fn load(store: &dyn Engine, records: u64) -> Result<f64> {
    let started = Instant::now();
    for first in (0..records).step_by(BATCH as usize) {
        let last = (first + BATCH).min(records);
        store.put_many((first..last).map(records::pair).collect())?;
    }
    Ok(records as f64 / started.elapsed().as_secs_f64())
}

/// Nanoseconds of a get, of random keys among the `present` records, or, if that is 0, of
/// random keys beyond the first `absent`.
fn read(store: &dyn Engine, absent: u64, present: u64) -> Result<f64> {
    let mut random = Random::of(3);
    let mut reading = Duration::ZERO;
    for _ in 0..CHUNKS {
        let index = |random: &mut Random| match present {
            0 => absent + random.below(1 << 30),
            present => random.below(present),
        };
        let keys: Vec<Vec<u8>> = (0..CHUNK)
            .map(|_| records::key(index(&mut random)))
            .collect();
        let started = Instant::now();
        let mut found = 0;
        for key in &keys {
            found += usize::from(store.get(key)?.is_some());
        }
        reading += started.elapsed();
        let expected = if present == 0 { 0 } else { CHUNK };
        ensure!(found == expected, "{found} of {expected} keys were found");
    }
    Ok(reading.as_secs_f64() * 1e9 / (CHUNKS * CHUNK) as f64)
}
