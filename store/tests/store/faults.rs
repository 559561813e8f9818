//! Disks that fail, fill up, or are in use.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, block_on, fingerprint, get, open, options, partition_of, put};
use torc_record::Layer;
use torc_ring::{Partition, Partitions};
use torc_store::testing::{Call, CrashFs, Survives, WaitingStore};
use torc_store::{LogTail, Store, StoreError, StoreHealth, StoreOptions};

fn write(store: &Store, key: u64, time: u64) -> Result<(), StoreError> {
    block_on(store.write(put(key, time, vec![7; 100])))
}

#[test]
fn a_failed_sync_stops_the_store_for_good() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    write(&store, 1, 1).unwrap();
    fs.fail_next(Call::Sync, "log-", ErrorKind::Other);
    let failed = write(&store, 2, 2).unwrap_err();
    assert!(failed.outcome_unknown(), "{failed}");
    assert!(fs.is_used_up(), "the disk would be fine again");

    for refused in [
        write(&store, 3, 3).unwrap_err(),
        get(&store, 1).unwrap_err(),
        block_on(store.flush()).unwrap_err(),
        block_on(store.compact()).unwrap_err(),
        block_on(store.drop_partition(Partition(0))).unwrap_err(),
        store.meta_set("node", b"x").unwrap_err(),
    ] {
        assert!(matches!(refused, StoreError::Failed { .. }), "{refused}");
    }
    assert!(matches!(store.health(), StoreHealth::Failed(why) if why.contains("cannot sync")));
    assert!(block_on(store.close()).is_err());

    let (store, _) = open(&fs.image(Survives::Nothing)).unwrap();
    assert!(get(&store, 1).unwrap().is_some(), "acknowledged before");
    assert!(get(&store, 2).unwrap().is_none(), "never acknowledged");
}

#[test]
fn what_a_failed_sync_left_in_the_cache_is_written_again_before_it_is_served() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    write(&store, 1, 1).unwrap();
    fs.fail_next(Call::Sync, "log-", ErrorKind::Other);
    assert!(write(&store, 2, 2).unwrap_err().outcome_unknown());
    drop(store);
    // The process restarts; the machine's memory still has data that the disk never got.
    let fs = fs.image(Survives::Everything);
    let (store, recovery) = open(&fs).unwrap();
    assert_eq!(recovery.log_tail, LogTail::Whole);
    assert!(get(&store, 2).unwrap().is_some(), "served");
    write(&store, 3, 3).unwrap();
    for survives in [Survives::Nothing, Survives::Some(5)] {
        let (store, _) = open(&fs.image(survives)).unwrap();
        for key in 1..=3 {
            assert!(get(&store, key).unwrap().is_some(), "{key}, {survives:?}");
        }
    }
}

#[test]
fn a_log_that_was_closed_with_a_sync_that_failed_is_written_again_too() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    write(&store, 1, 1).unwrap();
    fs.fail_next(Call::Sync, "log-", ErrorKind::Other);
    assert!(block_on(store.close()).is_err());
    let fs = fs.image(Survives::Everything);
    let (store, _) = open(&fs).unwrap();
    write(&store, 2, 2).unwrap();
    let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.records, 2);
}

#[test]
fn a_failed_sync_of_a_flush_a_compaction_the_manifest_or_metadata_stops_the_store_too() {
    for (is_compaction, name) in [
        (false, "segment-"),
        (false, "MANIFEST"),
        (false, "log-"),
        (true, "segment-"),
        (true, "MANIFEST"),
    ] {
        let fs = CrashFs::new();
        let (store, _) = open(&fs).unwrap();
        write(&store, 1, 1).unwrap();
        if is_compaction {
            block_on(store.flush()).unwrap();
            write(&store, 1, 2).unwrap();
            block_on(store.flush()).unwrap();
        }
        fs.fail_next(Call::Sync, name, ErrorKind::Other);
        let failed = if is_compaction {
            block_on(store.compact()).err()
        } else {
            block_on(store.flush()).err()
        };
        assert!(matches!(failed, Some(StoreError::Failed { .. })), "{name}");
        assert!(matches!(store.health(), StoreHealth::Failed(_)), "{name}");
        drop(store);
        for survives in [Survives::Nothing, Survives::Everything, Survives::Some(3)] {
            let (store, _) = open(&fs.image(survives)).unwrap();
            assert!(get(&store, 1).unwrap().is_some(), "{name}");
        }
    }
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    fs.fail_next(Call::SyncDir, DIR, ErrorKind::Other);
    assert!(store.meta_set("node", b"x").is_err());
    assert!(matches!(store.health(), StoreHealth::Failed(_)));
}

