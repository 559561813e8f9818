//! Slices that are copied from one store to another, byte for byte.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

mod common;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use common::{
    CLUSTER, DIR, Model, block_on, check_summaries, fingerprint, get, open, options, partition_of,
    put, scan_all, tombstone,
};
use proptest::prelude::*;
use torc_record::{DigestKey, HybridTime, Record};
use torc_ring::{Partition, Partitions};
use torc_store::testing::{Call, CrashFs, Survives};
use torc_store::{
    Arrival, SealedPartition, SealedSlice, Seq, SliceInfo, Store, StoreError, StoreHealth,
};

const HOME: Partition = Partition(5);

/// Keys of one partition.
fn keys_of(partition: Partition) -> impl Iterator<Item = u64> {
    (0..).filter(move |key| partition_of(&tombstone(*key, 0)) == partition)
}

fn infos(sealed: &SealedPartition) -> Vec<SliceInfo> {
    sealed.slices.iter().map(SealedSlice::info).collect()
}

fn bytes_of(sealed: &SealedPartition) -> Vec<u8> {
    let mut bytes = Vec::new();
    for slice in &sealed.slices {
        let mut at = 0;
        loop {
            // No round number: chunks lie across every border.
            let chunk = slice.read(at, 333);
            if chunk.is_empty() {
                break;
            }
            at += chunk.len() as u64;
            bytes.extend_from_slice(&chunk);
        }
    }
    bytes
}

/// All that comes before publishing.
fn arrive(to: &Store, home: Partition, sealed: &SealedPartition) -> Result<Arrival, StoreError> {
    let mut arrival = to.receive(home, &infos(sealed))?;
    for chunk in bytes_of(sealed).chunks(250) {
        arrival.write(chunk)?;
    }
    arrival.verify(Some(&CLUSTER))?;
    Ok(arrival)
}

fn copy_sealed(from: &Store, to: &Store, home: Partition) -> Result<Seq, StoreError> {
    let sealed = from.sealed(home)?;
    block_on(arrive(to, home, &sealed)?.publish())
}

/// Slices, then what came after them.
fn copy(from: &Store, to: &Store, home: Partition) -> Result<(), StoreError> {
    let sealed = from.sealed(home)?;
    block_on(arrive(to, home, &sealed)?.publish())?;
    let tail = scan_all(from, home, sealed.through);
    block_on(to.write_batch(tail))
}

fn segments(fs: &CrashFs) -> Vec<PathBuf> {
    let mut files = fs.files();
    files.retain(|path| path.to_string_lossy().contains("segment-"));
    files
}

fn write_all(store: &Store, records: impl IntoIterator<Item = Record>) {
    for record in records {
        block_on(store.write(record)).unwrap();
    }
}

/// A store with three slices of the partition and something on top.
fn sender() -> (CrashFs, Store) {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let keys: Vec<u64> = keys_of(HOME).take(12).collect();
    for round in 1..4 {
        for key in keys.iter().filter(|key| **key % round == 0) {
            let record = match key % 5 {
                0 => tombstone(*key, round * 10),
                _ => put(*key, round * 10, format!("{key} in round {round}")),
            };
            block_on(store.write(record)).unwrap();
        }
        block_on(store.seal()).unwrap();
    }
    write_all(&store, keys[..4].iter().map(|key| put(*key, 40, b"on top")));
    (fs, store)
}

