//! Seals and folds: what goes on meanwhile, what happens by itself, and who waits for whom.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

mod common;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use common::{DIR, Model, block_on, fingerprint, get, open, options, partition_of, put, tombstone};
use torc_record::{Digest, Key, Record};
use torc_store::testing::{Call, CrashFs, Survives};
use torc_store::{Seq, Store, StoreError, StoreHealth, StoreOptions, Verdict};

fn write(store: &Store, key: u64, time: u64) -> Result<(), StoreError> {
    block_on(store.write(put(key, time, vec![7; 100])))
}

fn open_with(fs: &CrashFs, change: impl FnOnce(&mut StoreOptions)) -> Store {
    let mut options = options(DIR);
    change(&mut options);
    Store::open_with(options, Arc::new(fs.clone())).unwrap().0
}

fn segments(fs: &CrashFs) -> Vec<PathBuf> {
    let mut files = fs.files();
    files.retain(|path| path.to_string_lossy().contains("segment-"));
    files
}

/// A store whose every partition has several slices, and what it holds.
fn with_slices(fs: &CrashFs, rounds: u64) -> (Store, Model) {
    let (store, _) = open(fs).unwrap();
    let mut model = Model::default();
    for round in 1..=rounds {
        for key in (0..20).filter(|key| key % round == 0) {
            let record = if key % 7 == round {
                tombstone(key, round)
            } else {
                put(key, round, format!("{key} in round {round}"))
            };
            model.write(record.clone());
            block_on(store.write(record)).unwrap();
        }
        block_on(store.seal()).unwrap();
    }
    (store, model)
}