#[test]
fn a_write_that_fails_for_another_reason_than_space_stops_the_store() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    write(&store, 1, 1).unwrap();
    fs.fail_next(Call::Write, "log-", ErrorKind::Other);
    assert!(matches!(
        write(&store, 2, 2),
        Err(StoreError::Failed { .. })
    ));
    drop(store);
    let (store, recovery) = open(&fs.image(Survives::Everything)).unwrap();
    assert!(
        matches!(recovery.log_tail, LogTail::Torn { bytes } if bytes > 0),
        "half of it was written"
    );
    assert_eq!(recovery.records, 1);
    assert!(get(&store, 2).unwrap().is_none());
}

#[test]
fn a_full_disk_refuses_writes_answers_reads_and_recovers() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    fs.set_capacity(Some(fs.used_bytes()));
    let mut taken = 0;
    let refused = loop {
        match write(&store, taken, 10 + taken) {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert!(taken > 5, "the reserved segment is used up first: {taken}");
    assert!(matches!(refused, StoreError::OutOfSpace), "{refused}");
    assert!(refused.is_retryable() && !refused.outcome_unknown());
    assert_eq!(store.health(), StoreHealth::OutOfSpace);
    assert_eq!(store.stats().free_bytes, Some(0));
    for key in 0..taken {
        assert!(get(&store, key).unwrap().is_some(), "reads go on");
    }
    assert!(get(&store, taken).unwrap().is_none());
    assert!(matches!(
        store.meta_set("node", b"x"),
        Err(StoreError::OutOfSpace)
    ));
    assert!(matches!(
        block_on(store.flush()),
        Err(StoreError::OutOfSpace)
    ));
    assert!(store.stats().space_refusals > 0);

    fs.set_capacity(None);
    write(&store, taken, 1000).unwrap();
    assert_eq!(store.health(), StoreHealth::Ok);
    store.meta_set("node", b"x").unwrap();
    block_on(store.flush()).unwrap();
    let before = fingerprint(&store);
    drop(store);
    let (store, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.records, taken + 1);
    assert_eq!(fingerprint(&store), before);
}

#[test]
fn a_store_on_a_full_disk_opens_and_can_be_read() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    for key in 0..20 {
        write(&store, key, 10).unwrap();
    }
    drop(store);
    for survives in [Survives::Nothing, Survives::Everything] {
        let fs = fs.image(survives);
        fs.set_capacity(Some(0));
        let (store, recovery) = open(&fs).unwrap();
        assert_eq!(recovery.records, 20);
        assert_eq!(store.health(), StoreHealth::OutOfSpace);
        assert!(get(&store, 7).unwrap().is_some());
        assert!(matches!(write(&store, 20, 10), Err(StoreError::OutOfSpace)));
        block_on(store.close()).unwrap();

        let (store, _) = open(&fs).unwrap();
        fs.set_capacity(None);
        write(&store, 20, 10).unwrap();
        assert_eq!(store.health(), StoreHealth::Ok);
        block_on(store.flush()).unwrap();
        drop(store);
        let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
        assert_eq!(recovery.records, 21);
    }
}

