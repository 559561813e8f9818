//! Drops, flushes and compactions while slices are ingested.

use super::{HOME, copy_sealed, infos, keys_of, prepare, purge, sender, upto, write_all};
use crate::common::{DIR, Model, block_on, check_summaries, get, open, put, scan_all, tombstone};
use torc_record::Record;
use torc_store::testing::{Call, CrashFs, Survives, WaitingStore};
use torc_store::{Seq, Store, StoreError};

#[test]
fn a_drop_while_an_ingest_is_published_wins_and_one_before_does_not_concern_it() {
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
        let ingest = prepare(&to, HOME, &from.sealed(HOME).unwrap()).unwrap();
        let other = to.clone();
        fs.before(call, file, 0, move || {
            block_on(other.drop_partition(HOME)).unwrap();
        });
        let refused = block_on(ingest.publish()).unwrap_err();
        assert!(
            matches!(refused, StoreError::BadIngest { .. }),
            "{call:?}: {refused}"
        );
        assert_eq!(to.summary(HOME).records, 0);
        for survives in [Survives::Nothing, Survives::Everything] {
            let (again, _) = open(&fs.image(survives)).unwrap();
            assert_eq!(again.summary(HOME).records, 0, "{call:?}, {survives:?}");
            check_summaries(&again, "dropped");
        }

        let ingest = prepare(&to, HOME, &from.sealed(HOME).unwrap()).unwrap();
        block_on(to.drop_partition(HOME)).unwrap();
        block_on(ingest.publish()).unwrap();
        for survives in [Survives::Nothing, Survives::Everything] {
            let (again, _) = open(&fs.image(survives)).unwrap();
            assert_eq!(again.summary(HOME), from.sealed(HOME).unwrap().summary);
            check_summaries(&again, "ingested after the drop");
        }
    }
}

/// Runs `during` on the receiver right before a call of a flush or compaction, together with an
/// ingest.
fn ingest_during(is_compaction: bool, call: Call, file: &str, nth: usize) -> bool {
    let (_, from) = sender();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let keys: Vec<u64> = keys_of(HOME).take(12).collect();
    // Older, equal and newer versions of ingested records. At most four of the six older ones are
    // replaced by equal ones.
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
    if is_compaction {
        block_on(to.flush()).unwrap();
        for (key, time) in keys.iter().zip([6, 101].into_iter().cycle()) {
            model.write(put(*key, time, b"again"));
            write_all(&to, [put(*key, time, b"again")]);
        }
        block_on(to.flush()).unwrap();
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
    let ingest_now = move || {
        let ingest = prepare(&receiver, HOME, &received).unwrap();
        block_on(ingest.publish()).unwrap();
    };
    let (later, postponed) = std::sync::mpsc::channel();
    fs.before(call, file, nth, move || {
        // The holder of the manifest and the log's thread cannot wait for an ingest.
        if std::thread::current().name() == Some("torc-commit") {
            later.send(ingest_now).unwrap();
        } else {
            ingest_now();
        }
    });
    let worked = if is_compaction {
        block_on(to.compact()).map(|_| ())
    } else {
        block_on(to.flush()).map(|_| ())
    };
    worked.unwrap();
    if !fs.is_used_up() {
        return false;
    }
    if let Ok(ingest_now) = postponed.try_recv() {
        ingest_now();
    }
    let place = format!("ingest during a flush or compaction ({is_compaction}), {call:?} {nth}");
    check_contents(&model, &to, &place);
    for survives in [Survives::Nothing, Survives::Some(nth as u64)] {
        let (again, _) = open(&fs.image(survives)).unwrap();
        check_contents(&model, &again, &format!("{place}, after a crash"));
        block_on(again.flush()).unwrap();
        block_on(again.compact()).unwrap();
        check_contents(&model, &again, &format!("{place}, compacted"));
    }
    true
}

fn check_contents(model: &Model, store: &Store, place: &str) {
    check_summaries(store, place);
    model.check(store, place);
}

#[test]
fn slices_that_are_ingested_while_a_flush_or_compaction_writes_are_counted_right() {
    for is_compaction in [false, true] {
        for call in [Call::Create, Call::Write, Call::Sync] {
            let times = (0..10).take_while(|nth| {
                ingest_during(is_compaction, call, "segment-0000000000000000000", *nth)
            });
            assert!(times.count() > 0, "{call:?}");
        }
    }
}

#[test]
fn a_drop_after_an_ingest_was_handed_over_wins_also_before_it_is_published() {
    let (_, from) = sender();
    let (to, _) = open(&CrashFs::new()).unwrap();
    let sealed = from.sealed(HOME).unwrap();
    let another = to.ingest(HOME, &infos(&sealed)).unwrap();
    // They share a segment, which is published when both have ended.
    let handed_over = prepare(&to, HOME, &sealed).unwrap().publish();
    write_all(&to, [put(keys_of(HOME).next().unwrap(), 1, b"here before")]);
    block_on(to.drop_partition(HOME)).unwrap();
    drop(another);
    let refused = block_on(handed_over).unwrap_err();
    assert!(matches!(refused, StoreError::BadIngest { .. }), "{refused}");
    assert_eq!(to.summary(HOME).records, 0);
}

#[test]
fn an_ingested_tombstone_is_kept_while_the_log_has_the_value_that_it_deletes() {
    let key = keys_of(HOME).next().unwrap();
    let (from, _) = open(&CrashFs::new()).unwrap();
    write_all(&from, [tombstone(key, 2)]);
    block_on(from.flush()).unwrap();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    write_all(&to, [put(key, 1, b"deleted")]);
    copy_sealed(&from, &to, HOME).unwrap();
    purge(&to, upto(2));
    block_on(to.compact()).unwrap();
    drop(to);
    let (to, _) = open(&fs.image(Survives::Nothing)).unwrap();
    assert_eq!(get(&to, key).unwrap(), None, "the log is replayed");
    block_on(to.flush()).unwrap();
    block_on(to.compact()).unwrap();
    assert_eq!(to.sealed(HOME).unwrap().slices.len(), 0);
}
