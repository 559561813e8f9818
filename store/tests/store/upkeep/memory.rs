//! A flush returns the freed memory to the system.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use torc_store::Store;
use torc_store::testing::{CrashFs, WaitingStore};

use crate::common::{DIR, block_on, options, put};

static CALLERS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn note_caller() {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default().to_owned();
    CALLERS.lock().unwrap().insert(name);
}

#[test]
fn every_thread_that_took_part_in_a_flush_or_a_compaction_asks_the_allocator_to_release_memory() {
    let mut options = options(DIR);
    options.release_memory = note_caller;
    let (store, _) = Store::open_with(options, Arc::new(CrashFs::new())).unwrap();
    let here = std::thread::current().name().unwrap().to_owned();
    assert_eq!(*CALLERS.lock().unwrap(), BTreeSet::from([here.clone()]));
    block_on(store.write(put(1, 1, b"v"))).unwrap();
    block_on(store.flush()).unwrap();
    block_on(store.compact()).unwrap();
    let all = [&*here, "torc-commit", "torc-compact", "torc-flush"].map(str::to_owned);
    let all = BTreeSet::from(all);
    while *CALLERS.lock().unwrap() != all {
        std::thread::yield_now();
    }
}
