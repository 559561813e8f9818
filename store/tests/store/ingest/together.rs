//! Ingests that share a segment do not affect each other.

use std::path::PathBuf;

use super::{HOME, bytes_of, copy, infos, keys_of, prepare, segments, sender, write_all};
use crate::common::{block_on, check_summaries, fingerprint, open, put};
use bytes::Bytes;
use torc_ring::Partition;
use torc_store::StoreError;
use torc_store::testing::{CrashFs, Survives, WaitingStore};

#[test]
fn an_ingest_of_nothing_is_published_and_leaves_nothing() {
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let mut ingest = to.ingest(HOME, &[]).unwrap();
    ingest.verify(None).unwrap();
    block_on(ingest.publish()).unwrap();
    assert_eq!(segments(&fs), Vec::<PathBuf>::new());
}

#[test]
fn an_ingest_that_is_given_up_harms_no_other_and_gives_its_room_back() {
    let (_, from) = sender();
    let sealed = from.sealed(HOME).unwrap();
    let bytes = bytes_of(&sealed);
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    for written in [0, 1, 200, bytes.len()] {
        let mut given_up = to.ingest(HOME, &infos(&sealed)).unwrap();
        given_up
            .write(Bytes::copy_from_slice(&bytes[..written]))
            .unwrap();
        let whole = prepare(&to, HOME, &sealed).unwrap();
        let mut also = to.ingest(HOME, &infos(&sealed)).unwrap();
        also.write(Bytes::copy_from_slice(&bytes[..written / 2]))
            .unwrap();
        drop(given_up);
        drop(also);
        block_on(whole.publish()).unwrap();
        assert_eq!(
            to.summary(HOME),
            sealed.summary,
            "given up after {written} bytes"
        );
        block_on(to.compact()).unwrap();
        check_summaries(&to, "compacted");
        let (again, _) = open(&fs.image(Survives::Nothing)).unwrap();
        assert_eq!(again.summary(HOME), sealed.summary);
        block_on(to.drop_partition(HOME)).unwrap();
        block_on(to.compact()).unwrap();
    }
    drop(to.ingest(HOME, &infos(&sealed)).unwrap());
    while !segments(&fs).is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn a_table_that_is_damaged_is_made_anew_also_beside_room_that_was_given_up() {
    let (_, from) = sender();
    let sealed = from.sealed(HOME).unwrap();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let given_up = prepare(&to, HOME, &sealed).unwrap();
    let whole = prepare(&to, HOME, &sealed).unwrap();
    drop(given_up);
    block_on(whole.publish()).unwrap();
    block_on(to.close()).unwrap();
    let path = &segments(&fs)[0];
    let mut bytes = fs.file(path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs.put_file(path, &bytes);
    let (to, _) = open(&fs).unwrap();
    assert_eq!(to.summary(HOME), sealed.summary);
    check_summaries(&to, "its table made anew");
}

#[test]
fn ingests_at_one_time_share_a_segment() {
    let (_, from) = sender();
    let elsewhere = Partition(2);
    write_all(
        &from,
        keys_of(elsewhere).take(5).map(|key| put(key, 7, b"x")),
    );
    block_on(from.flush()).unwrap();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let one = prepare(&to, HOME, &from.sealed(HOME).unwrap()).unwrap();
    let other = prepare(&to, elsewhere, &from.sealed(elsewhere).unwrap()).unwrap();
    block_on(async {
        let one = tokio::spawn(one.publish());
        let other = tokio::spawn(other.publish());
        one.await.unwrap().unwrap();
        other.await.unwrap().unwrap();
    });
    assert_eq!(segments(&fs).len(), 1);
    for partition in [HOME, elsewhere] {
        assert_eq!(to.summary(partition), from.summary(partition));
    }
    check_summaries(&to, "together");
    let (to, _) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(fingerprint(&to), fingerprint(&from));
}

#[test]
fn a_damaged_slice_of_one_partition_does_not_keep_others_from_being_ingested() {
    let (_, from) = sender();
    let elsewhere = Partition(2);
    write_all(
        &from,
        keys_of(elsewhere).take(5).map(|key| put(key, 7, b"x")),
    );
    block_on(from.flush()).unwrap();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    write_all(&to, keys_of(HOME).take(3).map(|key| put(key, 1, b"rotten")));
    block_on(to.flush()).unwrap();
    block_on(to.close()).unwrap();
    let path = &segments(&fs)[0];
    let mut bytes = fs.file(path).unwrap();
    let at = bytes
        .windows(6)
        .position(|bytes| bytes == b"rotten")
        .unwrap();
    bytes[at] ^= 1;
    fs.put_file(path, &bytes);
    let (to, _) = open(&fs).unwrap();
    let one = prepare(&to, HOME, &from.sealed(HOME).unwrap()).unwrap();
    let other = prepare(&to, elsewhere, &from.sealed(elsewhere).unwrap()).unwrap();
    block_on(async {
        let one = tokio::spawn(one.publish());
        let other = tokio::spawn(other.publish());
        let refused = one.await.unwrap().unwrap_err();
        assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
        other.await.unwrap().unwrap();
    });
    assert_eq!(to.summary(elsewhere), from.summary(elsewhere));
    block_on(to.drop_partition(HOME)).unwrap();
    copy(&from, &to, HOME).unwrap();
    assert_eq!(
        fingerprint(&to),
        fingerprint(&from),
        "dropped and copied anew"
    );
    let (to, _) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(fingerprint(&to), fingerprint(&from));
    check_summaries(&to, "healed");
}
