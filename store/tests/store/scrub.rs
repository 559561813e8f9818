//! Scrubbing finds rot anywhere, in a closed and in an open store, and it is repaired.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::path::{Path, PathBuf};

use crate::common::{
    CLUSTER, DIR, block_on, check_summaries, lost, open, partition_of, partitions, put, tombstone,
};
use torc_record::Record;
use torc_ring::Partition;
use torc_store::testing::{CrashFs, Survives, WaitingStore};
use torc_store::{ScanLimits, Store, StoreError};

const HOME: Partition = Partition(5);
const FIRST: &str = "segment-00000000000000000001";

/// A part of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Value,
    Key,
    Digest,
    Header,
    Mphf,
    Offsets,
    Order,
    End,
}

const PARTS: [Part; 8] = [
    Part::Value,
    Part::Key,
    Part::Digest,
    Part::Header,
    Part::Mphf,
    Part::Offsets,
    Part::Order,
    Part::End,
];

fn path() -> PathBuf {
    Path::new(DIR).join(FIRST)
}

fn sealed() -> (CrashFs, Store, Vec<Record>) {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let record = |key| match key % 5 {
        0 => tombstone(key, 10),
        _ => put(key, 10, format!("the value of {key:03}")),
    };
    let mut all: Vec<_> = (0..200).map(record).collect();
    block_on(store.write_batch(all.clone())).unwrap();
    block_on(store.flush()).unwrap();
    all.sort_by_key(|one| one.digest);
    (fs, store, all)
}

/// A record with a value, in the middle of the partition.
fn victim(all: &[Record]) -> usize {
    let home: Vec<usize> = (0..all.len())
        .filter(|at| partition_of(&all[*at]) == HOME)
        .collect();
    let mut inner = home[2..home.len() - 2].iter();
    *inner.find(|at| all[**at].visible(0).is_some()).unwrap()
}

/// The place of a part of the partition's slice in the segment.
fn place_of(part: Part, victim: &Record, bytes: &[u8]) -> usize {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let is_start = |at: &usize| bytes[*at..].starts_with(b"TSLC") && number(at + 16) == 5;
    let start = (64..bytes.len()).step_by(64).find(is_start).unwrap();
    let find = |needle: &[u8]| {
        let at = bytes[start..].windows(needle.len());
        start + at.into_iter().position(|window| window == needle).unwrap()
    };
    let [gate, mphf, offsets] = [32, 36, 40].map(|at| number(start + at));
    match part {
        Part::Value => find(victim.visible(0).unwrap()) + 5,
        Part::Key => find(victim.visible(0).unwrap()) - 1,
        Part::Digest => find(&victim.digest.0),
        Part::Header => start + 29,
        Part::Mphf => start + 128 + gate + 20,
        Part::Offsets => start + 128 + gate + mphf + 12,
        Part::Order => start + 128 + gate + mphf + offsets + 1,
        Part::End => start + number(start + 8) - 1,
    }
}

fn rot(fs: &CrashFs, part: Part, victim: &Record) {
    fs.rot(&path(), |bytes| {
        let at = place_of(part, victim, bytes);
        bytes[at] ^= 4;
    });
}

fn get(store: &Store, record: &Record) -> Result<Option<Record>, StoreError> {
    store.get(record.locator())
}

fn newer(record: &Record) -> Record {
    let mut newer = record.clone();
    newer.ballot.time.0 += 1;
    newer
}

/// The repair by a replica: rewrites the known keys, then those that others list and that are
/// refused here. Vouches only for places without a known key.
fn repair(store: &Store, all: &mut [Record]) {
    let places = lost(store, HOME);
    let (known, unknown): (Vec<_>, Vec<_>) =
        places.into_iter().partition(|place| place.key.is_some());
    for place in known {
        let key = place.key.unwrap();
        let record = all.iter_mut().find(|one| one.key == key.key).unwrap();
        assert!(get(store, record).is_err(), "refused, not absent");
        *record = newer(record);
        block_on(store.write(record.clone())).unwrap();
    }
    for place in &unknown {
        let is_between = |one: &Record| {
            partition_of(one) == HOME
                && place.after.is_none_or(|after| one.digest > after)
                && place.before.is_none_or(|before| one.digest < before)
        };
        for record in all.iter_mut().filter(|one| is_between(one)) {
            if get(store, record).is_err() {
                *record = newer(record);
                block_on(store.write(record.clone())).unwrap();
            }
        }
    }
    store.mark_repaired(&unknown);
}