#[test]
fn a_write_cut_short_by_a_full_disk_leaves_nothing_behind() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    write(&store, 1, 1).unwrap();
    fs.fail_next(Call::Write, "log-", ErrorKind::StorageFull);
    let long = put(2, 2, vec![9; 1500]);
    assert!(matches!(
        block_on(store.write(long)),
        Err(StoreError::OutOfSpace)
    ));
    write(&store, 3, 3).unwrap();
    for survives in [Survives::Nothing, Survives::Everything] {
        let (store, _) = open(&fs.image(survives)).unwrap();
        assert!(get(&store, 1).unwrap().is_some());
        assert!(
            get(&store, 2).unwrap().is_none(),
            "refused, so it must not appear"
        );
        assert!(get(&store, 3).unwrap().is_some());
    }
}

#[test]
fn a_refused_write_does_not_come_back_even_if_what_is_missing_of_it_is_zeros() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    write(&store, 1, 1).unwrap();
    fs.fail_next(Call::Write, "log-", ErrorKind::StorageFull);
    let zeros = put(2, 2, vec![0; 2000]);
    assert!(matches!(
        block_on(store.write(zeros)),
        Err(StoreError::OutOfSpace)
    ));
    for survives in [Survives::Nothing, Survives::Everything] {
        let (_, recovery) = open(&fs.image(survives)).unwrap();
        assert_eq!(recovery.records, 1, "{survives:?}");
    }
}

#[test]
fn a_manifest_that_may_be_in_place_keeps_its_files() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    for key in 0..20 {
        write(&store, key, 10).unwrap();
    }
    let disk = fs.clone();
    fs.before(Call::Rename, "MANIFEST", 0, move || {
        disk.fail_next(Call::SyncDir, DIR, ErrorKind::Other);
    });
    assert!(block_on(store.flush()).is_err());
    assert!(matches!(store.health(), StoreHealth::Failed(_)));
    drop(store);
    for survives in [Survives::Nothing, Survives::Everything, Survives::Some(1)] {
        let (_, recovery) = open(&fs.image(survives)).unwrap();
        assert_eq!(recovery.records, 20, "{survives:?}");
    }
}

#[test]
fn a_full_disk_is_noticed_to_have_room_again_without_a_write() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    fs.fail_next(Call::Write, "log-", ErrorKind::StorageFull);
    assert!(write(&store, 1, 1).is_err());
    assert_eq!(store.health(), StoreHealth::OutOfSpace);
    while store.health() == StoreHealth::OutOfSpace {
        std::thread::yield_now();
    }
    assert_eq!(store.health(), StoreHealth::Ok);
    write(&store, 1, 1).unwrap();
}

#[test]
fn the_highest_time_ever_stored_survives_the_record_that_had_it() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let record = put(1, 777, b"x");
    block_on(store.write(record.clone())).unwrap();
    block_on(store.drop_partition(partition_of(&record))).unwrap();
    block_on(store.flush()).unwrap();
    block_on(store.close()).unwrap();
    let (_, recovery) = open(&fs).unwrap();
    assert_eq!((recovery.records, recovery.highest_time.0), (0, 777));
}

