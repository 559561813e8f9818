//! Unreadable sectors, and records outside the page cache: an unreadable place damages only its own
//! records; it never ends the process and never looks like "absent".

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::common::{
    DIR, block_on, check_summaries, get, lost, open, options, partition_of, put, tombstone,
};
use torc_record::{Locator, Record};
use torc_store::testing::{CrashFs, WaitingStore};
use torc_store::{ScanLimits, Store, StoreError};

fn path() -> PathBuf {
    Path::new(DIR).join("segment-00000000000000000001")
}

fn sealed() -> (CrashFs, Store, Vec<Record>) {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let all: Vec<_> = (0..200)
        .map(|key| put(key, 10, format!("the value of {key:03}")))
        .collect();
    block_on(store.write_batch(all.clone())).unwrap();
    block_on(store.flush()).unwrap();
    (fs, store, all)
}

/// The range of these bytes in the segment.
fn range_of(fs: &CrashFs, needle: &[u8]) -> Range<u64> {
    let bytes = fs.file(&path()).unwrap();
    let at = bytes
        .windows(needle.len())
        .position(|bytes| bytes == needle);
    let at = at.unwrap() as u64;
    at..at + needle.len() as u64
}

fn is_damage<T>(outcome: &Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Damaged { .. }))
}

fn reads(records: &[Record]) -> Vec<Locator<&[u8]>> {
    records.iter().map(Record::locator).collect()
}

#[test]
fn a_sector_that_cannot_be_read_is_damage_of_its_record_and_of_no_other() {
    let (fs, store, all) = sealed();
    fs.break_sectors(&path(), range_of(&fs, b"the value of 007"));
    let home = partition_of(&all[7]);
    for record in &all {
        let found = store.get(record.locator());
        let key = record.key.as_bytes();
        match found {
            Ok(found) => assert_eq!(found.as_ref(), Some(record)),
            Err(error) => assert!(key == b"key-7" && is_damage::<()>(&Err(error))),
        }
    }
    assert!(is_damage(&get(&store, 7)), "never absent");
    let batch = store.get_batch(&reads(&all));
    let refused: Vec<usize> = (0..all.len()).filter(|at| batch[*at].is_err()).collect();
    assert_eq!(refused, [7]);
    assert!(is_damage(&store.scan(home, None, ScanLimits::default())));
    let page = store.scan_readable(home, None, ScanLimits::default());
    let page = page.unwrap();
    let others = all.iter().filter(|one| partition_of(one) == home).count() - 1;
    assert_eq!((page.page.records.len(), page.is_partial), (others, true));
    let places = lost(&store, home);
    assert!(matches!(&places[..], [place] if place.slot.is_some()));

    // It is repaired like any other damage.
    let newer = put(7, 20, "written again");
    block_on(store.write(newer.clone())).unwrap();
    assert_eq!(get(&store, 7).unwrap().as_ref(), Some(&newer));
    store.mark_repaired(&places);
    block_on(store.flush()).unwrap();
    block_on(store.compact()).unwrap();
    assert!(store.damage(home).is_none());
    assert_eq!(get(&store, 7).unwrap(), Some(newer));
    check_summaries(&store, "healed");
}

#[test]
fn an_index_that_cannot_be_read_on_opening_is_damage_of_its_slice() {
    let (fs, store, all) = sealed();
    block_on(store.close()).unwrap();
    let slice = range_of(&fs, b"TSLC").start;
    for (bad, lost) in [
        // The segment's header and its table are not needed.
        (0..64, 0),
        (fs.file(&path()).unwrap().len() as u64 - 8..u64::MAX, 0),
        (slice + 16..slice + 17, 1),
        (slice + 200..slice + 201, 1),
    ] {
        let broken = fs.image(torc_store::testing::Survives::Nothing);
        broken.break_sectors(&path(), bad.clone());
        let (store, _) = open(&broken).unwrap();
        assert_eq!(store.stats().sliced.damaged, lost, "{bad:?}");
        let first = all.iter().map(partition_of).min();
        for record in &all {
            let found = store.get(record.locator());
            if lost > 0 && Some(partition_of(record)) == first {
                assert!(is_damage(&found), "{bad:?}");
            } else {
                assert_eq!(found.unwrap().as_ref(), Some(record), "{bad:?}");
            }
        }
    }
}

#[test]
fn a_slice_that_cannot_be_read_is_not_copied_and_others_are_compacted() {
    let (fs, store, all) = sealed();
    let home = partition_of(&all[7]);
    let bad = range_of(&fs, b"the value of 007");
    fs.break_sectors(&path(), bad);
    let sealed = store.sealed(home).unwrap();
    let slice = &sealed.slices[0];
    assert!(slice.info().is_ok());
    assert!(is_damage(&slice.read(0, usize::MAX)));
    assert!(is_damage(&store.sealed(home)), "it is remembered");
    for key in 0..200 {
        block_on(store.write(put(key, 9, "older"))).unwrap();
        block_on(store.write(put(1000 + key, 9, "new"))).unwrap();
    }
    block_on(store.flush()).unwrap();
    block_on(store.compact()).unwrap();
    for other in store.partitions().into_iter().filter(|one| *one != home) {
        assert_eq!(store.sealed(other).unwrap().slices.len(), 1, "{other}");
    }
    for record in all.iter().filter(|one| one.key.as_bytes() != b"key-7") {
        let found = store.get(record.locator());
        assert_eq!(found.unwrap().as_ref(), Some(record));
    }
    assert!(is_damage(&get(&store, 7)));
}

#[test]
fn who_must_not_wait_is_told_what_is_not_cached() {
    let (fs, store, all) = sealed();
    let cached = |record: &Record| store.get_cached(record.locator());
    let recent = put(500, 10, "in the memtable");
    block_on(store.write(recent.clone())).unwrap();
    for is_cold in [false, true] {
        fs.set_cold(is_cold);
        let before = store.stats().sliced;
        let found = cached(&all[3]);
        assert_eq!(found.is_none(), is_cold);
        if let Some(found) = found {
            assert_eq!(found.unwrap().as_ref(), Some(&all[3]));
        }
        // Neither of these reads the file.
        assert_eq!(cached(&recent).unwrap().unwrap().as_ref(), Some(&recent));
        assert_eq!(cached(&tombstone(9999, 0)).unwrap().unwrap(), None);
        let asked = [all[1].clone(), recent.clone(), all[2].clone()];
        let batch = store.get_batch_cached(&reads(&asked));
        for (found, record) in batch.into_iter().zip(&asked) {
            match found {
                Some(found) => assert_eq!(found.unwrap().as_ref(), Some(record)),
                None => assert!(is_cold && *record != recent),
            }
        }
        let after = store.stats().sliced;
        let counted = (
            after.gets - before.gets,
            after.cold_reads - before.cold_reads,
        );
        assert_eq!(counted, if is_cold { (3, 3) } else { (6, 0) });
        assert_eq!(get(&store, 3).unwrap().as_ref(), Some(&all[3]), "who waits");
    }
    assert!(store.stats().sliced.damaged == 0);
}

#[test]
fn on_a_real_disk_what_was_just_written_needs_no_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(options(dir.path())).unwrap();
    let record = put(1, 10, vec![7; 5000]);
    block_on(store.write(record.clone())).unwrap();
    block_on(store.flush()).unwrap();
    let found = store.get_cached(record.locator());
    // The system may have dropped the page; no other answer is allowed.
    if let Some(found) = found {
        assert_eq!(found.unwrap(), Some(record));
    }
    assert!(get(&store, 1).unwrap().is_some());
}
