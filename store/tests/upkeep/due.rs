//! When flushes and compactions run automatically.

use crate::common::{block_on, get, open, partition_of, put};
use crate::{open_with, write};
use torc_store::testing::CrashFs;

#[test]
fn flushes_happen_by_themselves_when_enough_log_has_gathered() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.flush_log_bytes = 20_000);
    let mut key = 0;
    while store.stats().flushes < 3 {
        key += 1;
        write(&store, key % 10, key).unwrap();
    }
    assert!(key > 100, "a flush every 20 kB, not {key} writes for three");
    block_on(store.close()).unwrap();
    let (_, recovery) = open(&fs).unwrap();
    assert_eq!(recovery.records, 10);
}

#[test]
fn flushes_happen_by_themselves_when_the_memtable_is_half_full_and_not_more_often() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.memtable_limit_bytes = 100_000);
    let mut key = 0;
    while store.stats().flushes < 3 {
        key += 1;
        write(&store, key, 10).unwrap();
    }
    // About 210 bytes per record of the memtable: 50,000 bytes are 235 of them.
    assert!(key > 600, "three halves of the memtable, not {key} records");
    assert_eq!(store.stats().flush_waits, 0, "the other half was enough");
}

#[test]
fn compactions_happen_by_themselves_and_bound_the_slices_of_a_partition() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| {
        options.auto_compact = true;
        options.most_slices = 3;
    });
    for time in 1..20 {
        for key in 0..10 {
            write(&store, key, time).unwrap();
        }
        block_on(store.flush()).unwrap();
        while store.stats().sliced.most_slices > 3 {
            std::thread::yield_now();
        }
    }
    assert!(store.stats().compactions > 0);
    for key in 0..10 {
        assert_eq!(get(&store, key).unwrap().unwrap().ballot.time.0, 19);
    }
}

#[test]
fn a_partition_that_is_held_is_not_compacted() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| {
        options.auto_compact = true;
        options.most_slices = 2;
    });
    let (held, other) = (put(1, 1, b""), put(2, 1, b""));
    let (home, elsewhere) = (partition_of(&held), partition_of(&other));
    assert_ne!(home, elsewhere);
    let hold = store.hold(home);
    let also = store.hold(home);
    for time in 1..8 {
        write(&store, 1, time).unwrap();
        write(&store, 2, time).unwrap();
        block_on(store.flush()).unwrap();
    }
    let count = |partition| store.sealed(partition).unwrap().slices.len();
    while count(elsewhere) > 2 {
        std::thread::yield_now();
    }
    block_on(store.compact()).unwrap();
    assert_eq!(count(elsewhere), 1);
    drop(hold);
    assert_eq!(count(home), 7, "the second hold still counts");
    drop(also);
    write(&store, 2, 9).unwrap();
    block_on(store.flush()).unwrap();
    while count(home) > 2 {
        std::thread::yield_now();
    }
}
