//! Flushes and compactions without disk space.

use std::io::ErrorKind;

use super::{segments, with_slices, write};
use crate::common::{block_on, open};
use torc_store::testing::{Call, CrashFs, Survives};
use torc_store::{StoreError, StoreHealth};

#[test]
fn a_flush_that_finds_no_space_leaves_the_store_as_it_was() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    for key in 0..20 {
        write(&store, key, 10).unwrap();
    }
    for name in ["segment-", "MANIFEST"] {
        fs.fail_next(Call::Write, name, ErrorKind::StorageFull);
        assert!(matches!(
            block_on(store.flush()),
            Err(StoreError::OutOfSpace)
        ));
        assert!(fs.is_used_up(), "{name}");
        let has_rubbish = fs.files().iter().any(|path| {
            let path = path.to_string_lossy();
            path.contains("segment-") || path.contains("tmp")
        });
        assert!(!has_rubbish, "{:?}", fs.files());
    }
    assert_eq!(
        store.health(),
        StoreHealth::Ok,
        "writes have a segment to go to"
    );
    assert_eq!(store.stats().flush_failures, 2);
    assert_eq!(store.stats().sliced.slices, 0);
    write(&store, 1, 20).unwrap();
    let (store, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!((recovery.records, recovery.log_entries_replayed), (20, 21));
    block_on(store.flush()).unwrap();
    assert_eq!(
        store.stats().memtable_bytes,
        0,
        "the next attempt finds space"
    );
}

#[test]
fn a_compaction_that_finds_no_space_leaves_the_store_as_it_was() {
    let fs = CrashFs::new();
    let (store, model) = with_slices(&fs, 3);
    let (slices, files) = (store.stats().sliced.slices, segments(&fs));
    for name in ["segment-", "MANIFEST"] {
        fs.fail_next(Call::Write, name, ErrorKind::StorageFull);
        assert!(matches!(
            block_on(store.compact()),
            Err(StoreError::OutOfSpace)
        ));
        assert!(fs.is_used_up(), "{name}");
        assert_eq!(
            (store.stats().sliced.slices, segments(&fs)),
            (slices, files.clone())
        );
        model.check(&store, name);
    }
    assert_eq!(store.stats().compaction_failures, 2);
    model.check(
        &open(&fs.image(Survives::Nothing)).unwrap().0,
        "after a crash",
    );
    let report = block_on(store.compact()).unwrap();
    assert_eq!(report.slices_read, slices, "the next attempt finds space");
    assert_eq!(store.stats().sliced.most_slices, 1);
    assert_eq!(segments(&fs).len(), 1, "the inputs are gone from the disk");
    model.check(&store, "compacted");
}