#[test]
fn a_seal_that_finds_no_space_leaves_the_store_as_it_was() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    for key in 0..20 {
        write(&store, key, 10).unwrap();
    }
    for name in ["segment-", "MANIFEST"] {
        fs.fail_next(Call::Write, name, ErrorKind::StorageFull);
        assert!(matches!(
            block_on(store.seal()),
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
    assert_eq!(store.stats().seal_failures, 2);
    assert_eq!(store.stats().sliced.slices, 0);
    write(&store, 1, 20).unwrap();
    let (store, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!((recovery.records, recovery.log_entries_replayed), (20, 21));
    block_on(store.seal()).unwrap();
    assert_eq!(
        store.stats().overlay_bytes,
        0,
        "the next attempt finds space"
    );
}

#[test]
fn a_fold_that_finds_no_space_leaves_the_store_as_it_was() {
    let fs = CrashFs::new();
    let (store, model) = with_slices(&fs, 3);
    let (slices, files) = (store.stats().sliced.slices, segments(&fs));
    for name in ["segment-", "MANIFEST"] {
        fs.fail_next(Call::Write, name, ErrorKind::StorageFull);
        assert!(matches!(
            block_on(store.fold()),
            Err(StoreError::OutOfSpace)
        ));
        assert!(fs.is_used_up(), "{name}");
        assert_eq!(
            (store.stats().sliced.slices, segments(&fs)),
            (slices, files.clone())
        );
        model.check(&store, name);
    }
    assert_eq!(store.stats().fold_failures, 2);
    model.check(
        &open(&fs.image(Survives::Nothing)).unwrap().0,
        "after a crash",
    );
    let report = block_on(store.fold()).unwrap();
    assert_eq!(report.slices_read, slices, "the next attempt finds space");
    assert_eq!(store.stats().sliced.most_slices, 1);
    assert_eq!(segments(&fs).len(), 1, "the inputs are gone from the disk");
    model.check(&store, "folded");
}

/// What happens to `key-3`, its partition and others while something is under way.
fn disturbance() -> (Vec<Record>, Vec<Record>) {
    let during = vec![
        put(3, 50, b"newer, then dropped"),
        tombstone(4, 51),
        put(6, 52, b"new"),
        put(5, 11, b"too old"),
    ];
    let after_drop = vec![put(3, 10, b"a"), put(5, 12, b"c"), put(5, 13, b"d")];
    (during, after_drop)
}

/// Runs steps while a seal or fold is under way, right before its `nth` call of this kind,
/// and checks that what is found after a crash is what the store held.
fn write_during(is_fold: bool, call: Call, file: &str, nth: usize) -> bool {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let mut model = Model::default();
    let records = [
        put(3, 10, b"a"),
        put(4, 11, vec![1; 200]),
        put(5, 12, b"c"),
        put(9, 9, b"e"),
    ];
    let home = partition_of(&records[0]);
    for record in records {
        model.write(record.clone());
        block_on(store.write(record)).unwrap();
    }
    if is_fold {
        block_on(store.seal()).unwrap();
        for record in [put(3, 20, b"aa"), tombstone(9, 21)] {
            model.write(record.clone());
            block_on(store.write(record)).unwrap();
        }
        block_on(store.seal()).unwrap();
    }
    let (during, after_drop) = disturbance();
    for record in &during {
        model.write(record.clone());
    }
    model.drop_partition(home);
    for record in &after_drop {
        model.write(record.clone());
    }
    let writer = store.clone();
    let disturb = move || {
        block_on(async {
            for record in during {
                writer.write(record).await.unwrap();
            }
            writer.drop_partition(home).await.unwrap();
            writer.write_batch(after_drop).await.unwrap();
        });
    };
    let (later, postponed) = std::sync::mpsc::channel();
    fs.before(call, file, nth, move || {
        // The thread that writes the log cannot wait for itself.
        if std::thread::current().name() == Some("torc-commit") {
            later.send(disturb).unwrap();
        } else {
            disturb();
        }
    });
    if is_fold {
        block_on(store.fold()).unwrap();
    } else {
        block_on(store.seal()).unwrap();
    }
    if !fs.is_used_up() {
        return false;
    }
    if let Ok(disturb) = postponed.try_recv() {
        disturb();
    }
    let place = format!("fold {is_fold}, before {call:?} {nth} of {file}");
    model.check(&store, &format!("{place}, while running"));
    let before = fingerprint(&store);
    for survives in [
        Survives::Nothing,
        Survives::Everything,
        Survives::Some(nth as u64),
    ] {
        let (store, _) =
            open(&fs.image(survives)).unwrap_or_else(|error| panic!("{place}: {error}"));
        model.check(
            &store,
            &format!("{place}, after a crash, {survives:?} survives"),
        );
        assert_eq!(fingerprint(&store), before, "{place}");
        block_on(store.seal()).unwrap();
        block_on(store.fold()).unwrap();
        model.check(&store, &format!("{place}, sealed and folded"));
    }
    true
}

#[test]
fn what_is_written_and_dropped_while_a_seal_or_fold_is_under_way_survives_as_it_was() {
    for is_fold in [false, true] {
        for (call, file) in [
            (Call::Create, "segment-"),
            (Call::Write, "segment-"),
            (Call::Sync, "segment-"),
            (Call::SyncDir, DIR),
            (Call::Write, "MANIFEST"),
            (Call::Sync, "MANIFEST"),
            (Call::Rename, "MANIFEST"),
            (Call::Remove, "log-"),
        ] {
            let times = (0..20).take_while(|nth| write_during(is_fold, call, file, *nth));
            let times = times.count();
            // A fold removes no log.
            let happens = !is_fold || file != "log-";
            assert_eq!(times > 0, happens, "fold {is_fold}: {call:?} of {file}");
        }
    }
}

#[test]
fn a_fold_whose_only_partition_is_dropped_as_it_is_published_leaves_a_store_that_opens() {
    for (call, nth) in [(Call::Rename, 0), (Call::SyncDir, 1), (Call::SyncDir, 0)] {
        let fs = CrashFs::new();
        let (store, _) = open(&fs).unwrap();
        let home = partition_of(&put(1, 1, b""));
        for time in 1..3 {
            write(&store, 1, time).unwrap();
            block_on(store.seal()).unwrap();
        }
        let other = store.clone();
        let file = if call == Call::Rename {
            "MANIFEST"
        } else {
            DIR
        };
        fs.before(call, file, nth, move || {
            block_on(other.drop_partition(home)).unwrap();
        });
        block_on(store.fold()).unwrap();
        assert!(fs.is_used_up());
        assert!(get(&store, 1).unwrap().is_none());
        for survives in [Survives::Nothing, Survives::Everything] {
            let reopened = open(&fs.image(survives));
            let (store, _) = reopened.unwrap_or_else(|error| panic!("{call:?}: {error}"));
            assert!(get(&store, 1).unwrap().is_none(), "dropped");
            assert_eq!(store.summary(home).records, 0);
        }
        write(&store, 1, 1).unwrap();
        block_on(store.seal()).unwrap();
        block_on(store.fold()).unwrap();
        assert_eq!(segments(&fs).len(), 1, "what the drop made void is removed");
    }
}

#[test]
fn a_seal_cuts_the_log_and_is_read_back() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    for key in 0..200 {
        write(&store, key, 10).unwrap();
    }
    let log_segments = store.stats().log_segments;
    assert!(log_segments > 5, "{log_segments} segments");
    let report = block_on(store.seal()).unwrap();
    assert_eq!(
        (report.records, report.log_segments_removed),
        (200, log_segments)
    );
    assert_eq!((report.slices, report.through), (8, Seq(200)));
    let stats = store.stats();
    assert_eq!((stats.log_segments, stats.overlay_bytes), (1, 0));
    assert_eq!(
        (stats.sliced.keys, stats.sliced.segment_bytes),
        (200, report.bytes)
    );
    write(&store, 7, 20).unwrap();
    block_on(store.close()).unwrap();
    let (store, recovery) = open(&fs).unwrap();
    assert_eq!(
        (recovery.sealed_records, recovery.log_entries_replayed),
        (200, 1)
    );
    assert_eq!((recovery.records, recovery.last_seq), (200, Seq(201)));
    assert_eq!(store.stats().records, 200);
    assert_eq!(get(&store, 7).unwrap().unwrap().ballot.time.0, 20);
}

#[test]
fn a_seal_of_nothing_writes_no_segment() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let report = block_on(store.seal()).unwrap();
    assert_eq!((report.records, report.slices, report.bytes), (0, 0, 0));
    assert_eq!(segments(&fs).len(), 0);
    let report = block_on(store.fold()).unwrap();
    assert_eq!((report.slices_read, report.slices_written), (0, 0));
}

#[test]
fn seals_happen_by_themselves_when_enough_log_has_gathered() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.seal_log_bytes = 20_000);
    let mut key = 0;
    while store.stats().seals < 3 {
        key += 1;
        write(&store, key % 10, key).unwrap();
    }
    assert!(key > 100, "a seal every 20 kB, not {key} writes for three");
    block_on(store.close()).unwrap();
    let (_, recovery) = open(&fs).unwrap();
    assert_eq!(recovery.records, 10);
}

