//! Ingest on a disk that is full, fails, or loses unsynced data.

use std::io::ErrorKind;
use std::path::PathBuf;

use super::{HOME, copy, copy_sealed, infos, keys_of, prepare, segments, sender, write_all};
use crate::common::{block_on, check_summaries, fingerprint, open, put, scan_all};
use torc_store::testing::{Call, CrashFs, Survives, WaitingStore};
use torc_store::{Seq, Store, StoreError, StoreHealth};

#[test]
fn an_ingest_that_finds_no_space_changes_nothing_and_may_be_tried_again() {
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
        assert_eq!(segments(&fs), Vec::<PathBuf>::new(), "{call:?} of {file}");
        copy(&from, &to, HOME).unwrap();
        assert_eq!(to.summary(HOME), from.summary(HOME));
    }
}

#[test]
fn a_failed_sync_of_an_ingest_stops_the_store() {
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
fn an_ingest_outlives_neither_its_store_nor_a_restart() {
    let (_, from) = sender();
    let sealed = from.sealed(HOME).unwrap();
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let ingest = prepare(&to, HOME, &sealed).unwrap();
    let late = prepare(&to, HOME, &sealed).unwrap();
    block_on(to.clone().close()).unwrap();
    assert!(matches!(
        block_on(ingest.publish()),
        Err(StoreError::Closed)
    ));
    assert!(to.ingest(HOME, &infos(&sealed)).is_err());
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

/// The whole work of a receiver, in which the crashes occur.
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
    block_on(to.flush())?;
    copy_sealed(from, to, HOME)?;
    block_on(to.compact())?;
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
    // The content at each point.
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
            // The crash may not have been reached, or may only have delayed something; both are
            // allowed.
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
                let held = to.get(record.locator());
                let held = held.unwrap().unwrap();
                assert!(
                    held == record || held.supersedes(&record),
                    "{place}: copied anew"
                );
            }
        }
    }
}
