//! Drops, seals and folds while slices arrive.

use crate::common::{DIR, Model, block_on, check_summaries, open, put, scan_all};
use crate::{HOME, arrive, copy_sealed, infos, keys_of, sender, write_all};
use torc_record::Record;
use torc_store::testing::{Call, CrashFs, Survives};
use torc_store::{Seq, Store, StoreError};

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
