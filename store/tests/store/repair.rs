//! Damage that is repaired for good: known records are served, and compaction removes only places
//! that were vouched for.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::path::{Path, PathBuf};

use crate::common::{
    DIR, block_on, check_summaries, get, lost, open, partition_of, partitions, put,
};
use torc_record::{Digest, Record};
use torc_ring::Partition;
use torc_store::testing::{CrashFs, Survives, WaitingStore};
use torc_store::{ScanLimits, Store, StoreError, Unreadable};

const FIRST: &str = "segment-00000000000000000001";

fn home() -> Partition {
    partition_of(&put(1, 0, b""))
}

/// Records of one partition, in ring order.
fn records(time: u64) -> Vec<Record> {
    let all = (0..200).map(|key| put(key, time, format!("value {key:03} of {time}")));
    let mut all: Vec<_> = all.filter(|one| partition_of(one) == home()).collect();
    all.sort_by_key(|one| one.digest);
    all
}

/// A store with one slice of these records and some of other partitions.
fn sealed(records: &[Record]) -> CrashFs {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    block_on(store.write_batch(records.to_vec())).unwrap();
    block_on(store.flush()).unwrap();
    block_on(store.close()).unwrap();
    fs.image(Survives::Nothing)
}

fn path() -> PathBuf {
    Path::new(DIR).join(FIRST)
}

fn flip(fs: &CrashFs, needle: &[u8], offset: usize) {
    let mut bytes = fs.file(&path()).unwrap();
    let is_it = |window: &[u8]| window == needle;
    let at = bytes.windows(needle.len()).position(is_it).unwrap();
    bytes[at + offset] ^= 1;
    fs.put_file(&path(), &bytes);
}

fn value_of(record: &Record) -> Vec<u8> {
    record.visible(0).unwrap().to_vec()
}

fn is_damage<T>(outcome: &Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Damaged { .. }))
}

fn read(store: &Store, record: &Record) -> Result<Option<Record>, StoreError> {
    store.get(record.locator())
}

fn readable(store: &Store) -> (Vec<Record>, bool) {
    let limits = ScanLimits {
        records: 4,
        bytes: 1000,
    };
    let (mut found, mut is_partial, mut after) = (Vec::new(), false, None);
    loop {
        let page = store.scan_readable(home(), after.as_ref(), limits).unwrap();
        found.extend(page.page.records);
        is_partial |= page.is_partial;
        after = page.page.next;
        if after.is_none() {
            return (found, is_partial);
        }
    }
}

#[test]
fn a_record_that_rots_is_found_bounded_by_its_neighbours_and_healed_for_good() {
    let all = records(10);
    let gone = all.len() / 2;
    let fs = sealed(&all);
    flip(&fs, &value_of(&all[gone]), 0);
    let (store, _) = open(&fs).unwrap();
    let mut rest = all.clone();
    rest.remove(gone);
    assert_eq!(readable(&store), (rest.clone(), true));
    let places = lost(&store, home());
    let [place] = &places[..] else {
        panic!("{places:?}")
    };
    assert_eq!(place.after, Some(all[gone - 1].digest));
    assert_eq!(place.before, Some(all[gone + 1].digest));
    assert_eq!(place.highest, all[0].ballot);
    let whole = |store: &Store| store.range_sum(home(), Digest([0; 16]), Digest([255; 16]));
    assert!(is_damage(&whole(&store)), "a sum that nobody can tell");

    let mut newer = all[gone].clone();
    newer.ballot.time.0 += 1;
    block_on(store.write(newer.clone())).unwrap();
    assert_eq!(read(&store, &newer).unwrap(), Some(newer.clone()));
    for _ in 0..2 {
        block_on(store.flush()).unwrap();
        assert_eq!(
            read(&store, &newer).unwrap(),
            Some(newer.clone()),
            "sealed too"
        );
    }
    block_on(store.compact()).unwrap();
    assert!(store.damage(home()).is_some(), "nobody has vouched for it");

    store.mark_repaired(&places);
    assert_eq!(lost(&store, home()), vec![]);
    block_on(store.compact()).unwrap();
    assert!(store.damage(home()).is_none());
    rest.insert(gone, newer);
    let check = |store: &Store, place: &str| {
        assert_eq!(readable(store), (rest.clone(), false), "{place}");
        check_summaries(store, place);
        assert_eq!(whole(store).unwrap().count, rest.len() as u64);
        assert_eq!(store.stats().sliced.damaged, 0, "{place}");
    };
    check(&store, "healed");
    drop(store);
    let (store, _) = open(&fs.image(Survives::Nothing)).unwrap();
    check(&store, "healed, after a restart");
    assert!(fs.file(&path()).is_none(), "the damaged file is gone");
}