#[test]
fn seals_happen_by_themselves_when_the_overlay_is_half_full_and_not_more_often() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.overlay_limit_bytes = 100_000);
    let mut key = 0;
    while store.stats().seals < 3 {
        key += 1;
        write(&store, key, 10).unwrap();
    }
    // About 210 bytes a record of the overlay: 50,000 bytes are 235 of them.
    assert!(key > 600, "three halves of the overlay, not {key} records");
    assert_eq!(store.stats().seal_waits, 0, "the other half was enough");
}

#[test]
fn folds_happen_by_themselves_and_bound_the_slices_of_a_partition() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| {
        options.auto_fold = true;
        options.most_slices = 3;
    });
    for time in 1..20 {
        for key in 0..10 {
            write(&store, key, time).unwrap();
        }
        block_on(store.seal()).unwrap();
        while store.stats().sliced.most_slices > 3 {
            std::thread::yield_now();
        }
    }
    assert!(store.stats().folds > 0);
    for key in 0..10 {
        assert_eq!(get(&store, key).unwrap().unwrap().ballot.time.0, 19);
    }
}

#[test]
fn a_partition_that_is_held_is_not_folded_by_itself() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| {
        options.auto_fold = true;
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
        block_on(store.seal()).unwrap();
    }
    let count = |partition| store.sealed(partition).unwrap().slices.len();
    while count(elsewhere) > 2 {
        std::thread::yield_now();
    }
    drop(hold);
    assert_eq!(count(home), 7, "the second hold still counts");
    drop(also);
    write(&store, 2, 9).unwrap();
    block_on(store.seal()).unwrap();
    while count(home) > 2 {
        std::thread::yield_now();
    }
}