#[test]
fn a_partition_is_copied_to_a_store_that_has_nothing() {
    let (_, from) = sender();
    assert_eq!(from.sealed(HOME).unwrap().slices.len(), 3);
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    assert_eq!(
        copy_sealed(&from, &to, HOME).unwrap(),
        Seq(0),
        "its log is empty"
    );
    let sealed = from.sealed(HOME).unwrap();
    assert_eq!(to.summary(HOME), sealed.summary);
    assert_eq!(
        scan_all(&to, HOME, Seq(0)).len() as u64,
        sealed.summary.records
    );
    block_on(to.write_batch(scan_all(&from, HOME, sealed.through))).unwrap();
    assert_eq!(to.summary(HOME), from.summary(HOME));
    assert_eq!(scan_all(&to, HOME, Seq(0)), scan_all(&from, HOME, Seq(0)));
    check_summaries(&to, "copied");
    let (to, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(to.summary(HOME), from.summary(HOME), "after a crash");
    assert_eq!(recovery.sealed_records, sealed.summary.records);
    assert_eq!(recovery.highest_time, HybridTime(40));
    check_summaries(&to, "after a crash");
}

#[test]
fn the_highest_time_covers_what_arrived() {
    let (_, from) = sender();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    copy_sealed(&from, &to, HOME).unwrap();
    block_on(to.drop_partition(HOME)).unwrap();
    drop(to);
    let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(
        (recovery.records, recovery.highest_time),
        (0, HybridTime(30))
    );
}

#[test]
fn what_is_copied_stays_readable_while_the_sender_writes_seals_folds_and_drops() {
    let (_, from) = sender();
    let sealed = from.sealed(HOME).unwrap();
    let expected = scan_all(&from, HOME, Seq(0));
    let before = bytes_of(&sealed);
    let late = put(keys_of(HOME).next().unwrap(), 99, b"late");
    write_all(&from, [late.clone()]);
    block_on(from.seal()).unwrap();
    block_on(from.fold()).unwrap();
    let tail = scan_all(&from, HOME, sealed.through);
    block_on(from.drop_partition(HOME)).unwrap();
    block_on(from.fold()).unwrap();
    assert_eq!(bytes_of(&sealed), before, "it outlives its file");
    let (to, _) = open(&CrashFs::new()).unwrap();
    block_on(arrive(&to, HOME, &sealed).unwrap().publish()).unwrap();
    block_on(to.write_batch(tail)).unwrap();
    let mut model = Model::default();
    expected
        .into_iter()
        .chain([late])
        .for_each(|one| model.write(one));
    let expected: Vec<_> = model.records.values().map(|(_, one)| one.clone()).collect();
    assert_eq!(scan_all(&to, HOME, Seq(0)), expected);
}

#[test]
fn every_flipped_bit_of_a_slice_on_its_way_is_refused() {
    let (_, from) = sender();
    block_on(from.fold()).unwrap();
    let sealed = from.sealed(HOME).unwrap();
    let (to, _) = open(&CrashFs::new()).unwrap();
    let (infos, good) = (infos(&sealed), bytes_of(&sealed));
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut arrival = to.receive(HOME, &infos).unwrap();
        let is_content = bit / 8 < good.len() - 32;
        let taken = arrival.write(&bad);
        assert_eq!(
            taken.is_err(),
            is_content,
            "bit {bit}: the digest is of the content"
        );
        let taken = taken.and_then(|()| arrival.verify(None));
        assert!(
            matches!(taken, Err(StoreError::BadArrival { .. })),
            "bit {bit}: {taken:?}"
        );
    }
}

#[test]
fn nor_does_a_slice_pass_that_was_damaged_before_its_digest_was_made() {
    let (_, from) = sender();
    block_on(from.fold()).unwrap();
    let good = bytes_of(&from.sealed(HOME).unwrap());
    let (to, _) = open(&CrashFs::new()).unwrap();
    let content_len = good.len() - 32;
    for bit in 0..content_len * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let digest = *blake3::hash(&bad[..content_len]).as_bytes();
        bad[content_len..].copy_from_slice(&digest);
        let info = SliceInfo {
            len: bad.len() as u64,
            digest,
        };
        let mut arrival = to.receive(HOME, &[info]).unwrap();
        arrival.write(&bad).unwrap();
        let refused = arrival.verify(None);
        assert!(
            matches!(refused, Err(StoreError::BadArrival { .. })),
            "bit {bit}"
        );
    }
}

