//! Reads a filled store: opening, single and batched gets of present and absent keys, and the
//! memory for it.
//!
//! Gets are dependent: each answer determines the next key, so the processor cannot overlap two
//! gets. They are timed by the processor time of this thread, in chunks whose median counts: the
//! page cache is warm, every store reads on the calling thread, and other work on the machine is
//! excluded. The elapsed time is reported beside it.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use torc_store::{SliceStats, Store};

use super::engine::Engine;
use super::say;
use super::subject::{self, Subject};
use super::torc::{get_hashed, located};
use crate::process::{self, Resident};
use crate::records::{self, Random};
use crate::stats;

/// Keys generated, then read; few, so that they do not count as the store's memory.
const CHUNK: usize = 4_096;
/// Chunks read, of present and of absent keys.
const CHUNKS: usize = 64;
/// Keys per batched get.
const BATCH: usize = 100;
/// Records read before anything is timed, after all files were read once: caches are then as full
/// as they get, and mapped pages are in the page tables.
const WARMING: u64 = 3_000_000;

/// Opens a filled store, reads it, and reports the figures. The store stays open and is leaked: the
/// parent kills this process.
pub(super) fn read(subject: Subject, dir: &Path, records: u64) -> Result<()> {
    let before = process::resident(std::process::id())?;
    let started = Instant::now();
    let store = subject::open(subject, dir)?;
    let first = store.get(&records::key(0))?;
    let opening = started.elapsed().as_secs_f64();
    ensure!(first.is_some(), "record 0 is not there after opening");
    say("open_after_kill_9", opening)?;
    warm(&*store, dir, records)?;
    for (keys, names) in [
        (Keys::Present(records), HITS),
        (Keys::Absent(records), MISSES),
    ] {
        tell_of_gets(&*store, keys, &names)?;
    }
    let after = process::resident(std::process::id())?;
    tell_of_memory(before, after, records)?;
    if let Some(torc) = store.torc() {
        tell_of_index(&torc.stats().sliced)?;
    }
    std::mem::forget(store);
    Ok(())
}

/// The requested keys.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// Any of the first records, up to this number.
    Present(u64),
    /// Any key beyond them.
    Absent(u64),
}

impl Keys {
    fn chunk(self, random: &mut Random) -> Vec<Vec<u8>> {
        let mut index = || match self {
            Self::Present(records) => random.below(records),
            Self::Absent(records) => records + random.below(1 << 30),
        };
        (0..CHUNK).map(|_| records::key(index())).collect()
    }

    const fn found(self, asked: usize) -> usize {
        match self {
            Self::Present(_) => asked,
            Self::Absent(_) => 0,
        }
    }
}

/// The names of the figures.
struct Names {
    get: &'static str,
    elapsed: &'static str,
    hashed: &'static str,
    batched: &'static str,
    reads: &'static str,
}

const HITS: Names = Names {
    get: "get",
    elapsed: "get_elapsed",
    hashed: "get_with_digest",
    batched: "get_in_batch",
    reads: "reads_per_hit",
};
const MISSES: Names = Names {
    get: "get_of_absent",
    elapsed: "get_of_absent_elapsed",
    hashed: "get_of_absent_with_digest",
    batched: "get_of_absent_in_batch",
    reads: "reads_per_miss",
};

fn warm(store: &dyn Engine, dir: &Path, records: u64) -> Result<()> {
    read_files(dir)?;
    let mut random = Random::of(11);
    for _ in 0..records.min(WARMING) {
        let key = records::key(random.below(records));
        ensure!(store.get(&key)?.is_some(), "a record is not there");
    }
    Ok(())
}

/// Reads all files of a directory once, so that the system has them in memory, even those that it
/// has evicted since they were written.
fn read_files(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            read_files(&path)?;
        } else {
            std::io::copy(&mut std::fs::File::open(&path)?, &mut std::io::sink())?;
        }
    }
    Ok(())
}

fn tell_of_gets(store: &dyn Engine, keys: Keys, names: &Names) -> Result<()> {
    let (cpu, elapsed) = time(keys, &|chunk| single(chunk, |at| store.get(&chunk[at])))?;
    say(names.get, cpu)?;
    say(names.elapsed, elapsed)?;
    let (cpu, _) = time(keys, &|chunk| batched(store, chunk))?;
    say(names.batched, cpu)?;
    let Some(torc) = store.torc() else {
        return Ok(());
    };
    let before = torc.stats().sliced;
    say(names.hashed, hashed(torc, keys)?)?;
    let after = torc.stats().sliced;
    let gets = (after.gets - before.gets) as f64;
    say(
        names.reads,
        (after.record_reads - before.record_reads) as f64 / gets,
    )
}