#[test]
fn writes_wait_for_seals_when_the_overlay_is_full_and_all_succeed() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.overlay_limit_bytes = 20_000);
    block_on(async {
        let writers = (0..8).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for step in 0..40 {
                    let record = put(writer * 40 + step, 10, vec![7; 1000]);
                    store.write(record).await.unwrap();
                    assert!(store.stats().overlay_bytes <= 20_000);
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
    let stats = store.stats();
    assert_eq!((stats.records, stats.overlay_refusals), (320, 0));
    assert!(stats.seals > 10, "{} seals", stats.seals);
    drop(store);
    let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.records, 320);
}

#[test]
fn a_record_longer_than_the_whole_overlay_is_taken_when_it_is_empty() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.overlay_limit_bytes = 1000);
    for key in 0..5 {
        block_on(store.write(put(key, 1, vec![1; 5000]))).unwrap();
    }
    assert_eq!(store.stats().records, 5);
}

#[test]
fn when_sealing_fails_a_full_overlay_refuses_values_takes_deletes_and_recovers() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| {
        options.overlay_limit_bytes = 20_000;
        options.log_segment_bytes = 1 << 20;
    });
    write(&store, 0, 1).unwrap();
    let taken_up = fs.used_bytes();
    fs.set_capacity(Some(taken_up));
    let mut key = 1;
    let refused = loop {
        match write(&store, key, 10) {
            Ok(()) => key += 1,
            Err(refused) => break refused,
        }
    };
    let is_it = matches!(
        refused,
        StoreError::OverlayFull {
            limit_bytes: 20_000
        }
    );
    assert!(is_it, "{refused}");
    assert!(refused.is_retryable() && !refused.outcome_unknown());
    let stats = store.stats();
    assert!(stats.overlay_bytes <= 20_000 && stats.overlay_bytes > 19_000);
    assert!(stats.seal_failures > 0 && stats.overlay_refusals == 1);
    let mut stranger = 1_000_000;
    while block_on(store.write(tombstone(stranger, 1))).is_ok() {
        stranger += 1;
    }
    assert!(stranger > 1_000_010, "deletes have an eighth more");
    assert!(store.stats().overlay_bytes <= 22_500);
    for key in 0..key {
        assert!(get(&store, key).unwrap().is_some(), "reads go on");
    }
    fs.set_capacity(None);
    write(&store, key, 10).unwrap_or_else(|error| panic!("there is space again: {error}"));
    let records = store.stats().records;
    drop(store);
    let (_, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(recovery.records, records);
}

#[test]
fn two_keys_of_one_digest_cannot_be_sealed_and_lose_nothing() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let one = put(1, 1, b"one");
    let mut other = put(2, 1, b"other");
    other.digest = one.digest;
    block_on(store.write_batch(vec![one.clone(), other.clone()])).unwrap();
    let refused = block_on(store.seal()).unwrap_err();
    assert!(
        matches!(refused, StoreError::Unsealable { .. }),
        "{refused}"
    );
    drop(store);
    let (store, _) = open(&fs.image(Survives::Nothing)).unwrap();
    for record in [one, other] {
        let found = store.get(record.namespace, &record.digest, record.key.as_bytes());
        assert_eq!(found.unwrap(), Some(record));
    }
}

#[test]
fn a_sealed_key_answers_for_no_other_key_of_its_digest() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let record = put(1, 1, b"one");
    block_on(store.write(record.clone())).unwrap();
    block_on(store.seal()).unwrap();
    let Digest(digest) = record.digest;
    let found = store
        .get(record.namespace, &Digest(digest), b"key-2")
        .unwrap();
    assert_eq!(
        found, None,
        "the digest passes gate and MPHF, the key does not"
    );
    let other = Record {
        key: Key::new("key-2").unwrap(),
        ..record
    };
    let batch = store.get_batch(&[(other.namespace, other.digest, other.key.as_bytes())]);
    assert!(matches!(batch[..], [Ok(None)]));
    let trace = store
        .trace(other.namespace, &other.digest, b"key-2")
        .unwrap();
    assert_eq!(trace.slices[0].verdict, Verdict::GateFalsePositive);
    assert_eq!(store.stats().sliced.gate_false_positives, 2);
}