#[test]
fn the_length_of_the_longest_record_is_known_from_the_memtable_from_slices_and_after_a_restart() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    assert_eq!(store.longest_record(), 0);
    let long = put(1, 5, vec![7; 100_000]);
    let len = long.key.as_bytes().len() + 100_000;
    block_on(store.write(put(2, 6, b"x"))).unwrap();
    block_on(store.write(long)).unwrap();
    assert_eq!(store.longest_record(), len);
    block_on(store.close()).unwrap();
    let (store, _) = open(&fs).unwrap();
    assert_eq!(store.longest_record(), len, "from the log");
    block_on(store.flush()).unwrap();
    block_on(store.close()).unwrap();
    let (store, _) = open(&fs).unwrap();
    let bound = (len..2 * len).contains(&store.longest_record());
    assert!(bound, "from a slice: {}", store.longest_record());
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (store, recovery) = Store::open(options(dir.path())).unwrap();
    assert!(recovery.created);
    let second = Store::open(options(dir.path())).unwrap_err();
    assert!(matches!(second, StoreError::Locked { .. }), "{second}");
    let clone = store.clone();
    block_on(store.close()).unwrap();
    assert!(matches!(get(&clone, 1), Err(StoreError::Closed)));
    assert!(matches!(write(&clone, 1, 1), Err(StoreError::Closed)));
    assert!(
        block_on(clone.clone().close()).is_ok(),
        "closing again is fine"
    );
    let (store, recovery) = Store::open(options(dir.path())).unwrap();
    assert!(!recovery.created);
    drop(store);
    let (store, _) =
        Store::open(options(dir.path())).unwrap_or_else(|error| panic!("dropped: {error}"));
    let closing = store.close();
    drop(closing);
    Store::open(options(dir.path())).unwrap_or_else(|error| panic!("given up: {error}"));
}

#[test]
fn a_newer_format_and_another_number_of_partitions_are_refused() {
    let fs = CrashFs::new();
    drop(open(&fs).unwrap());
    let mut other = options(DIR);
    other.partitions = Partitions::new(16).unwrap();
    let refused = Store::open_with(other, Arc::new(fs.clone())).unwrap_err();
    assert!(matches!(
        refused,
        StoreError::PartitionsDiffer {
            found: 8,
            wanted: 16,
            ..
        }
    ));
    fs.put_file(&Path::new(DIR).join("FORMAT"), b"torc-store\nformat 9\n");
    let refused = open(&fs).unwrap_err();
    assert!(matches!(
        refused,
        StoreError::NewerFormat {
            found: 9,
            supported: 5,
            ..
        }
    ));
}

#[test]
fn settings_out_of_range_are_refused() {
    for change in [
        (|options| options.log_segment_bytes = 100) as fn(&mut StoreOptions),
        |options| options.most_slices = 1,
        |options| options.most_slices = 65,
        |options| options.gate_rate = 0.9,
        |options| options.gate_rate = f64::NAN,
        |options| options.flush_bytes_per_s = 1,
        |options| options.compact_bytes_per_s = 1,
    ] {
        let mut options = options(DIR);
        change(&mut options);
        let refused = Store::open_with(options, Arc::new(CrashFs::new())).unwrap_err();
        assert!(matches!(refused, StoreError::BadOption { .. }), "{refused}");
    }
}

#[test]
fn restarts_without_writes_do_not_pile_up_segments() {
    let fs = CrashFs::new();
    for _ in 0..10 {
        let (store, _) = open(&fs).unwrap();
        block_on(store.close()).unwrap();
        drop(open(&fs.image(Survives::Nothing)).unwrap());
    }
    let (store, _) = open(&fs).unwrap();
    assert_eq!(store.stats().log_segments, 1);
    assert!(fs.files().len() <= 4, "{:?}", fs.files());
}

#[test]
fn a_batch_longer_than_a_batch_of_the_log_is_stored_whole() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let records: Vec<_> = (0..12).map(|key| put(key, 1, vec![1; 1 << 20])).collect();
    block_on(store.write_batch(records)).unwrap();
    block_on(store.write_batch(Vec::new())).unwrap();
    assert_eq!(store.stats().records, 12);
    assert!(store.stats().batches >= 3);
    drop(store);
    let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.records, 12);
}

#[test]
fn partitions_that_do_not_exist_are_refused() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let none = Partition(8 * Layer::COUNT as u32);
    assert!(matches!(
        store.scan(none, None, torc_store::ScanLimits::default()),
        Err(StoreError::UnknownPartition { count: 8, .. })
    ));
    assert!(block_on(store.drop_partition(none)).is_err());
    assert_eq!(store.summary(none), torc_store::PartitionSummary::default());
    assert_eq!(
        store.partitions(),
        [],
        "nothing was asked of any that exists"
    );
}