fn refusal(arrival: Result<Arrival, StoreError>) -> &'static str {
    match arrival.unwrap_err() {
        StoreError::BadArrival { what, .. } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn what_was_not_announced_or_does_not_belong_is_refused_by_name() {
    let (_, from) = sender();
    let sealed = from.sealed(HOME).unwrap();
    let (infos, bytes) = (infos(&sealed), bytes_of(&sealed));
    let (to, _) = open(&CrashFs::new()).unwrap();

    let mut arrival = to.receive(HOME, &infos).unwrap();
    arrival.write(&bytes).unwrap();
    let more = arrival.write(b"x").map(|()| arrival);
    assert_eq!(refusal(more), "more bytes than were announced");

    let mut arrival = to.receive(HOME, &infos).unwrap();
    arrival.write(&bytes[..bytes.len() - 1]).unwrap();
    let fewer = arrival.verify(None).map(|()| arrival);
    assert_eq!(refusal(fewer), "fewer bytes than were announced");

    let elsewhere = arrive(&to, Partition(0), &sealed);
    assert_eq!(refusal(elsewhere), "a slice of another partition");

    let mut arrival = to.receive(HOME, &infos).unwrap();
    arrival.write(&bytes).unwrap();
    let foreign = arrival.verify(Some(&DigestKey([8; 32]))).map(|()| arrival);
    assert_eq!(refusal(foreign), "a record with the digest of another key");

    let mut arrival = to.receive(HOME, &infos).unwrap();
    arrival.write(&bytes).unwrap();
    let unverified = block_on(arrival.publish()).unwrap_err();
    assert!(
        unverified.to_string().contains("it was not verified"),
        "{unverified}"
    );

    let mut other = options(DIR);
    other.partitions = Partitions::new(64).unwrap();
    let (wide, _) = Store::open_with(other, Arc::new(CrashFs::new())).unwrap();
    assert_eq!(
        refusal(arrive(&wide, HOME, &sealed)),
        "a slice of another partition"
    );
    assert!(to.receive(Partition(8), &infos).is_err());

    assert_eq!(to.summary(HOME).records, 0, "nothing of all this was taken");
    copy(&from, &to, HOME).unwrap();
}

#[test]
fn announced_lengths_are_bounded_and_reserve_nothing() {
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let info = |len| SliceInfo {
        len,
        digest: [0; 32],
    };
    let before = fs.used_bytes();
    for lens in [
        vec![info(0)],
        vec![info(159)],
        vec![info(u64::MAX)],
        vec![info((1 << 40) + 1)],
        vec![info(1 << 39), info(1 << 39), info(160)],
        vec![info(160); 257],
    ] {
        let refused = to.receive(HOME, &lens).map(drop);
        assert!(
            matches!(refused, Err(StoreError::BadArrival { .. })),
            "{}",
            lens.len()
        );
    }
    let largest = to.receive(HOME, &[info(1 << 40)]).unwrap();
    assert!(fs.used_bytes() <= before + 64, "only a header was written");
    drop(largest);
}

#[test]
fn an_arrival_of_nothing_is_published_and_leaves_nothing() {
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let mut arrival = to.receive(HOME, &[]).unwrap();
    arrival.verify(None).unwrap();
    block_on(arrival.publish()).unwrap();
    assert_eq!(segments(&fs), Vec::<PathBuf>::new());
}

#[test]
fn an_arrival_that_is_given_up_harms_no_other_and_gives_its_room_back() {
    let (_, from) = sender();
    let sealed = from.sealed(HOME).unwrap();
    let bytes = bytes_of(&sealed);
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    for written in [0, 1, 200, bytes.len()] {
        let mut given_up = to.receive(HOME, &infos(&sealed)).unwrap();
        given_up.write(&bytes[..written]).unwrap();
        let whole = arrive(&to, HOME, &sealed).unwrap();
        let mut also = to.receive(HOME, &infos(&sealed)).unwrap();
        also.write(&bytes[..written / 2]).unwrap();
        drop(given_up);
        drop(also);
        block_on(whole.publish()).unwrap();
        assert_eq!(
            to.summary(HOME),
            sealed.summary,
            "given up after {written} bytes"
        );
        block_on(to.fold()).unwrap();
        check_summaries(&to, "folded");
        let (again, _) = open(&fs.image(Survives::Nothing)).unwrap();
        assert_eq!(again.summary(HOME), sealed.summary);
        block_on(to.drop_partition(HOME)).unwrap();
        block_on(to.fold()).unwrap();
    }
    drop(to.receive(HOME, &infos(&sealed)).unwrap());
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
    let given_up = arrive(&to, HOME, &sealed).unwrap();
    let whole = arrive(&to, HOME, &sealed).unwrap();
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
fn arrivals_at_one_time_share_a_segment() {
    let (_, from) = sender();
    let elsewhere = Partition(2);
    write_all(
        &from,
        keys_of(elsewhere).take(5).map(|key| put(key, 7, b"x")),
    );
    block_on(from.seal()).unwrap();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let one = arrive(&to, HOME, &from.sealed(HOME).unwrap()).unwrap();
    let other = arrive(&to, elsewhere, &from.sealed(elsewhere).unwrap()).unwrap();
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
fn a_drop_while_an_arrival_is_published_wins_and_one_before_does_not_concern_it() {
    let (_, from) = sender();
    let calls = [
        (Call::Write, "MANIFEST"),
        (Call::Sync, "MANIFEST"),
        (Call::Rename, "MANIFEST"),
        (Call::SyncDir, DIR),
    ];
    for (call, file) in calls {
        let fs = CrashFs::new();
        let (to, _) = open(&fs).unwrap();
        write_all(&to, [put(keys_of(HOME).next().unwrap(), 1, b"here before")]);
        let arrival = arrive(&to, HOME, &from.sealed(HOME).unwrap()).unwrap();
        let other = to.clone();
        fs.before(call, file, 0, move || {
            block_on(other.drop_partition(HOME)).unwrap();
        });
        let refused = block_on(arrival.publish()).unwrap_err();
        assert!(
            matches!(refused, StoreError::BadArrival { .. }),
            "{call:?}: {refused}"
        );
        assert_eq!(to.summary(HOME).records, 0);
        for survives in [Survives::Nothing, Survives::Everything] {
            let (again, _) = open(&fs.image(survives)).unwrap();
            assert_eq!(again.summary(HOME).records, 0, "{call:?}, {survives:?}");
            check_summaries(&again, "dropped");
        }

        let arrival = arrive(&to, HOME, &from.sealed(HOME).unwrap()).unwrap();
        block_on(to.drop_partition(HOME)).unwrap();
        block_on(arrival.publish()).unwrap();
        for survives in [Survives::Nothing, Survives::Everything] {
            let (again, _) = open(&fs.image(survives)).unwrap();
            assert_eq!(again.summary(HOME), from.sealed(HOME).unwrap().summary);
            check_summaries(&again, "arrived after the drop");
        }
    }
}

#[test]
fn a_drop_after_an_arrival_was_handed_over_wins_also_before_it_is_landed() {
    let (_, from) = sender();
    let (to, _) = open(&CrashFs::new()).unwrap();
    let sealed = from.sealed(HOME).unwrap();
    let another = to.receive(HOME, &infos(&sealed)).unwrap();
    // They share a segment, which lands when both have ended.
    let handed_over = arrive(&to, HOME, &sealed).unwrap().publish();
    write_all(&to, [put(keys_of(HOME).next().unwrap(), 1, b"here before")]);
    block_on(to.drop_partition(HOME)).unwrap();
    drop(another);
    let refused = block_on(handed_over).unwrap_err();
    assert!(
        matches!(refused, StoreError::BadArrival { .. }),
        "{refused}"
    );
    assert_eq!(to.summary(HOME).records, 0);
}

/// Runs `during` on the receiver while it seals or folds, right before a call, and an arrival
/// with it.
fn arrive_during(is_fold: bool, call: Call, file: &str, nth: usize) -> bool {
    let (_, from) = sender();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let keys: Vec<u64> = keys_of(HOME).take(12).collect();
    // Older, equal and newer versions of what arrives. Of the six older ones at most four
    // give way to equal ones.
    let mut model = Model::default();
    let sent: Vec<Record> = scan_all(&from, HOME, Seq(0))
        .into_iter()
        .skip(2)
        .take(4)
        .collect();
    let own = keys
        .iter()
        .zip([5, 100].into_iter().cycle())
        .map(|(key, time)| put(*key, time, b"own"));
    for record in sent
        .into_iter()
        .chain(own)
        .chain([put(keys[11] + 1000, 1, b"far")])
    {
        model.write(record.clone());
        write_all(&to, [record]);
    }
    if is_fold {
        block_on(to.seal()).unwrap();
        for (key, time) in keys.iter().zip([6, 101].into_iter().cycle()) {
            model.write(put(*key, time, b"again"));
            write_all(&to, [put(*key, time, b"again")]);
        }
        block_on(to.seal()).unwrap();
    }
    let sealed = from.sealed(HOME).unwrap();
    let (last_seq, received) = (model.last_seq, sealed.clone());
    let (copied, _) = open(&CrashFs::new()).unwrap();
    copy_sealed(&from, &copied, HOME).unwrap();
    for record in scan_all(&copied, HOME, Seq(0)) {
        model.write(record);
    }
    model.last_seq = last_seq;
    let receiver = to.clone();
    let arrive_now = move || {
        let arrival = arrive(&receiver, HOME, &received).unwrap();
        block_on(arrival.publish()).unwrap();
    };
    let (later, postponed) = std::sync::mpsc::channel();
    fs.before(call, file, nth, move || {
        // Who holds the manifest, or writes the log, cannot wait for an arrival.
        if std::thread::current().name() == Some("torc-commit") {
            later.send(arrive_now).unwrap();
        } else {
            arrive_now();
        }
    });
    let worked = if is_fold {
        block_on(to.fold()).map(|_| ())
    } else {
        block_on(to.seal()).map(|_| ())
    };
    worked.unwrap();
    if !fs.is_used_up() {
        return false;
    }
    if let Ok(arrive_now) = postponed.try_recv() {
        arrive_now();
    }
    let place = format!("arrival during a seal or fold ({is_fold}), {call:?} {nth}");
    check_contents(&model, &to, &place);
    for survives in [Survives::Nothing, Survives::Some(nth as u64)] {
        let (again, _) = open(&fs.image(survives)).unwrap();
        check_contents(&model, &again, &format!("{place}, after a crash"));
        block_on(again.seal()).unwrap();
        block_on(again.fold()).unwrap();
        check_contents(&model, &again, &format!("{place}, folded"));
    }
    true
}

fn check_contents(model: &Model, store: &Store, place: &str) {
    check_summaries(store, place);
    model.check(store, place);
}

#[test]
fn slices_that_arrive_while_a_seal_or_fold_writes_are_counted_right() {
    for is_fold in [false, true] {
        for call in [Call::Create, Call::Write, Call::Sync] {
            let times = (0..10).take_while(|nth| {
                arrive_during(is_fold, call, "segment-0000000000000000000", *nth)
            });
            assert!(times.count() > 0, "{call:?}");
        }
    }
}

#[test]
fn a_damaged_slice_of_one_partition_does_not_keep_others_from_arriving() {
    let (_, from) = sender();
    let elsewhere = Partition(2);
    write_all(
        &from,
        keys_of(elsewhere).take(5).map(|key| put(key, 7, b"x")),
    );
    block_on(from.seal()).unwrap();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    write_all(&to, keys_of(HOME).take(3).map(|key| put(key, 1, b"rotten")));
    block_on(to.seal()).unwrap();
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
    let one = arrive(&to, HOME, &from.sealed(HOME).unwrap()).unwrap();
    let other = arrive(&to, elsewhere, &from.sealed(elsewhere).unwrap()).unwrap();
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

#[test]
fn an_arrival_that_finds_no_space_changes_nothing_and_may_be_tried_again() {
    let (_, from) = sender();
    for (call, file) in [
        (Call::Create, "segment-"),
        (Call::Write, "segment-"),
        (Call::Write, "MANIFEST"),
    ] {
        let fs = CrashFs::new();
        let (to, _) = open(&fs).unwrap();
        fs.fail_next(call, file, ErrorKind::StorageFull);
        let refused = copy_sealed(&from, &to, HOME).unwrap_err();
        assert!(
            matches!(refused, StoreError::OutOfSpace),
            "{call:?}: {refused}"
        );
        assert_eq!(to.summary(HOME).records, 0);
        assert_eq!(to.health(), StoreHealth::Ok);
        copy(&from, &to, HOME).unwrap();
        assert_eq!(to.summary(HOME), from.summary(HOME));
    }
}

#[test]
fn a_failed_sync_of_an_arrival_stops_the_store() {
    let (_, from) = sender();
    for name in ["segment-", "MANIFEST"] {
        let fs = CrashFs::new();
        let (to, _) = open(&fs).unwrap();
        fs.fail_next(Call::Sync, name, ErrorKind::Other);
        let failed = copy_sealed(&from, &to, HOME).unwrap_err();
        assert!(
            matches!(failed, StoreError::Failed { .. }),
            "{name}: {failed}"
        );
        assert!(matches!(to.health(), StoreHealth::Failed(_)));
        drop(to);
        drop(open(&fs.image(Survives::Everything)).unwrap());
    }
}

#[test]
fn an_arrival_outlives_neither_its_store_nor_a_restart() {
    let (_, from) = sender();
    let sealed = from.sealed(HOME).unwrap();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let arrival = arrive(&to, HOME, &sealed).unwrap();
    let late = arrive(&to, HOME, &sealed).unwrap();
    block_on(to.clone().close()).unwrap();
    assert!(matches!(
        block_on(arrival.publish()),
        Err(StoreError::Closed)
    ));
    assert!(to.receive(HOME, &infos(&sealed)).is_err());
    let (to, _) = open(&fs).unwrap();
    assert_eq!(to.summary(HOME).records, 0);
    assert_eq!(
        segments(&fs),
        Vec::<PathBuf>::new(),
        "what was left is removed"
    );
    copy(&from, &to, HOME).unwrap();
    drop(late);
    assert_eq!(to.summary(HOME), from.summary(HOME));
}

/// What a receiver does: the calls at which it crashes are those of all of this.
fn receive_all(to: &Store, from: &Store, reached: &mut usize) -> Result<(), StoreError> {
    let keys: Vec<u64> = keys_of(HOME).take(12).collect();
    for (key, time) in keys.iter().zip([5, 100, 15, 35]) {
        block_on(to.write(put(*key, time, b"own")))?;
    }
    *reached = 1;
    copy_sealed(from, to, HOME)?;
    *reached = 2;
    block_on(to.write(put(keys[5], 60, b"after")))?;
    *reached = 3;
    block_on(to.seal())?;
    copy_sealed(from, to, HOME)?;
    block_on(to.fold())?;
    *reached = 4;
    block_on(to.drop_partition(HOME))?;
    *reached = 5;
    copy_sealed(from, to, HOME)?;
    *reached = 6;
    Ok(())
}

#[test]
fn a_crash_at_any_call_of_the_receiver_leaves_the_old_or_the_new() {
    let (_, from) = sender();
    // What is held when each point was reached.
    let expected: Vec<u128> = {
        let (to, _) = open(&CrashFs::new()).unwrap();
        let keys: Vec<u64> = keys_of(HOME).take(12).collect();
        write_all(
            &to,
            keys.iter()
                .zip([5, 100, 15, 35])
                .map(|(key, time)| put(*key, time, b"own")),
        );
        let own = fingerprint(&to);
        let (copied, _) = open(&CrashFs::new()).unwrap();
        copy_sealed(&from, &copied, HOME).unwrap();
        let sent = scan_all(&copied, HOME, Seq(0));
        block_on(to.write_batch(sent)).unwrap();
        let both = fingerprint(&to);
        write_all(&to, [put(keys[5], 60, b"after")]);
        vec![
            0,
            own,
            both,
            fingerprint(&to),
            fingerprint(&to),
            0,
            fingerprint(&copied),
        ]
    };
    let whole = CrashFs::new();
    let (to, _) = open(&whole).unwrap();
    let mut reached = 0;
    receive_all(&to, &from, &mut reached).unwrap();
    assert_eq!(fingerprint(&to), expected[6]);
    drop(to);
    for call in 1..=whole.calls() {
        let fs = CrashFs::new();
        fs.crash_at(call);
        let mut reached = 0;
        if let Ok((to, _)) = open(&fs) {
            // Whether the crash was met or only slowed something down, it is one.
            let _ = receive_all(&to, &from, &mut reached);
        }
        for survives in [
            Survives::Nothing,
            Survives::Everything,
            Survives::Some(call),
            Survives::Some(!call),
        ] {
            let place = format!("crash at call {call} after {reached}, {survives:?} survives");
            let image = fs.image(survives);
            let (to, _) = open(&image).unwrap_or_else(|error| panic!("{place}: {error}"));
            check_summaries(&to, &place);
            let found = fingerprint(&to);
            let next = expected.get(reached + 1).copied();
            let is_known = if reached == 0 {
                // Some of its own records.
                to.summary(HOME).records <= 4
            } else {
                found == expected[reached] || Some(found) == next
            };
            assert!(
                is_known,
                "{place}: {found:x} is none of {:x?}",
                &expected[reached..]
            );
            copy(&from, &to, HOME).unwrap_or_else(|error| panic!("{place}: {error}"));
            check_summaries(&to, &place);
            for record in scan_all(&from, HOME, Seq(0)) {
                let held = to.get(record.namespace, &record.digest, record.key.as_bytes());
                let held = held.unwrap().unwrap();
                assert!(
                    held == record || held.supersedes(&record),
                    "{place}: copied anew"
                );
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send(Record),
    Take(Record),
    SealSender,
    FoldSender,
    DropSender,
    SealReceiver,
    FoldReceiver,
    DropReceiver,
    Copy,
    Restart,
    Crash,
}

fn any_record() -> impl Strategy<Value = Record> {
    let key = proptest::sample::select(keys_of(HOME).take(10).collect::<Vec<_>>());
    (key, 1_u64..40).prop_map(|(key, time)| {
        // Equal ballots are the same write.
        if (key + time) % 6 == 0 {
            tombstone(key, time)
        } else {
            put(key, time, format!("{key} at {time}"))
        }
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_record().prop_map(Step::Send),
        8 => any_record().prop_map(Step::Take),
        2 => Just(Step::SealSender),
        1 => Just(Step::FoldSender),
        1 => Just(Step::DropSender),
        2 => Just(Step::SealReceiver),
        1 => Just(Step::FoldReceiver),
        1 => Just(Step::DropReceiver),
        3 => Just(Step::Copy),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn a_copy_is_a_merge_whatever_either_side_did_before(
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let (from, _) = open(&CrashFs::new()).unwrap();
        let mut fs = CrashFs::new();
        let mut to = open(&fs).unwrap().0;
        let (mut sent, mut taken) = (Model::default(), Model::default());
        for step in steps {
            match step {
                Step::Send(record) => {
                    sent.write(record.clone());
                    write_all(&from, [record]);
                }
                Step::Take(record) => {
                    taken.write(record.clone());
                    write_all(&to, [record]);
                }
                Step::SealSender => { block_on(from.seal()).unwrap(); }
                Step::FoldSender => { block_on(from.fold()).unwrap(); }
                Step::DropSender => {
                    sent.drop_partition(HOME);
                    block_on(from.drop_partition(HOME)).unwrap();
                }
                Step::SealReceiver => { block_on(to.seal()).unwrap(); }
                Step::FoldReceiver => { block_on(to.fold()).unwrap(); }
                Step::DropReceiver => {
                    taken.drop_partition(HOME);
                    block_on(to.drop_partition(HOME)).unwrap();
                }
                Step::Copy => {
                    copy(&from, &to, HOME).unwrap();
                    for (_, record) in sent.records.values() {
                        taken.write(record.clone());
                    }
                }
                Step::Restart => {
                    block_on(to.close()).unwrap();
                    to = open(&fs).unwrap().0;
                }
                Step::Crash => {
                    fs.crash();
                    drop(to);
                    fs = fs.image(Survives::Nothing);
                    to = open(&fs).unwrap().0;
                }
            }
            taken.last_seq = to.last_seq().0;
            // A tail by numbers is another test's: numbers here are not the model's.
            let expected: Vec<_> = taken.records.values().map(|(_, one)| one.clone()).collect();
            prop_assert_eq!(scan_all(&to, HOME, Seq(0)), expected);
            check_summaries(&to, "after a step");
            for (_, record) in taken.records.values() {
                let found = to.get(record.namespace, &record.digest, record.key.as_bytes());
                prop_assert_eq!(found.unwrap(), Some(record.clone()));
            }
        }
        for key in 2_000_000..2_000_020 {
            prop_assert_eq!(get(&to, key).unwrap(), None);
        }
    }
}

#[test]
fn the_digest_of_a_slice_is_that_of_its_bytes() {
    let (_, from) = sender();
    for slice in from.sealed(HOME).unwrap().slices {
        let bytes = slice.read(0, usize::MAX);
        let (content, digest) = bytes.split_at(bytes.len() - 32);
        assert_eq!(digest, blake3::hash(content).as_bytes());
        assert_eq!(slice.info().digest, *digest);
        assert_eq!(slice.info().len, bytes.len() as u64);
        let page = scan_all(&from, HOME, Seq(0));
        assert!(
            page.iter().map(|one| one.digest).is_sorted(),
            "in ring order"
        );
    }
}