/// Processes chunks of keys: nanoseconds per key of processor time and of elapsed time, each the
/// median of the chunks.
fn time(keys: Keys, work: &dyn Fn(&[Vec<u8>]) -> Result<usize>) -> Result<(f64, f64)> {
    let mut random = Random::of(3);
    let (mut spent, mut took) = (Vec::new(), Vec::new());
    for _ in 0..CHUNKS {
        let chunk = keys.chunk(&mut random);
        let (begun, started) = (process::cpu_time_of_this_thread(), Instant::now());
        let found = work(&chunk)?;
        took.push(started.elapsed().as_secs_f64());
        spent.push(process::cpu_time_since(begun).as_secs_f64());
        let expected = keys.found(CHUNK);
        ensure!(
            found == expected,
            "{found} of {CHUNK} keys were found, not {expected}"
        );
    }
    let each = |values: &[f64]| stats::median(values).unwrap_or(0.0) * 1e9 / CHUNK as f64;
    Ok((each(&spent), each(&took)))
}

/// Gets one key after the other; returns how many were found.
fn single(chunk: &[Vec<u8>], get: impl Fn(usize) -> Result<Option<usize>>) -> Result<usize> {
    let (mut found, mut answer) = (0, 0);
    for at in 0..chunk.len() {
        // No value is that long, so the next key is the following one, but only the answer shows
        // that.
        let at = at + (answer >> 32);
        let len = get(at)?;
        found += usize::from(len.is_some());
        answer = len.unwrap_or(0);
    }
    Ok(found)
}

fn batched(store: &dyn Engine, chunk: &[Vec<u8>]) -> Result<usize> {
    let keys: Vec<&[u8]> = chunk.iter().map(|key| &**key).collect();
    let mut found = 0;
    for keys in keys.chunks(BATCH) {
        found += store.get_many(keys)?;
    }
    Ok(found)
}

/// Gets with a known digest.
fn hashed(store: &Store, keys: Keys) -> Result<f64> {
    let mut random = Random::of(4);
    let mut spent = Vec::new();
    for _ in 0..CHUNKS {
        let chunk = keys.chunk(&mut random);
        let places: Vec<_> = chunk.iter().map(|key| located(key)).collect();
        let begun = process::cpu_time_of_this_thread();
        let found = single(&chunk, |at| get_hashed(store, places[at]))?;
        spent.push(process::cpu_time_since(begun).as_secs_f64());
        ensure!(found == keys.found(CHUNK), "{found} keys were found");
    }
    Ok(stats::median(&spent).unwrap_or(0.0) * 1e9 / CHUNK as f64)
}

fn tell_of_memory(before: Resident, after: Resident, records: u64) -> Result<()> {
    let per_record = |after: u64, before: u64| after.saturating_sub(before) as f64 / records as f64;
    let all = per_record(after.bytes, before.bytes);
    let anonymous = per_record(after.anonymous_bytes, before.anonymous_bytes);
    say("ram_per_record", all)?;
    say("anonymous_ram_per_record", anonymous)?;
    say("mapped_page_cache_per_record", (all - anonymous).max(0.0))
}

fn tell_of_index(sliced: &SliceStats) -> Result<()> {
    let per_key = |bytes: u64| bytes as f64 / sliced.keys.max(1) as f64;
    let parts = [
        ("index_headers", sliced.header_bytes),
        ("index_gates", sliced.gate_bytes),
        ("index_mphf", sliced.mphf_bytes),
        ("index_offsets", sliced.offset_bytes),
    ];
    for (name, bytes) in parts {
        say(name, per_key(bytes))?;
    }
    say("index", per_key(parts.iter().map(|(_, bytes)| bytes).sum()))?;
    say("slices_per_partition", sliced.most_slices as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_a_chunk_is_asked_for_once_and_in_order() {
        let chunk = vec![Vec::new(); 5];
        let asked = std::cell::RefCell::new(Vec::new());
        let found = single(&chunk, |at| {
            asked.borrow_mut().push(at);
            Ok((at != 3).then_some(80))
        });
        assert_eq!(found.unwrap(), 4);
        assert_eq!(*asked.borrow(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn absent_keys_are_those_of_no_record() {
        let mut random = Random::of(1);
        let present: std::collections::HashSet<_> = (0..2_000).map(records::key).collect();
        let absent = Keys::Absent(2_000).chunk(&mut random);
        assert!(absent.iter().all(|key| !present.contains(key)));
        let there = Keys::Present(2_000).chunk(&mut random);
        assert!(there.iter().all(|key| present.contains(key)));
    }
}