#[test]
fn a_slice_of_which_nothing_can_be_read_is_known_by_its_row_and_can_go() {
    let all = records(10);
    let fs = sealed(&all);
    flip(&fs, b"TSLC", 32);
    let (store, _) = open(&fs).unwrap();
    assert_eq!(readable(&store), (vec![], true));
    let places = lost(&store, home());
    let all_of_it = Unreadable {
        slot: None,
        highest: all[0].ballot,
        ..places[0].clone()
    };
    assert_eq!(places, vec![all_of_it]);
    assert!(all.iter().all(|one| is_damage(&read(&store, one))));
    let newer = records(11);
    for record in &newer {
        block_on(store.write(record.clone())).unwrap();
        assert_eq!(read(&store, record).unwrap().as_ref(), Some(record));
    }
    block_on(store.flush()).unwrap();
    for record in &newer {
        assert_eq!(
            read(&store, record).unwrap().as_ref(),
            Some(record),
            "sealed"
        );
    }
    store.mark_repaired(&places);
    block_on(store.compact()).unwrap();
    assert_eq!(readable(&store), (newer, false));
    assert!(store.damage(home()).is_none());
    check_summaries(&store, "healed");
}

#[test]
fn what_rots_after_somebody_vouched_is_not_compacted_away() {
    let all = records(10);
    let fs = sealed(&all);
    flip(&fs, &value_of(&all[0]), 0);
    let (store, _) = open(&fs).unwrap();
    let places = lost(&store, home());
    drop(store);
    flip(&fs, &value_of(&all[1]), 0);
    let (store, _) = open(&fs).unwrap();
    store.mark_repaired(&places);
    assert_eq!(
        read(&store, &all[0]).unwrap(),
        None,
        "what was vouched for is empty"
    );
    block_on(store.compact()).unwrap();
    assert!(is_damage(&read(&store, &all[1])));
    assert_eq!(lost(&store, home()).len(), 1);
    store.mark_repaired(&lost(&store, home()));
    block_on(store.compact()).unwrap();
    assert!(store.damage(home()).is_none());
    assert_eq!(readable(&store), (all[2..].to_vec(), false));
}

#[test]
fn an_order_that_rots_loses_nothing_and_is_made_anew() {
    let all = records(10);
    let fs = sealed(&all);
    // The order is before the records, whose first checksum is 4 bytes before a head.
    let bytes = fs.file(&path()).unwrap();
    let start = bytes.windows(4).position(|bytes| bytes == b"TSLC").unwrap();
    let part = |at: usize| {
        let len = bytes[start + at..start + at + 4].try_into().unwrap();
        u32::from_le_bytes(len) as usize
    };
    let order_at = 128 + part(32) + part(36) + part(40);
    flip(&fs, b"TSLC", order_at);
    let (store, _) = open(&fs).unwrap();
    assert!(is_damage(&store.scan(home(), None, ScanLimits::default())));
    assert_eq!(readable(&store), (all.clone(), false));
    assert_eq!(lost(&store, home()), vec![]);
    block_on(store.compact()).unwrap();
    assert!(
        store.damage(home()).is_none(),
        "nothing was lost: nobody need vouch"
    );
    let page = store.scan(home(), None, ScanLimits::default()).unwrap();
    assert_eq!(page.records, all);
    assert_eq!(get(&store, 1).unwrap(), Some(put(1, 10, "value 001 of 10")));
    assert!(partitions().iter().all(|one| store.damage(one).is_none()));
}
