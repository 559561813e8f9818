//! Flushes, compactions and ingests return the freed memory to the system.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use torc_store::testing::{CrashFs, WaitingStore};
use torc_store::{SealedSlice, Store};

use crate::common::{CLUSTER, DIR, block_on, options, partition_of, put};

static CALLERS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn note_caller() {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default().to_owned();
    CALLERS.lock().unwrap().insert(name);
}

#[test]
fn every_thread_of_a_flush_a_compaction_or_an_ingest_asks_the_allocator_to_release_memory() {
    let mut options = options(DIR);
    options.release_memory = note_caller;
    let (store, _) = Store::open_with(options, Arc::new(CrashFs::new())).unwrap();
    let here = std::thread::current().name().unwrap().to_owned();
    assert_eq!(*CALLERS.lock().unwrap(), BTreeSet::from([here.clone()]));
    block_on(store.write(put(1, 1, b"v"))).unwrap();
    block_on(store.flush()).unwrap();
    block_on(store.compact()).unwrap();
    let home = partition_of(&put(1, 1, b"v"));
    let sealed = store.sealed(home).unwrap();
    let infos = sealed.slices.iter().map(SealedSlice::info);
    let infos: Vec<_> = infos.map(Result::unwrap).collect();
    let mut ingest = store.ingest(home, &infos).unwrap();
    for slice in &sealed.slices {
        let bytes: Bytes = slice.read(0, 1 << 20).unwrap();
        ingest.write(bytes).unwrap();
    }
    ingest.verify(Some(&CLUSTER)).unwrap();
    block_on(ingest.publish()).unwrap();
    let all = [
        &*here,
        "torc-commit",
        "torc-compact",
        "torc-flush",
        "torc-ingest",
    ]
    .map(str::to_owned);
    let all = BTreeSet::from(all);
    while *CALLERS.lock().unwrap() != all {
        std::thread::yield_now();
    }
}
