//! `kill -9` in a loop, with a real disk.
//!
//! The test starts itself as a child process, which writes and prints what was acknowledged. After
//! a random number of lines, the child is killed. Then the store is opened: all acknowledged writes
//! must be there, and nothing that was not issued. `TORC_KILL_CYCLES` sets the number of cycles, 6
//! by default.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{block_on, options, partition_of, put};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use torc_record::{Record, State};
use torc_store::testing::WaitingStore;
use torc_store::{Store, StoreOptions};

const CHILD_DIR: &str = "TORC_KILL_CHILD_DIR";
const CHILD_CYCLE: &str = "TORC_KILL_CHILD_CYCLE";
const WRITERS: u64 = 8;
const KEYS_A_WRITER: u64 = 40;

/// Frequent flushes and compactions, so that kills hit them.
fn kill_options(dir: &Path) -> StoreOptions {
    let mut options = options(dir);
    options.log_segment_bytes = 64 << 10;
    options.flush_log_bytes = 128 << 10;
    options.auto_compact = true;
    options.most_slices = 2;
    options
}

/// The value of a key at a time, from which a reader can tell that it was issued.
fn issued(key: u64, time: u64) -> Record {
    put(
        key,
        time,
        format!("{key} at {time} {}", "x".repeat((time % 300) as usize)),
    )
}

/// Writes forever; each writer has its own keys, with rising times.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD_DIR) else {
        return;
    };
    let cycle: u64 = std::env::var(CHILD_CYCLE).unwrap().parse().unwrap();
    let (store, _) = Store::open(kill_options(Path::new(&dir))).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build();
    runtime.unwrap().block_on(async {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write_for_ever(store.clone(), writer, cycle)))
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

async fn write_for_ever(store: Store, writer: u64, cycle: u64) {
    for step in 1.. {
        let key = writer * KEYS_A_WRITER + step % KEYS_A_WRITER;
        let time = cycle * 1_000_000 + step;
        store.write(issued(key, time)).await.unwrap();
        let line = format!("{key} {time}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    }
}

/// Runs a child until this many acknowledgements, and kills it. Returns its output.
fn run_and_kill(dir: &Path, cycle: u64, acknowledgements: usize) -> Vec<(u64, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .env(CHILD_CYCLE, cycle.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut take = |limit: usize| {
        for line in lines.by_ref() {
            let line = line.unwrap();
            let numbers = line.split_once(' ').and_then(|(key, time)| {
                Some((key.parse::<u64>().ok()?, time.parse::<u64>().ok()?))
            });
            said.extend(numbers);
            if said.len() >= limit {
                break;
            }
        }
    };
    take(acknowledgements);
    child.kill().unwrap();
    child.wait().unwrap();
    take(usize::MAX);
    assert!(said.len() >= acknowledgements, "the child ended by itself");
    said
}

/// Opens and checks the store; returns its content, key to time, and the number of sealed records.
fn check(dir: &Path, acknowledged: &BTreeMap<u64, u64>, cycle: u64) -> (BTreeMap<u64, u64>, u64) {
    let (store, recovery) = Store::open(kill_options(dir)).unwrap();
    let mut held = BTreeMap::new();
    for key in 0..WRITERS * KEYS_A_WRITER {
        let found = crate::common::get(&store, key).unwrap();
        let time = found.as_ref().map_or(0, |record| record.ballot.time.0);
        let acknowledged = acknowledged.get(&key).copied().unwrap_or(0);
        assert!(
            time >= acknowledged,
            "cycle {cycle}: {key} is at {time}, not {acknowledged}"
        );
        if let Some(found) = found {
            assert_eq!(found, issued(key, time), "cycle {cycle}: as it was issued");
            assert!(matches!(found.state, State::Value { .. }));
            held.insert(key, time);
        }
    }
    assert_eq!(recovery.records, held.len() as u64);
    crate::common::check_summaries(&store, &format!("cycle {cycle}"));
    // Sometimes a partition is dropped, and must stay dropped.
    if cycle.is_multiple_of(3) {
        let home = partition_of(&issued(0, 1));
        block_on(store.drop_partition(home)).unwrap();
        held.retain(|key, _| partition_of(&issued(*key, 1)) != home);
    }
    (held, recovery.sealed_records)
}

#[test]
fn kill_9_loses_nothing_acknowledged() {
    let cycles: u64 = std::env::var("TORC_KILL_CYCLES").map_or(6, |cycles| cycles.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut dice = StdRng::seed_from_u64(7);
    let mut expected = BTreeMap::new();
    let mut ever_sealed = 0;
    for cycle in 1..=cycles {
        let acknowledgements = dice.random_range(1..3000);
        for (key, time) in run_and_kill(dir.path(), cycle, acknowledgements) {
            let newest = expected.entry(key).or_insert(0);
            *newest = time.max(*newest);
        }
        let (held, sealed) = check(dir.path(), &expected, cycle);
        expected = held;
        ever_sealed += sealed;
    }
    assert!(ever_sealed > 0, "no kill came after a flush");
}

/// A node's log has its final length from the start, so the truncated part is longer than a single
/// read.
#[test]
fn a_log_that_was_not_closed_opens_however_long_it_was_made() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let long = |dir: &Path| {
        let mut options = options(dir);
        options.log_segment_bytes = 16 << 20;
        options
    };
    let (store, _) = Store::open(long(dir.path())).unwrap();
    block_on(store.write(put(1, 1, "v"))).unwrap();
    // As a killed process leaves it.
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let (_, recovery) = Store::open(long(copy.path())).unwrap();
    assert_eq!(recovery.records, 1);
}