fn check(store: &Store, all: &[Record], place: &str) {
    for record in all {
        assert_eq!(
            get(store, record).unwrap().as_ref(),
            Some(record),
            "{place}"
        );
    }
    for partition in partitions().iter() {
        let report = store.scrub(partition, Some(&CLUSTER), u64::MAX).unwrap();
        assert_eq!((report.damaged, report.unreadable), (0, vec![]), "{place}");
        let found = store.scan(partition, None, ScanLimits::default());
        let here = all.iter().filter(|one| partition_of(one) == partition);
        assert!(found.unwrap().records.iter().eq(here), "{place}");
    }
    check_summaries(store, place);
}

#[test]
fn what_rots_anywhere_in_a_slice_is_found_and_heals() {
    for (part, is_open) in PARTS
        .into_iter()
        .flat_map(|part| [(part, true), (part, false)])
    {
        let place = format!("{part:?}, open: {is_open}");
        let (fs, mut store, mut all) = sealed();
        let at = victim(&all);
        if is_open {
            rot(&fs, part, &all[at]);
        } else {
            block_on(store.close()).unwrap();
            rot(&fs, part, &all[at]);
            store = open(&fs).unwrap().0;
        }
        for other in partitions().iter().filter(|one| *one != HOME) {
            let report = store.scrub(other, None, u64::MAX).unwrap();
            assert_eq!((report.slices, report.damaged), (1, 0), "{place}");
        }
        let report = store.scrub(HOME, Some(&CLUSTER), u64::MAX).unwrap();
        assert_eq!(
            (report.slices, report.damaged),
            (1, 1),
            "{place}: it is found"
        );
        assert!(store.damage(HOME).is_some(), "{place}: and remembered");
        assert!(store.sealed(HOME).is_err(), "{place}: nobody copies it");
        let places = &report.unreadable[..];
        match (part, places) {
            (Part::Value, [one]) => {
                assert_eq!(one.key.as_ref().unwrap().key, all[at].key, "{place}");
            }
            (Part::Key | Part::Digest, [one]) => {
                assert_eq!(one.key, None, "{place}");
                assert_eq!(one.after, Some(all[at - 1].digest), "{place}");
                assert_eq!(one.before, Some(all[at + 1].digest), "{place}");
            }
            (Part::Header, [one]) => {
                assert!(!is_open && one.slot.is_none(), "{place}: all of it is lost");
            }
            // The records are found without an index.
            (_, []) => assert!(is_open || part != Part::Header, "{place}"),
            _ => panic!("{place}: {places:?}"),
        }
        repair(&store, &mut all);
        assert_eq!(
            lost(&store, HOME),
            vec![],
            "{place}: all of it is superseded"
        );
        block_on(store.compact()).unwrap();
        assert!(store.damage(HOME).is_none(), "{place}: it is rewritten");
        check(&store, &all, &place);
        block_on(store.flush()).unwrap();
        drop(store);
        let (store, _) = open(&fs.image(Survives::Nothing)).unwrap();
        check(&store, &all, &format!("{place}, after a restart"));
    }
}

#[test]
fn a_sector_that_cannot_be_read_is_found_too() {
    let (fs, store, mut all) = sealed();
    let at = victim(&all);
    let bad = place_of(Part::Value, &all[at], &fs.file(&path()).unwrap()) as u64;
    fs.break_sectors(&path(), bad..bad + 1);
    assert_eq!(lost(&store, HOME).len(), 1);
    repair(&store, &mut all);
    block_on(store.compact()).unwrap();
    check(&store, &all, "healed");
}

#[test]
fn damage_that_is_not_superseded_is_never_compacted_away() {
    let (fs, store, all) = sealed();
    let at = victim(&all);
    rot(&fs, Part::Value, &all[at]);
    let mut older = all[at].clone();
    older.ballot.time.0 -= 1;
    block_on(store.write(older)).unwrap();
    for _ in 0..2 {
        assert_eq!(lost(&store, HOME).len(), 1);
        block_on(store.compact()).unwrap();
        assert!(get(&store, &all[at]).is_err(), "the lost version was newer");
    }
}

#[test]
fn a_scrub_ends_when_the_store_is_closed() {
    let (_, store, _) = sealed();
    let scrubber = store.clone();
    block_on(store.close()).unwrap();
    let refused = scrubber.scrub(HOME, None, 1).unwrap_err();
    assert!(matches!(refused, StoreError::Closed), "{refused}");
}
