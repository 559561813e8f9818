//! A process without free descriptors: others took them, for example clients.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::common::{block_on, get, open, options, put};
use torc_store::testing::{CrashFs, Survives, WaitingStore};
use torc_store::{Store, StoreHealth};

const CHILD_DIR: &str = "TORC_DESCRIPTORS_CHILD_DIR";

/// The usual work of a store: it rotates its log, flushes, compacts, and sets metadata.
fn work(store: &Store, from: u64) {
    for key in from..from + 40 {
        block_on(store.write(put(key, 10, vec![7; 500]))).unwrap();
    }
    block_on(store.flush()).unwrap();
    block_on(store.compact()).unwrap();
    store.meta_set("node", b"name").unwrap();
    assert_eq!(store.meta_get("node").unwrap().unwrap(), b"name");
    for key in from..from + 40 {
        assert!(get(store, key).unwrap().is_some(), "{key}");
    }
}

#[test]
fn a_store_works_on_when_others_have_taken_every_descriptor() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    work(&store, 0);
    fs.set_free_descriptors(Some(0));
    for round in 1..10 {
        work(&store, round * 100);
    }
    fs.set_free_descriptors(None);
    work(&store, 2000);
    assert_eq!(store.health(), StoreHealth::Ok);
    drop(store);
    let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.records, 11 * 40);
}

#[test]
fn without_even_a_spare_one_writes_go_on_and_nothing_stops() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    fs.set_free_descriptors(Some(0));
    // Others take each freed descriptor first.
    fs.steal_descriptors(usize::MAX);
    assert!(block_on(store.flush()).is_err());
    assert!(store.meta_set("node", b"name").is_err());
    for key in 0..40 {
        block_on(store.write(put(key, 10, vec![7; 500]))).unwrap();
    }
    assert_eq!(store.stats().log_segments, 1, "it grows");
    assert_eq!(store.health(), StoreHealth::Ok);
    let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.records, 40);

    fs.steal_descriptors(0);
    fs.set_free_descriptors(None);
    work(&store, 100);
}

/// Run by the test below, under a low limit.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD_DIR) else {
        return;
    };
    let (store, _) = Store::open(options(Path::new(&dir))).unwrap();
    work(&store, 0);
    let mut others = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        others.push(file);
    }
    for round in 1..10 {
        work(&store, round * 100);
    }
    drop(others);
    block_on(store.close()).unwrap();
    let (_, recovery) = Store::open(options(Path::new(&dir))).unwrap();
    assert_eq!(recovery.records, 10 * 40);
}

#[test]
fn so_does_a_process_at_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    let mut child = Command::new("sh");
    child.args([
        "-c",
        "ulimit -n 60 && exec \"$0\" --exact descriptors::child --nocapture",
    ]);
    child.arg(test).env(CHILD_DIR, dir.path());
    let ended = child.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
}