#[test]
fn gates_decide_nearly_all_misses_without_a_read() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let records: Vec<_> = (0..2000).map(|key| put(key, 1, b"x")).collect();
    block_on(store.write_batch(records)).unwrap();
    block_on(store.seal()).unwrap();
    for key in 0..2000 {
        assert!(get(&store, 1_000_000 + key).unwrap().is_none());
    }
    let sliced = store.stats().sliced;
    assert_eq!(sliced.gate_negatives + sliced.gate_false_positives, 2000);
    assert!(
        sliced.record_reads <= 20,
        "{} reads for 2,000 misses",
        sliced.record_reads
    );
    assert!(get(&store, 7).unwrap().is_some());
    let after = store.stats().sliced;
    assert_eq!(
        after.record_reads,
        sliced.record_reads + 1,
        "one read a hit"
    );
}

#[test]
fn the_newest_ballot_is_the_answer_in_whatever_slice_it_lies() {
    let fs = CrashFs::new();
    let (store, model) = with_slices(&fs, 5);
    model.check(&store, "many slices");
    write(&store, 1, 3).unwrap();
    assert!(store.stats().overlay_bytes > 0, "newer than what is sealed");
    let before = fingerprint(&store);
    write(&store, 1, 2).unwrap();
    write(&store, 0, 4).unwrap();
    assert_eq!(
        fingerprint(&store),
        before,
        "older than what is sealed: nothing changes"
    );
    let trace = {
        let one = put(0, 0, b"");
        store
            .trace(one.namespace, &one.digest, one.key.as_bytes())
            .unwrap()
    };
    let holds = trace
        .slices
        .iter()
        .filter(|one| matches!(one.verdict, Verdict::Holds { .. }));
    assert_eq!((trace.overlay, holds.count()), (None, 5));
}

#[test]
fn closing_while_a_seal_or_fold_is_under_way_loses_nothing() {
    for is_fold in [false, true] {
        for nth in 0..4 {
            let fs = CrashFs::new();
            let (store, model) = with_slices(&fs, 2);
            let mut model = model;
            for key in 30..40 {
                model.write(put(key, 40, b"late"));
                block_on(store.write(put(key, 40, b"late"))).unwrap();
            }
            let call = [Call::Create, Call::Write, Call::Sync, Call::Write][nth];
            let file = if nth == 3 { "MANIFEST" } else { "segment-" };
            let (go_on, told) = std::sync::mpsc::channel::<()>();
            let (reached, is_reached) = std::sync::mpsc::channel();
            fs.before(call, file, 0, move || {
                reached.send(()).unwrap();
                told.recv().unwrap();
            });
            block_on(async {
                let working = store.clone();
                let work = tokio::spawn(async move {
                    if is_fold {
                        working.fold().await.map(|_| ())
                    } else {
                        working.seal().await.map(|_| ())
                    }
                });
                while is_reached.try_recv().is_err() {
                    tokio::task::yield_now().await;
                }
                let closing = tokio::spawn(store.close());
                tokio::task::yield_now().await;
                go_on.send(()).unwrap();
                closing.await.unwrap().unwrap();
                let outcome = work.await.unwrap();
                assert!(
                    matches!(outcome, Ok(()) | Err(StoreError::Closed)),
                    "{outcome:?}"
                );
            });
            let place = format!("closed during {call:?} of {file}, fold {is_fold}");
            model.check(&open(&fs).unwrap().0, &place);
            model.check(&open(&fs.image(Survives::Nothing)).unwrap().0, &place);
        }
    }
}

#[test]
fn a_writer_that_waits_for_a_seal_is_told_that_the_store_is_closed() {
    let fs = CrashFs::new();
    let store = open_with(&fs, |options| options.overlay_limit_bytes = 2000);
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    fs.before(Call::Create, "segment-", 0, move || told.recv().unwrap());
    block_on(async {
        let mut writers = Vec::new();
        for key in 0..40 {
            let store = store.clone();
            let record = put(key, 1, vec![1; 100]);
            writers.push(tokio::spawn(async move { store.write(record).await }));
        }
        while store.stats().seal_waits == 0 {
            tokio::task::yield_now().await;
        }
        let closing = tokio::spawn(store.clone().close());
        tokio::task::yield_now().await;
        go_on.send(()).unwrap();
        closing.await.unwrap().unwrap();
        let mut closed = 0;
        for writer in writers {
            match writer.await.unwrap() {
                Ok(()) => {}
                Err(StoreError::Closed) => closed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(closed > 0, "somebody waited");
    });
}
