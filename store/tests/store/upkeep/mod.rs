//! Flushes and compactions: what continues meanwhile, what runs automatically, and what waits for
//! what.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

mod digests;
mod due;
mod faults;
mod full;
mod meanwhile;
mod memory;
mod sealed;

use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{DIR, Model, block_on, open, options, put, tombstone};
use torc_store::testing::{CrashFs, WaitingStore};
use torc_store::{Store, StoreError, StoreOptions};

fn write(store: &Store, key: u64, time: u64) -> Result<(), StoreError> {
    block_on(store.write(put(key, time, vec![7; 100])))
}

fn open_with(fs: &CrashFs, change: impl FnOnce(&mut StoreOptions)) -> Store {
    let mut options = options(DIR);
    change(&mut options);
    Store::open_with(options, Arc::new(fs.clone())).unwrap().0
}

fn segments(fs: &CrashFs) -> Vec<PathBuf> {
    let mut files = fs.files();
    files.retain(|path| path.to_string_lossy().contains("segment-"));
    files
}

/// A store with several slices in each partition, and its expected content.
fn with_slices(fs: &CrashFs, rounds: u64) -> (Store, Model) {
    let (store, _) = open(fs).unwrap();
    let mut model = Model::default();
    for round in 1..=rounds {
        for key in (0..20).filter(|key| key % round == 0) {
            let record = if key % 7 == round {
                tombstone(key, round)
            } else {
                put(key, round, format!("{key} in round {round}"))
            };
            model.write(record.clone());
            block_on(store.write(record)).unwrap();
        }
        block_on(store.flush()).unwrap();
    }
    (store, model)
}
