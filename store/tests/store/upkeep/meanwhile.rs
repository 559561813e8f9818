//! Writes, drops and a close during a flush or compaction.

use super::{segments, with_slices, write};
use crate::common::{DIR, Model, block_on, fingerprint, get, open, partition_of, put, tombstone};
use torc_record::Record;
use torc_store::StoreError;
use torc_store::testing::{Call, CrashFs, Survives, WaitingStore};

/// Changes of `key-3`, its partition and others during a flush or compaction.
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

/// Runs steps right before the `nth` call of this kind in a flush or compaction, and checks that
/// the content after a crash is what the store held.
fn write_during(is_compaction: bool, call: Call, file: &str, nth: usize) -> bool {
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
    if is_compaction {
        block_on(store.flush()).unwrap();
        for record in [put(3, 20, b"aa"), tombstone(9, 21)] {
            model.write(record.clone());
            block_on(store.write(record)).unwrap();
        }
        block_on(store.flush()).unwrap();
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
        // The log's thread cannot wait for itself.
        if std::thread::current().name() == Some("torc-commit") {
            later.send(disturb).unwrap();
        } else {
            disturb();
        }
    });
    if is_compaction {
        block_on(store.compact()).unwrap();
    } else {
        block_on(store.flush()).unwrap();
    }
    if !fs.is_used_up() {
        return false;
    }
    if let Ok(disturb) = postponed.try_recv() {
        disturb();
    }
    let place = format!("compaction {is_compaction}, before {call:?} {nth} of {file}");
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
        block_on(store.flush()).unwrap();
        block_on(store.compact()).unwrap();
        model.check(&store, &format!("{place}, sealed and compacted"));
    }
    true
}

#[test]
fn what_is_written_and_dropped_while_a_flush_or_compaction_is_under_way_survives_as_it_was() {
    for is_compaction in [false, true] {
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
            let times = (0..20).take_while(|nth| write_during(is_compaction, call, file, *nth));
            let times = times.count();
            // A compaction removes no log segments.
            let happens = !is_compaction || file != "log-";
            assert_eq!(
                times > 0,
                happens,
                "compaction {is_compaction}: {call:?} of {file}"
            );
        }
    }
}

#[test]
fn a_compaction_whose_only_partition_is_dropped_as_it_is_published_leaves_a_store_that_opens() {
    for (call, nth) in [(Call::Rename, 0), (Call::SyncDir, 1), (Call::SyncDir, 0)] {
        let fs = CrashFs::new();
        let (store, _) = open(&fs).unwrap();
        let home = partition_of(&put(1, 1, b""));
        for time in 1..3 {
            write(&store, 1, time).unwrap();
            block_on(store.flush()).unwrap();
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
        block_on(store.compact()).unwrap();
        assert!(fs.is_used_up());
        assert!(get(&store, 1).unwrap().is_none());
        for survives in [Survives::Nothing, Survives::Everything] {
            let reopened = open(&fs.image(survives));
            let (store, _) = reopened.unwrap_or_else(|error| panic!("{call:?}: {error}"));
            assert!(get(&store, 1).unwrap().is_none(), "dropped");
            assert_eq!(store.summary(home).records, 0);
        }
        write(&store, 1, 1).unwrap();
        block_on(store.flush()).unwrap();
        block_on(store.compact()).unwrap();
        assert_eq!(segments(&fs).len(), 1, "what the drop made void is removed");
    }
}

#[test]
fn closing_while_a_flush_or_compaction_is_under_way_loses_nothing() {
    for is_compaction in [false, true] {
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
                    if is_compaction {
                        working.compact().await.map(|_| ())
                    } else {
                        working.flush().await.map(|_| ())
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
            let place = format!("closed during {call:?} of {file}, compaction {is_compaction}");
            model.check(&open(&fs).unwrap().0, &place);
            model.check(&open(&fs.image(Survives::Nothing)).unwrap().0, &place);
        }
    }
}
